"""``leader-epoch-checkpoint``: the first offset of each leader epoch of a partition.

Format: docs/format/checkpoints.md.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.storage.directories.checkpoints import decode_lines, encode_lines
from splashdam.storage.files.disk import Files
from splashdam.storage.files.log_file import OversizedFileError

FILE_NAME = "leader-epoch-checkpoint"
_logger = logging.getLogger(__name__)


class EpochEnd(NamedTuple):
    """The largest known epoch that is not above the one asked for, and its end offset; -1 if unknown."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """Rising pairs of epoch and first offset, written to disk at every change.

    The first pair is synced with the first flush of the log. Until then nothing is lost with the file,
    because recovery finds the epoch in the batches; and 1,000 new partitions do not wait for 2,000 syncs.

    Attributes:
        latest: the newest epoch, -1 if there is none; an attribute, as each append reads it.
        written: the newest epoch on disk; a newer one has begun, but has no record yet.
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
        """Pairs of epoch and first offset."""
        return tuple(self._entries)

    def epoch_of(self, offset: int) -> int:
        """Return the epoch in which ``offset`` was written; -1 if unknown."""
        return max((epoch for epoch, start in self._entries if start <= offset), default=-1)

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return where an epoch ends: where the next one begins, or at the end of the log.

        For an epoch without records here, return the largest epoch below it and its end; for one below all
        others, that epoch itself and the start of the first. For a newer one than all, return (-1, -1).
        """
        if epoch < 0 or epoch > self.latest:
            return EpochEnd(-1, -1)
        known = max((each for each, _ in self._entries if each <= epoch), default=epoch)
        later = (start for each, start in self._entries if each > epoch)
        return EpochEnd(known, next(later, log_end_offset))

    def begin(self, epoch: int, start_offset: int) -> None:
        """Begin a newer epoch at the end of the log; a known one changes nothing.

        The epoch is written with its first record (``assign``), since a start drops an epoch without records.
        So a broker that becomes leader of 1,000 partitions does not wait for the disk.
        """
        if epoch > self.latest:
            self._set(self._with(epoch, start_offset))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin a newer epoch at an offset and write it to disk; a known one changes nothing.

        Raises:
            KafkaStorageError: it could not be written and has not begun.
        """
        if epoch > self.latest:
            self._replace(self._with(epoch, start_offset))
        elif epoch > self.written:
            self._replace(self._entries)

    def found(self, epoch: int, offset: int) -> None:
        """Note the epoch of a batch that recovery finds in the log.

        Raises:
            KafkaStorageError: a change could not be written.
        """
        # A power cut can bring back batches that were truncated, while the file keeps the epoch that began in
        # their place. The batches are right: a follower that believed the file would never notice that its
        # log differs from the leader's.
        if 0 <= epoch < self.latest and self.epoch_of(offset) > epoch:
            self._replace([entry for entry in self._entries if entry[0] <= epoch or entry[1] > offset])
        self.assign(epoch, offset)

    def _with(self, epoch: int, start_offset: int) -> list[tuple[int, int]]:
        # An epoch without records leaves no trace: its successor replaces it.
        return [*(entry for entry in self._entries if entry[1] < start_offset), (epoch, start_offset)]

    def cut(self, log_start_offset: int, log_end_offset: int) -> None:
        """Drop the epochs that begin at or after the end of the log, and those that ended before its start.

        Raises:
            KafkaStorageError: the change could not be written.
        """
        self._keep([entry for entry in self._entries if entry[1] < log_end_offset], log_start_offset)

    def cut_start(self, log_start_offset: int) -> None:
        """Drop the epochs that ended before the log start offset; log a refusal of the disk."""
        try:
            self._keep(list(self._entries), log_start_offset)
        except KafkaStorageError as error:
            # On a full disk segments must still be removable, to make room; a start drops the entries, too.
            _logger.warning("%s", error.message)

    def _keep(self, kept: list[tuple[int, int]], log_start_offset: int) -> None:
        while len(kept) > 1 and kept[1][1] <= log_start_offset:
            del kept[0]
        if kept and kept[0][1] < log_start_offset:
            kept[0] = (kept[0][0], log_start_offset)
        if kept != self._entries:
            self._replace(kept)

    def sync(self) -> None:
        """Bring the file to stable storage if it is not there yet.

        Raises:
            KafkaStorageError: it could not be written.
        """
        if not self._is_synced:
            self._replace(self._entries)

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        lines = encode_lines(f"{epoch} {start}" for epoch, start in entries)
        is_needed = self.written >= 0  # else the file holds nothing that is not in the batches
        self._files.write_atomic(self._path, lines, sync=is_needed)
        self._is_synced = is_needed
        self._set(entries)
        self.written = self.latest

    def _set(self, entries: list[tuple[int, int]]) -> None:
        self._entries = entries
        self.latest = entries[-1][0] if entries else -1

    def _read(self) -> list[tuple[int, int]]:
        try:
            data = self._files.read_bytes(self._path)
        except OversizedFileError as error:
            _logger.warning("%s; going on without the leader epochs", error.message)
            return []
        if data is None:
            return []
        try:
            pairs = [line.split() for line in decode_lines(data, self._path)]
            return [(int(epoch), int(start)) for epoch, start in pairs]
        except (KafkaStorageError, ValueError) as error:
            _logger.warning("%s: %s; going on without the leader epochs", self._path, error)
            return []
