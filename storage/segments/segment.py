"""One segment: a ``.log`` of batches, its two indexes and, if transactions were aborted, a ``.txnindex``.

The files are named after the base offset, which is at most the first offset inside. The last segment of a log
is active: appends go there. The others are closed; one that nobody reads keeps no file open and nothing in
memory (``release``).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.values import Buffer
from splashdam.record.batch import BatchHeader
from splashdam.storage.files.disk import Files
from splashdam.storage.files.log_file import LogFile
from splashdam.storage.segments.batch_scan import Head, iter_heads, iter_sound_batches
from splashdam.storage.segments.indexes import (
    MAX_RELATIVE_OFFSET,
    NO_TIMESTAMP,
    IndexFile,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)
from splashdam.storage.settings import LogSettings

_logger = logging.getLogger(__name__)

LOG, INDEX, TIME_INDEX, TXN_INDEX = ".log", ".index", ".timeindex", ".txnindex"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
SNAPSHOT = ".snapshot"
"""Producer state at a base offset; see ``producers/snapshots.py``."""
DELETED, CLEANED, SWAP = ".deleted", ".cleaned", ".swap"
"""Added to the others: a file to be unlinked, a copy being written, a complete copy in use."""


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """``<directory>/<base offset in 20 digits><suffix>``."""
    return f"{directory}/{base_offset:020d}{suffix}"


_NEWEST = 8
"""Batches at the end of a segment whose positions are kept: those of some producers between two reads."""


class LogSegment:
    """One segment; offsets are absolute, positions are bytes in its ``.log``."""

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        settings: LogSettings,
        created_ms: int,
        *,
        suffix: str = "",
    ) -> None:
        self.base_offset = base_offset
        self._created_ms = created_ms
        self._files = files
        self._directory = directory
        self._settings = settings
        self._log_path = segment_path(directory, base_offset, LOG + suffix)
        self._roll_after_ms = settings.roll_after_ms(self._log_path)
        self._log: LogFile | None = None
        self._closed_size = files.size_bytes(self._log_path) or 0
        limit = settings.segment_index_bytes
        self.offset_index = OffsetIndex(
            files, segment_path(directory, base_offset, INDEX + suffix), base_offset, limit
        )
        self.time_index = TimeIndex(
            files, segment_path(directory, base_offset, TIME_INDEX + suffix), base_offset, limit
        )
        self.txn_index = TransactionIndex(files, segment_path(directory, base_offset, TXN_INDEX + suffix))
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._knows_max_timestamp = self._closed_size == 0
        self._first_timestamp: int | None = None
        self._has_deferred_sync = False  # its files may not be on stable storage, even if they are closed
        # The last batches appended, up to the end: most reads want these, and need not walk from the index.
        # What `Head` takes: to make one costs a small append a tenth.
        self._newest: deque[tuple[int, int, int, int, int]] = deque(maxlen=_NEWEST)

    def __repr__(self) -> str:
        return f"LogSegment({self._log_path}, {self.size_bytes} bytes)"

    def reconfigure(self, settings: LogSettings) -> None:
        """Use other settings from now on; the limit of the index files stays."""
        self._settings = settings
        self._roll_after_ms = settings.roll_after_ms(self._log_path)

    @property
    def size_bytes(self) -> int:
        return self._closed_size if self._log is None else self._log.end

    @property
    def log(self) -> LogFile:
        """The ``.log``, opened at its first use.

        Raises:
            KafkaStorageError: it cannot be opened.
        """
        if self._log is None:
            self._log = self._files.open_log(self._log_path)
        return self._log

    @property
    def knows_max_timestamp(self) -> bool:
        """Whether ``max_timestamp`` is known; otherwise it has to be read from both indexes."""
        return self._knows_max_timestamp

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of a record in the segment, -1 without records or timestamps."""
        self._find_max_timestamp()
        return self._max_timestamp

    @property
    def largest_timestamp(self) -> int:
        """The timestamp for retention: the largest of the records, or of the file if they have none."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.modified_ms

    @property
    def modified_ms(self) -> int:
        """When the log was last written, milliseconds since the epoch."""
        return self._files.modified_ms(self._log_path) or 0

    @property
    def is_synced(self) -> bool:
        """Whether the log and its indexes are on stable storage."""
        log_is_synced = not self._has_deferred_sync and (self._log is None or self._log.is_synced)
        return log_is_synced and all(file.is_synced for file in self._index_files())

    def _index_files(self) -> tuple[IndexFile, ...]:
        return self.offset_index.file, self.time_index.file, self.txn_index.file

    def create(self) -> None:
        """Create the empty files of a new segment; leftovers of that name are emptied.

        Raises:
            KafkaStorageError: one of them could not be created; none is left.
        """
        try:
            self._log = self._files.open_log(self._log_path, create=True)
            if self._log.end:
                self._log.truncate(0)
            self.offset_index.reset()
            self.time_index.reset()
            self.txn_index.reset()
        except BaseException:
            self.delete()
            raise
        self._knows_max_timestamp = True
        self.close_synced_files()

    # --- append ---------------------------------------------------------------------------------------------

    def must_roll(self, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether the next batch needs a new segment, for size, age, a full index or its relative offset."""
        # Not ``size_bytes``, which would be one call more for every batch.
        size = self._closed_size if self._log is None else self._log.end
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if not size:
            return False
        if size > self._settings.segment_bytes - size_bytes:
            return True
        if self.offset_index.is_full or self.time_index.is_full:
            return True
        # Kafka's rule: an old log that is copied at once rolls where its original did.
        if self._first_timestamp is not None and self._first_timestamp >= 0:
            age_ms = max_timestamp - self._first_timestamp
        else:
            age_ms = now_ms - self._created_ms
        return age_ms > self._roll_after_ms

    def append(
        self, buffers: Sequence[Buffer], base_offset: int, last_offset: int, max_timestamp: int
    ) -> None:
        """Write one batch, all of it or nothing, and index it.

        Raises:
            KafkaStorageError: the disk refused the batch; it is not in the log.
        """
        log = self._log or self.log  # the property would be one call more for every batch
        position = log.end
        log.append(buffers)
        self._newest.append((position, log.end - position, base_offset, last_offset, max_timestamp))
        if self._first_timestamp is None and position == 0:
            self._first_timestamp = max_timestamp
        self.index_batch(position, last_offset, max_timestamp)

    def index_batch(self, position: int, last_offset: int, max_timestamp: int) -> None:
        """Add the batch at ``position`` to the indexes if it is more than the interval behind the last entry.

        The rule depends only on batches and their positions, so a rebuild after any number of restarts gives
        the same entries. (Kafka's byte counter starts at 0 again with the broker.)
        """
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if position - self.offset_index.last_position > self._settings.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)

    def append_final_time_entry(self) -> None:
        """Index the largest timestamp, as Kafka does when it closes a segment."""
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)

    def prepare_for_append(self) -> None:
        """Prepare a loaded segment to be the active one.

        Raises:
            KafkaStorageError: the indexes could not be cut.
        """
        self._find_max_timestamp()
        # Without the zeros of preallocated indexes and the final time entry: the entries to come equal those
        # of a rebuild.
        self.offset_index.trim()
        self.time_index.drop_after(
            self.offset_index.last_offset if len(self.offset_index) else self.base_offset - 1
        )
        if self._first_timestamp is None and self.size_bytes:
            self._first_timestamp = next(iter_heads(self.log, 0, self.size_bytes)).max_timestamp

    # --- read -----------------------------------------------------------------------------------------------

    def find(self, offset: int) -> Head | None:
        """Return the first batch whose last offset is at least ``offset``, or None.

        Raises:
            CorruptMessageError: the log is damaged.
            KafkaStorageError: it cannot be read.
        """
        newest = self._newest
        is_new = bool(newest) and Head._make(newest[0]).base_offset <= offset
        heads: Iterator[Head] = map(Head._make, newest) if is_new else self.heads_from(offset)
        return next((head for head in heads if head.last_offset >= offset), None)

    def heads_from(self, offset: int) -> Iterator[Head]:
        """Iterate over the batches, from one at or before ``offset`` to the end of the segment."""
        position = self.offset_index.lookup(offset)
        # A damaged index must not hide records: without it the segment is read from its start.
        if position and not self._leads_to(position, offset):
            _logger.warning(
                "%s is damaged and ignored; delete it while the broker is stopped to have it rebuilt",
                self.offset_index.file.path,
            )
            self.offset_index.ignore()
            position = 0
        return iter_heads(self.log, position, self.size_bytes)

    def _leads_to(self, position: int, offset: int) -> bool:
        """Whether a batch at or before ``offset`` starts at ``position``."""
        if not 0 < position < self.size_bytes:
            return False
        try:
            head = next(iter_heads(self.log, position, self.size_bytes), None)
        except CorruptMessageError:
            return False
        return head is not None and self.base_offset <= head.base_offset <= offset

    def next_offset(self) -> int:
        """Return the offset after the last batch, or the base offset of an empty segment.

        Raises:
            CorruptMessageError: the file does not end with a whole batch.
        """
        offset = self.base_offset
        if self.size_bytes:  # an empty log need not be opened
            for head in iter_heads(self.log, self._last_known_position, self.size_bytes):
                offset = head.last_offset + 1
        return offset

    def reaches(self, offset: int) -> bool:
        """Whether the segment has a batch at or after ``offset``; its tail may be damaged."""
        for position in (self._last_known_position, 0):  # the index may point to lost batches
            with suppress(CorruptMessageError):
                heads = iter_heads(self.log, position, self.size_bytes)
                return any(head.last_offset >= offset for head in heads)
        return False

    @property
    def _last_known_position(self) -> int:
        """Position of the last indexed batch; 0 if the file no longer reaches up to it."""
        return self.offset_index.last_position if self.offset_index.is_sane(self.size_bytes) else 0

    # --- load and repair ------------------------------------------------------------------------------------

    def recover(
        self,
        on_batch: Callable[[BatchHeader, memoryview], None],
        before_cut: Callable[[], None] = lambda: None,
    ) -> int:
        """Check every batch, cut the log at the first bad one, and rebuild both indexes.

        A batch is bad if it is torn, zero-filled, has a wrong checksum, or an offset that does not rise.
        ``.txnindex`` is emptied. A closed segment still needs its final time entry afterwards.

        Args:
            on_batch: called with each good batch, in order.
            before_cut: called before the log is cut, if it has to be.

        Returns:
            The number of bytes cut off.

        Raises:
            KafkaStorageError: the files could not be read or written.
        """
        # A killed broker may have left these bytes in the page cache alone.
        self.log.mark_unsynced()
        self._newest.clear()
        self.offset_index.reset()
        self.time_index.reset()
        self.txn_index.reset()
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._knows_max_timestamp = True
        valid_end, next_offset = 0, self.base_offset
        for position, header, batch in iter_sound_batches(self.log):
            if (
                header.base_offset < next_offset
                or header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET
            ):
                break
            self.index_batch(position, header.last_offset, header.max_timestamp)
            on_batch(header, batch)
            valid_end, next_offset = position + header.size_bytes, header.next_offset
        cut = self.log.end - valid_end
        if cut:
            before_cut()
            self.log.truncate(valid_end)
        return cut

    def defer_sync(self) -> None:
        """Close the files, and let the next flush open and sync them all.

        Raises:
            KafkaStorageError: pending index entries still cannot be written.
        """
        for file in self._index_files():
            file.write_pending()
        self._has_deferred_sync = True
        for file in self._index_files():
            file.close()
        self._close_log()

    def cut(self, head: Head) -> None:
        """Remove a batch and all after it.

        Raises:
            KafkaStorageError: the disk refuses; the batches are all there.
        """
        self._cut_at(head.position, head.base_offset)

    def cut_behind(self, offset: int) -> int:
        """Cut what follows the batches below ``offset``, if they reach up to it, and sync.

        Returns:
            The number of bytes cut off.

        Raises:
            KafkaStorageError: the files could not be read or written.
        """
        for position in (self._last_known_position, 0):
            end, reached = position, self.base_offset
            with suppress(CorruptMessageError):
                for head in iter_heads(self.log, position, self.size_bytes):
                    if head.last_offset >= offset:
                        break
                    end, reached = head.position + head.size_bytes, head.last_offset + 1
            if reached == offset:
                break
        cut = self.size_bytes - end if reached == offset else 0
        if cut:
            self._cut_at(end, offset)
            for file in self.unsynced_files():
                file.sync_now()
        return cut

    def _cut_at(self, position: int, offset: int) -> None:
        self._newest.clear()
        # The log last: if the disk refuses a step, the log still ends where its owner thinks it does.
        self.offset_index.drop_from(position)
        self.txn_index.drop_from(offset)
        self.time_index.drop_after(
            self.offset_index.last_offset if len(self.offset_index) else self.base_offset - 1
        )
        self.log.truncate(position)
        self._knows_max_timestamp = False
        self._first_timestamp = None

    def has_indexes(self) -> bool:
        """Whether both index files exist."""
        return self.offset_index.file.size_bytes is not None and self.time_index.file.size_bytes is not None

    # --- flush and end --------------------------------------------------------------------------------------

    def unsynced_files(self) -> list[LogFile]:
        """Return the files with bytes that are not on stable storage yet.

        Raises:
            KafkaStorageError: pending index entries still cannot be written.
        """
        if self._has_deferred_sync:
            for file in self._index_files():
                file.mark_unsynced()
            self.log.mark_unsynced()
            self._has_deferred_sync = False
        files = [file.write_pending() for file in self._index_files()]
        log = self._log
        return [file for file in (log, *files) if file is not None and not file.is_synced]

    def close_synced_files(self) -> None:
        """Close the files that are synced, so that an idle partition needs no descriptors."""
        if self._log is not None and self._log.is_synced:
            self._close_log()
        for file in self._index_files():
            if file.is_synced:
                file.close()

    def release(self) -> None:
        """Close the files and drop the indexes from memory; the next use opens and loads them again."""
        for index in (self.offset_index, self.time_index, self.txn_index):
            index.unload()
        self._newest.clear()
        self._close_log()

    def discard(self) -> None:
        """Release a segment that is being removed: none of its files needs a sync any more."""
        self._has_deferred_sync = False
        if self._log is not None:
            self._log.discard()
        for file in self._index_files():
            file.discard()
        self.release()

    def paths(self) -> list[str]:
        """The paths of its files, the ``.log`` first; some may not exist."""
        return [self._log_path, *(file.path for file in self._index_files())]

    def move_to(self, suffix: str) -> None:
        """Rename the files so that their names end with ``suffix``; files of those names are replaced.

        Raises:
            KafkaStorageError: a file could not be renamed. The segment stays usable; call again to go on.
        """
        self.release()
        # The .log first: as long as there is a .log.swap, a start takes files with the final names for its
        # sources, and removes them (``recovery.py``).
        self._log_path = self._moved(self._log_path, LOG + suffix)
        for file, kind in zip(self._index_files(), (INDEX, TIME_INDEX, TXN_INDEX), strict=True):
            file.path = self._moved(file.path, kind + suffix)

    def _moved(self, old: str, suffix: str) -> str:
        new = segment_path(self._directory, self.base_offset, suffix)
        if new != old:
            if self._files.size_bytes(old) is None:
                self._files.unlink(new)  # a file of that name belongs to another segment
            else:
                self._files.rename(old, new)
        return new

    def delete(self) -> None:
        """Remove the files.

        Raises:
            KafkaStorageError: one could not be removed.
        """
        self.discard()
        # The .log first: after a crash the rest is no segment, and the next start removes it.
        for path in self.paths():
            self._files.unlink(path)

    def _close_log(self) -> None:
        self._closed_size = self.size_bytes
        log, self._log = self._log, None
        if log is not None:
            log.close()

    def _find_max_timestamp(self) -> None:
        """Find the largest timestamp of a loaded segment: the last time entry, and the batches after it."""
        if self._knows_max_timestamp:
            return
        times, offsets = self.time_index, self.offset_index
        self._max_timestamp, self._max_timestamp_offset = times.last_timestamp, times.last_offset
        # A time entry was offered with each offset entry, so only batches after the last offset entry are
        # unknown; all are if there is no time index.
        position = offsets.last_position if len(times) else 0
        for head in iter_heads(self.log, position, self.size_bytes):
            if head.max_timestamp > self._max_timestamp:
                self._max_timestamp = head.max_timestamp
                self._max_timestamp_offset = head.last_offset
        self._knows_max_timestamp = True
