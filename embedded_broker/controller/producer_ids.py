"""Producer ids that are never handed out twice, restarts included.

A block is reserved on disk before its first id is handed out; after a crash only the rest of the block is
lost. Kafka's controller does the same with blocks of 1,000. The file
``producer-ids-checkpoint`` in the data directory is text: a version, and the first id that is not reserved.
"""

from __future__ import annotations

from typing import Protocol

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.options import MAX_LONG
from splashdam.storage.directories.checkpoints import whole_number_of
from splashdam.storage.directories.identity import PRODUCER_IDS_NAME
from splashdam.storage.files.disk import Files

_BLOCK = 1000
_VERSION = "0"


class ProducerIdSource(Protocol):
    """Source of producer ids; see `ProducerIds`."""

    def next_id(self) -> int: ...

    def skip(self, producer_id: int) -> None:
        """Never hand out an id up to and including ``producer_id``, which is in use."""
        ...


class ProducerIds:
    """Hands out producer ids.

    Args:
        files: the file system.
        directory: the data directory.
        above: the highest id found in the logs, -1 for none: a directory copied from another broker may lack
            the file.

    Raises:
        KafkaStorageError: the file is damaged or cannot be read.
    """

    def __init__(self, files: Files, directory: str, *, above: int) -> None:
        self._files = files
        self._path = f"{directory}/{PRODUCER_IDS_NAME}"
        self._next = self._reserved = max(self._read(), above + 1)

    def next_id(self) -> int:
        """Return an unused id.

        Raises:
            KafkaStorageError: the next block cannot be reserved; the call may be repeated.
        """
        if self._next == self._reserved:
            reserved = self._next + _BLOCK
            self._files.write_atomic(self._path, f"{_VERSION}\n{reserved}\n".encode())
            self._reserved = reserved
        self._next += 1
        return self._next - 1

    def skip(self, producer_id: int) -> None:
        """Never hand out an id up to and including ``producer_id``, which is in use."""
        if producer_id >= self._next:
            self._next = self._reserved = producer_id + 1

    def _read(self) -> int:
        data = self._files.read_bytes(self._path)
        if data is None:
            return 0
        version, _, rest = data.decode(errors="replace").partition("\n")
        text = rest.removesuffix("\n")
        reserved = whole_number_of(text, MAX_LONG - _BLOCK)
        if version != _VERSION or reserved is None:
            raise KafkaStorageError(f"{self._path} does not hold a version and a number; move it away")
        return reserved
