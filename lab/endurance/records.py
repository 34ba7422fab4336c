"""The records that are sent, and the files that say what became of each."""

from __future__ import annotations

import enum
import random
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from splashdam.client.future import RecordFuture
from splashdam.model.errors import KafkaError, KafkaTimeoutError, PurgedError, TransactionAbortedError

TOPIC = "endurance"
PARTITIONS = 4

_ENTRY = struct.Struct("<BBIq")
_FILLER = random.Random(0).randbytes(2000) * 2


class Fate(enum.IntEnum):
    """What the application knows of a record in the end."""

    ACKNOWLEDGED = 1
    """Delivered, and committed if it was in a transaction."""
    PERHAPS = 2
    """Given up; it may have been written."""
    NOT_WRITTEN = 3
    """Given up, and the error says that it was never sent."""
    ABORTED = 4
    """Its transaction was aborted, by its producer or by the one that came after it."""


class Told(NamedTuple):
    """An entry of a ledger. ``offset`` is -1 where nobody told one."""

    partition: int
    fate: Fate
    number: int
    offset: int


class Ledger:
    """Numbers the records of one stream by partition, and keeps on disk what it was told of each.

    Args:
        folder: where its file goes.
        name: of the stream, which its records carry.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.taken = [0] * PARTITIONS
        self.told = dict.fromkeys(Fate, 0)
        self._file = (folder / f"{name}.ledger").open("wb")
        self._lock = threading.Lock()

    def take(self, partition: int) -> int:
        """The next number of the partition; one thread or task per partition."""
        number = self.taken[partition]
        self.taken[partition] = number + 1
        return number

    def tell(self, partition: int, number: int, fate: Fate, offset: int = -1) -> None:
        """The application was told; from any thread."""
        with self._lock:
            self.told[fate] += 1
            self._file.write(_ENTRY.pack(partition, fate, number, offset))

    def tell_of(self, partition: int, number: int, future: RecordFuture) -> None:
        """The future is done: what it says."""
        metadata = future.value
        if metadata is not None:
            self.tell(partition, number, Fate.ACKNOWLEDGED, metadata.offset)
        else:
            self.tell(partition, number, fate_of(future.exception))

    def close(self) -> None:
        """Everything is on disk afterwards."""
        self._file.close()


def entries(path: Path) -> Iterator[Told]:
    """What a closed ledger holds."""
    for partition, fate, number, offset in _ENTRY.iter_unpack(path.read_bytes()):
        yield Told(partition, Fate(fate), number, offset)


def value_of(name: str, partition: int, number: int) -> bytes:
    """The value of a record: who sent it and which it is, then bytes that follow from that."""
    begin = number * 31 % 2000
    return b"%s %d %d " % (name.encode(), partition, number) + _FILLER[begin : begin + 20 + number * 7 % 400]


def name_of(value: bytes) -> tuple[str, int, int]:
    """Stream, partition and number of a value."""
    name, partition, number, _ = value.split(b" ", 3)
    return name.decode(), int(partition), int(number)


def fate_of(error: BaseException | None) -> Fate:
    """What an error says about the log."""
    text = str(error)
    if isinstance(error, TransactionAbortedError):
        return Fate.NOT_WRITTEN
    if isinstance(error, PurgedError):
        return Fate.NOT_WRITTEN if "not sent" in text else Fate.PERHAPS
    if isinstance(error, KafkaTimeoutError) and " 0 attempts failed;" in text:
        return Fate.PERHAPS if "has not answered the last one" in text else Fate.NOT_WRITTEN
    if isinstance(error, KafkaError):
        return Fate.PERHAPS
    raise TypeError(f"a record failed with what is no KafkaError: {error!r}")
