"""``partition.metadata`` and topic ids: which topic a partition directory belongs to.

The file is exactly 43 bytes, without a newline at its end. Format: docs/format/log-directory.md.
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
_RESERVED_IDS = (bytes(16), bytes(15) + b"\x01")  # "none", and the metadata topic's


def new_uuid() -> bytes:
    """A random id as Kafka makes them: never a reserved one, never one whose text begins with a dash."""
    while True:
        candidate = uuid.uuid4().bytes
        if candidate not in _RESERVED_IDS and not format_uuid(candidate).startswith("-"):
            return candidate


def format_uuid(value: bytes) -> str:
    """16 bytes as 22 characters of base64url."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def parse_uuid(text: str) -> bytes:
    """22 characters of base64url as 16 bytes.

    Raises:
        ValueError: it is no such text.
    """
    try:
        value = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is no id") from error
    if len(value) != 16:
        raise ValueError(f"{text!r} is no id of 16 bytes")
    return value


def read_topic_id(files: Files, directory: str) -> bytes | None:
    """The topic id of a partition directory, or None where it has none.

    Raises:
        KafkaStorageError: the file is there and makes no sense.
    """
    data = files.read_bytes(f"{directory}/{FILE_NAME}")
    if data is None or _is_torn(data):
        return None
    values = dict(line.partition(": ")[::2] for line in data.decode(errors="replace").splitlines())
    if values.get("version") != "0":
        raise unusable_file_error(
            f"{directory}/{FILE_NAME}", f"is of version {values.get('version')!r}, known is '0'"
        )
    try:
        return parse_uuid(values.get("topic_id", ""))
    except ValueError as error:
        raise unusable_file_error(f"{directory}/{FILE_NAME}", f"makes no sense ({error})") from error


def _is_torn(data: bytes) -> bool:
    """Whether it is what a power cut leaves of a file that was never synced: its beginning, then zeros."""
    begun = data.rstrip(b"\0")
    return len(begun) < _FILE_BYTES and (begun.startswith(_BEGINNING) or _BEGINNING.startswith(begun))


def write_topic_id(files: Files, directory: str, topic_id: bytes, *, sync: bool = True) -> None:
    """Write the file, before the first append to the partition; without ``sync`` a power cut may undo it.

    Raises:
        KafkaStorageError: it could not be written.
    """
    files.write_atomic(f"{directory}/{FILE_NAME}", _BEGINNING + format_uuid(topic_id).encode(), sync=sync)
