"""``splashdam-meta.json``: which version of splashdam wrote a data directory last, and in which format.

A file of its own, because it must not depend on others: ``meta.properties`` is Kafka's, to the byte, and a
real Kafka that takes the directory over may write it anew without what it does not know; plain files of other
names it leaves alone. And it can be read before anything else is. Format: docs/format/log-directory.md.
"""

from __future__ import annotations

import json
import logging
import re
from contextlib import suppress
from typing import NamedTuple

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.version import VERSION
from splashdam.storage.files.disk import Files
from splashdam.storage.files.log_file import unusable_file_error

FILE_NAME = "splashdam-meta.json"

FORMAT = 1
"""The format of directories that this version writes, and the newest that it reads.

Raise it in the first version whose directories an older one would misread; that older one refuses them then.
What an older version merely ignores needs no new number.
"""

_MOST_FORMAT = 2**31 - 1

_logger = logging.getLogger(__name__)


class WrittenBy(NamedTuple):
    """The content of the file.

    Attributes:
        format: of the directory.
        version: of splashdam; empty before 0.1.0 was released, when there was no such file.
    """

    format: int
    version: str


def read_written_by(files: Files, root: str) -> WrittenBy:
    """Return who wrote a directory.

    Raises:
        KafkaStorageError: the file cannot be read or understood.
    """
    path = f"{root}/{FILE_NAME}"
    data = files.read_bytes(path)
    if data is None:
        return WrittenBy(1, "")
    with suppress(ValueError, RecursionError):
        content = json.loads(data)
        number = content.get("format") if isinstance(content, dict) else None
        if type(number) is int and 1 <= number <= _MOST_FORMAT:
            return WrittenBy(number, str(content.get("version", "")))
    raise unusable_file_error(path, "is damaged")


_NUMBER = re.compile(r"[0-9][0-9A-Za-z.+-]{0,30}\Z")


def claim_format(files: Files, root: str) -> None:
    """Refuse a directory of a newer format; else note that this version writes it from now on.

    Call it with the lock of the directory, before anything in it is read or changed.

    Raises:
        KafkaStorageError: the directory is of a newer format, or this one cannot be noted.
    """
    found = read_written_by(files, root)
    if found.format > FORMAT:
        known = _NUMBER.match(found.version) is not None  # the file may have been edited
        writer = f"splashdam {found.version}" if known else "a newer splashdam"
        remedy = (
            f"install {writer}{' or later' if known else ''}, or give this version another directory"
            " (docs/how-to/upgrading.md)"
        )
        error = KafkaStorageError(
            f"{root} was written by {writer} in format {found.format}, and this is splashdam {VERSION}, which"
            f" reads format {FORMAT}: {remedy}"
        )
        error.remedy = remedy
        raise error
    ours = WrittenBy(FORMAT, VERSION)
    if found == ours:
        return
    text = json.dumps(ours._asdict(), sort_keys=True) + "\n"
    try:
        files.write_atomic(f"{root}/{FILE_NAME}", text.encode())
    except KafkaStorageError as error:
        if found.format != FORMAT:  # an older version could misread what this one writes
            raise
        _logger.warning("noting the version in %s: %s", root, error.message)
