"""``leader-epoch-checkpoint``: where each leader epoch of a partition begins.

Format: docs/format/checkpoints.md.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.storage.directories.checkpoints import decode_lines, encode_lines
from splashdam.storage.files.disk import Files

FILE_NAME = "leader-epoch-checkpoint"
_logger = logging.getLogger(__name__)


class EpochEnd(NamedTuple):
    """The largest epoch known that is not above the one asked for, and where it ends; -1 for not known."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """Rising pairs of epoch and first offset, on disk at every change.

    The first pair of all is on stable storage with the first flush of the log: until then recovery
    finds it in the batches, and a thousand new partitions would wait for two thousand syncs.

    Attributes:
        latest: the newest epoch, -1 if there is none; an attribute, as each append reads it.
        written: the newest epoch on disk; a later one has begun and no record yet.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{FILE_NAME}"
        self._entries: list[tuple[int, int]] = []
        self.latest = -1
        self._set(self._read())
        self.written = self.latest
        self._is_synced = True

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """All pairs of epoch and first offset."""
        return tuple(self._entries)

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote ``offset``, -1 where it is not known."""
        return max((epoch for epoch, start in self._entries if start <= offset), default=-1)

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Where an epoch ends: where the next one begins, or the log ends.

        Of an epoch that wrote nothing here, the largest one below is told, and where that ends; of one below
        all others, the start of those. Both are -1 for an epoch that is newer than all here.
        """
        if epoch < 0 or epoch > self.latest:
            return EpochEnd(-1, -1)
        known = max((each for each, _ in self._entries if each <= epoch), default=epoch)
        later = (start for each, start in self._entries if each > epoch)
        return EpochEnd(known, next(later, log_end_offset))

    def begin(self, epoch: int, start_offset: int) -> None:
        """A newer epoch begins at the end of the log; one that is known changes nothing.

        It is not written before its first record is (``assign``): a start would drop it. So a broker that
        begins to lead a thousand partitions waits for no disk.
        """
        if epoch > self.latest:
            self._set(self._with(epoch, start_offset))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begins a newer epoch at an offset for good; one that is known changes nothing.

        Raises:
            KafkaStorageError: it could not be written, and is not assigned.
        """
        if epoch > self.latest:
            self._replace(self._with(epoch, start_offset))
        elif epoch > self.written:
            self._replace(self._entries)

    def found(self, epoch: int, offset: int) -> None:
        """Takes note of the epoch of a batch that recovery finds in the log.

        After a truncation the file may be ahead of the log: a power cut brings back batches that were cut
        off, and keeps the epoch that began in their place. Then the batches are right. A follower that
        believed the file would never learn that its log differs from its leader's.

        Raises:
            KafkaStorageError: a change could not be written.
        """
        if 0 <= epoch < self.latest and self.epoch_of(offset) > epoch:
            self._replace([entry for entry in self._entries if entry[0] <= epoch or entry[1] > offset])
        self.assign(epoch, offset)

    def _with(self, epoch: int, start_offset: int) -> list[tuple[int, int]]:
        # An epoch that wrote nothing leaves no trace: its successor takes its place.
        return [*(entry for entry in self._entries if entry[1] < start_offset), (epoch, start_offset)]

    def cut(self, log_start_offset: int, log_end_offset: int) -> None:
        """Drops what lies at or behind the end of the log, and what ended before its start.

        Raises:
            KafkaStorageError: the change could not be written.
        """
        self._keep([entry for entry in self._entries if entry[1] < log_end_offset], log_start_offset)

    def cut_start(self, log_start_offset: int) -> None:
        """Drops what ended before the start of the log; what the disk refuses is written another time.

        On a full disk segments must be able to go, and a start drops these entries, too.
        """
        try:
            self._keep(list(self._entries), log_start_offset)
        except KafkaStorageError as error:
            _logger.warning("%s", error.message)

    def _keep(self, kept: list[tuple[int, int]], log_start_offset: int) -> None:
        while len(kept) > 1 and kept[1][1] <= log_start_offset:
            del kept[0]
        if kept and kept[0][1] < log_start_offset:
            kept[0] = (kept[0][0], log_start_offset)
        if kept != self._entries:
            self._replace(kept)

    def sync(self) -> None:
        """Brings to stable storage what is not there yet.

        Raises:
            KafkaStorageError: it could not be written.
        """
        if not self._is_synced:
            self._replace(self._entries)

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        lines = encode_lines(f"{epoch} {start}" for epoch, start in entries)
        self._is_synced = self.written >= 0  # else nothing is lost with the file but what batches tell
        self._files.write_atomic(self._path, lines, sync=self._is_synced)
        self._set(entries)
        self.written = self.latest

    def _set(self, entries: list[tuple[int, int]]) -> None:
        self._entries = entries
        self.latest = entries[-1][0] if entries else -1

    def _read(self) -> list[tuple[int, int]]:
        data = self._files.read_bytes(self._path)
        if data is None:
            return []
        try:
            pairs = [line.split() for line in decode_lines(data, self._path)]
            return [(int(epoch), int(start)) for epoch, start in pairs]
        except (KafkaStorageError, ValueError) as error:
            _logger.warning("%s: %s; leader epochs begin anew", self._path, error)
            return []
