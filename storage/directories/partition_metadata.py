"""``partition.metadata``, which names the topic id of a partition directory; and topic ids as text.

The file has exactly 43 bytes, without a newline at its end. Format: docs/format/log-directory.md.
"""

from __future__ import annotations

import base64
import binascii
import uuid

from splashdam.storage.files.disk import Files
from splashdam.storage.files.log_file import unusable_file_error

FILE_NAME = "partition.metadata"
_BEGINNING = b"version: 0\ntopic_id: "
_FILE_BYTES = 43
_RESERVED_IDS = (bytes(16), bytes(15) + b"\x01")  # no id, and the id of the metadata topic


def new_uuid() -> bytes:
    """Return a random id by Kafka's rules: not reserved, and its text does not begin with a dash."""
    while True:
        candidate = uuid.uuid4().bytes
        if candidate not in _RESERVED_IDS and not format_uuid(candidate).startswith("-"):
            return candidate


def format_uuid(value: bytes) -> str:
    """Return 16 bytes as 22 characters of base64url."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def parse_uuid(text: str) -> bytes:
    """Return 22 characters of base64url as 16 bytes.

    Raises:
        ValueError: the text is not an id.
    """
    try:
        value = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not an id") from error
    if len(value) != 16:
        raise ValueError(f"{text!r} is not an id of 16 bytes")
    return value


def read_topic_id(files: Files, directory: str) -> bytes | None:
    """Return the topic id of a partition directory, or None.

    Raises:
        KafkaStorageError: the file is damaged.
    """
    data = files.read_bytes(f"{directory}/{FILE_NAME}")
    if data is None or _is_torn(data):
        return None
    values = dict(line.partition(": ")[::2] for line in data.decode(errors="replace").splitlines())
    if values.get("version") != "0":
        raise unusable_file_error(
            f"{directory}/{FILE_NAME}", f"has version {values.get('version')!r}; only '0' is supported"
        )
    try:
        return parse_uuid(values.get("topic_id", ""))
    except ValueError as error:
        raise unusable_file_error(f"{directory}/{FILE_NAME}", f"is damaged ({error})") from error


def _is_torn(data: bytes) -> bool:
    """Whether a power cut left this of a file that was never synced: its beginning, then zeros."""
    begun = data.rstrip(b"\0")
    return len(begun) < _FILE_BYTES and (begun.startswith(_BEGINNING) or _BEGINNING.startswith(begun))


def write_topic_id(files: Files, directory: str, topic_id: bytes, *, sync: bool = True) -> None:
    """Write the file, before the first append to the partition.

    Without ``sync`` a power cut may undo it. For a new topic that is fine, because the registry has the id
    and was synced before.

    Raises:
        KafkaStorageError: the file could not be written.
    """
    files.write_atomic(f"{directory}/{FILE_NAME}", _BEGINNING + format_uuid(topic_id).encode(), sync=sync)
