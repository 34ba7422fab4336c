"""``.snapshot``: the producer state of everything below the offset in the file's name.

Format: docs/format/producer-snapshot.md.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Iterable

from splashdam.model.broker_errors import CorruptMessageError, KafkaStorageError
from splashdam.record.checksum import crc32c
from splashdam.storage.directories.checkpoints import whole_number_of
from splashdam.storage.files.disk import Files
from splashdam.storage.files.log_file import OversizedFileError
from splashdam.storage.producers.state import (
    MAX_SEQUENCE,
    REMEMBERED_BATCHES,
    ProducerEntry,
    ProducerStates,
    RememberedBatch,
)
from splashdam.storage.segments.segment import SNAPSHOT, segment_path

VERSION = 1
_logger = logging.getLogger(__name__)
_HEAD = struct.Struct(">hIi")
_COUNT_POSITION = 6
_ENTRY = struct.Struct(">qhiqiqiq")


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the content of a snapshot file."""
    parts = [_encode_entry(entry) for entry in entries]
    body = struct.pack(">i", len(parts)) + b"".join(parts)
    return struct.pack(">hI", VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Return the entries of a snapshot file.

    Raises:
        CorruptMessageError: length, version or checksum is wrong.
    """
    if len(data) < _HEAD.size:
        raise CorruptMessageError(f"a producer snapshot has at least {_HEAD.size} bytes, not {len(data)}")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptMessageError(f"producer snapshot of version {version}; only {VERSION} is supported")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptMessageError(f"a producer snapshot of {count} entries cannot have {len(data)} bytes")
    if crc32c(data[_COUNT_POSITION:]) != crc:
        raise CorruptMessageError("the checksum of a producer snapshot is wrong")
    return [_decode_entry(fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size :])]


def _encode_entry(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else None
    return _ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        entry.last_sequence,
        last.last_offset if last else -1,
        last.last_offset - last.first_offset if last else 0,
        entry.timestamp_ms,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )


def _decode_entry(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp_ms, coordinator, first = fields
    batches: deque[RememberedBatch] = deque(maxlen=REMEMBERED_BATCHES)
    if last_offset >= 0:
        first_sequence = last_sequence - offset_delta
        # Sequences wrap around after 2^31 - 1.
        if first_sequence < 0:
            first_sequence += MAX_SEQUENCE + 1
        batches.append(
            RememberedBatch(
                first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp_ms
            )
        )
    return ProducerEntry(producer_id, epoch, batches, timestamp_ms, coordinator, first)


class SnapshotFiles:
    """The ``.snapshot`` files of one partition directory.

    Args:
        files: the file system.
        directory: the partition's.
        names: the file names in it, if nobody else changes them; by default the directory is listed each
            time.
    """

    def __init__(self, files: Files, directory: str, names: Iterable[str] | None = None) -> None:
        self._files = files
        self._directory = directory
        self._known = None if names is None else self._offsets_in(names)

    def offsets(self) -> list[int]:
        """Return the offsets of all snapshots, ascending.

        Raises:
            KafkaStorageError: a name with this suffix does not begin with an offset.
        """
        if self._known is not None:
            return sorted(self._known)
        entries = self._files.list_directory(self._directory)
        return sorted(self._offsets_in(name for name, is_directory in entries if not is_directory))

    def _offsets_in(self, names: Iterable[str]) -> set[int]:
        return {offset_of_name(name, self._directory) for name in names if name.endswith(SNAPSHOT)}

    def write(self, offset: int, states: ProducerStates) -> None:
        """Write the state of everything below ``offset``, without a sync: the log can rebuild it.

        Raises:
            KafkaStorageError: it could not be written.
        """
        self._files.write_atomic(self._path(offset), encode_snapshot(states), sync=False)
        if self._known is not None:
            self._known.add(offset)

    def make_durable(self, offset: int) -> bool:
        """Sync the snapshot of an offset; return False if there is no readable one.

        Raises:
            KafkaStorageError: it could not be read, opened or synced.
        """
        if self._load(offset) is None:
            return False
        file = self._files.open_log(self._path(offset))
        try:
            file.sync_now()
        finally:
            file.close()
        return True

    def load_newest(self, up_to: int, above: int) -> tuple[int, ProducerStates]:
        """Return the newest readable state from ``above`` to ``up_to``, with its offset; else an empty one.

        Damaged snapshots are removed.
        """
        for offset in reversed(self.offsets()):
            if above <= offset <= up_to:
                states = self._load(offset)
                if states is not None:
                    return offset, states
        return above, ProducerStates()

    def _load(self, offset: int) -> ProducerStates | None:
        try:
            data = self._files.read_bytes(self._path(offset))
            return None if data is None else ProducerStates(decode_snapshot(data))
        except (CorruptMessageError, OversizedFileError) as error:
            _logger.warning("%s: %s; removing it", self._path(offset), error.message)
            self.delete(offset)
            return None

    def delete(self, offset: int) -> None:
        """Remove the snapshot of an offset; a missing one is fine."""
        self._files.unlink(self._path(offset))
        if self._known is not None:
            self._known.discard(offset)

    def _path(self, offset: int) -> str:
        return segment_path(self._directory, offset, SNAPSHOT)


def offset_of_name(name: str, directory: str) -> int:
    """Return the offset in a file's name, before the first dot.

    Raises:
        KafkaStorageError: there is no number; like Kafka, refuse to load the log.
    """
    offset = whole_number_of(name.partition(".")[0])
    if offset is None:
        raise KafkaStorageError(
            f"{directory}/{name} is no file of a log: its name does not begin with an offset; move it away"
        )
    return offset
