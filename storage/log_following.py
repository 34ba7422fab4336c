"""What replication asks of a log: a high watermark of its own, and a cut where the leader's log differs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from splashdam.model.values import TopicPartition
from splashdam.storage.append_result import LogState
from splashdam.storage.cleaning.swapping import SegmentSwapper
from splashdam.storage.files.disk import Files
from splashdam.storage.log_appending import AppendableLog
from splashdam.storage.log_reading import Replication
from splashdam.storage.producers.replay import producers_at
from splashdam.storage.producers.state import ProducerStates
from splashdam.storage.recovery.loader import LoadedLog
from splashdam.storage.segment import LogSegment
from splashdam.storage.segment_removal import SegmentRemover
from splashdam.storage.settings import LogSettings

_logger = logging.getLogger(__name__)


class FollowingLog(AppendableLog):
    """The part of ``Log`` for those that are not alone.

    Args:
        recovered_high_watermark: as checkpointed, None where it is not. Others are those of
            ``AppendableLog``.

    Attributes:
        swapper: puts the copies that compaction makes into the place of segments.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
        loaded: LoadedLog,
        *,
        topic_id: bytes,
        recovery_point: int,
        now_ms: int,
        on_work: Callable[[], None],
        recovered_high_watermark: int | None,
    ) -> None:
        super().__init__(
            files,
            directory,
            topic_partition,
            settings,
            loaded,
            topic_id=topic_id,
            recovery_point=recovery_point,
            now_ms=now_ms,
            on_work=on_work,
        )
        self._remover = SegmentRemover(files, directory, self._on_work)
        self.swapper = SegmentSwapper(files, directory, self._segments, self._remover, self._flusher)
        self._recovered_high_watermark = recovered_high_watermark

    # --- the high watermark -----------------------------------------------------------------------------

    @property
    def high_watermark_to_keep(self) -> int:
        """What a checkpoint must say: as before, while nobody has said whether the log is replicated."""
        known, recovered = self.high_watermark, self._recovered_high_watermark
        return known if recovered is None else min(known, recovered)

    def stand_alone(self) -> None:
        """There is no other replica, or none any more: whatever is in the log can be read."""
        self.replication = None
        self._recovered_high_watermark = None
        self._undecided.clear()
        self.high_watermark = self.log_end_offset
        self._note_move()

    def begin_replication(self, replication: Replication) -> None:
        """There are other replicas: the high watermark is as checkpointed, and moves when it is told to.

        Raises:
            KafkaStorageError: what is above it cannot be read.
        """
        self.replication = replication
        recovered, self._recovered_high_watermark = self._recovered_high_watermark, None
        self._note_move()
        if recovered is None or recovered >= self.log_end_offset:
            return
        self.high_watermark = max(recovered, self.log_start_offset)
        # Markers above it may be lost with another leader, so what they end is not decided yet.
        states = producers_at(self._snapshots, self._segments.all, self.high_watermark)
        unstable = states.first_unstable_offset
        if unstable is not None:
            self._undecided.append((unstable, self.log_end_offset - 1))

    def advance_high_watermark(self, offset: int) -> bool:
        """Moves it up to ``offset``, or to the end of the log; never back. Whether it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self._note_move()
        if self._undecided:
            self._undecided = [each for each in self._undecided if each[1] >= offset]
        return True

    def _note_move(self) -> None:
        if self.moved is not None:
            self.moved[self] = None

    # --- truncation -------------------------------------------------------------------------------------

    async def wait_for_sync(self) -> None:
        """Returns when no sync is under way; nothing may be cut while the disk works on it."""
        while self._sync_under_way is not None:
            await self._sync_under_way.wait()

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Drops the batch that holds ``offset`` and all behind it; below the first segment, all there is.

        Segments go for good before the one in front is cut, so a crash leaves a log without a gap. The
        caller sees to it that no sync is under way, and checkpoints the recovery point afterwards.

        Raises:
            KafkaStorageError: the disk refuses; what is left is a log that may end later than was asked.
            IllegalStateError: the log is closed.
        """
        if self.state is not LogState.OPEN:
            self._refuse("truncation")
        if offset >= self.log_end_offset:
            self._epochs.cut(self.log_start_offset, self.log_end_offset)  # one that wrote nothing may differ
            return
        segments = self._segments.all
        if offset < segments[0].base_offset:
            self.start_anew_at(offset, now_ms=now_ms)
            return
        _logger.info("%s: truncated from %d to %d", self.directory, self.log_end_offset, offset)
        self.swapper.finish()
        self._drop_from(next((n for n, each in enumerate(segments) if each.base_offset > offset), None))
        head = self._active.find(offset)
        if head is not None:
            self._active.cut(head)
        else:
            self._active.prepare_for_append()
        self._end_at(offset if head is None else min(offset, head.base_offset))
        self.producers = producers_at(self._snapshots, self._segments.all, self.log_end_offset)
        self.producers.restart_clocks(now_ms)

    def start_anew_at(self, offset: int, *, now_ms: int) -> None:
        """Drops everything; the log is empty then, and its next record gets ``offset``.

        Raises:
            As ``truncate_to``.
        """
        if self.state is not LogState.OPEN:
            self._refuse("truncation")
        _logger.info("%s: started anew at %d, it ended at %d", self.directory, offset, self.log_end_offset)
        self.swapper.finish()
        for held in self._snapshots.offsets():
            self._snapshots.delete(held)
        self._epochs.cut(0, -1)  # none of them says anything of what comes now
        self._drop_from(1)
        first = self._segments.active
        segment = LogSegment(self._files, self.directory, offset, self.settings, now_ms)
        if segment.base_offset == first.base_offset:
            first.delete()
            segment.create()
        else:
            segment.create()  # before the other goes: a start must find a segment to tell where the log is
            first.delete()
        self._files.sync_directory(self.directory)
        self._segments.add(segment)
        self._segments.remove_first(1)
        self._active = segment
        self.log_start_offset = offset
        self.high_watermark = offset
        self._end_at(offset)
        self.producers = ProducerStates()

    def _drop_from(self, number: int | None) -> None:
        """Removes the segments from the one of this number on, the last one first."""
        removed = () if number is None else self._segments.all[number:]
        for segment in reversed(removed):
            segment.delete()
        if removed:
            self._files.sync_directory(self.directory)
            self._segments.keep_first(len(self._segments.all) - len(removed))
            self._active = self._segments.active

    def _end_at(self, end: int) -> None:
        self.log_end_offset = end
        self.log_start_offset = min(self.log_start_offset, end)
        self._kept_start = min(self._kept_start, end)
        self.high_watermark = min(self.high_watermark, end)
        self._note_move()
        self._undecided = [each for each in self._undecided if each[1] < end]
        self._epochs.cut(self.log_start_offset, end)
        self._flusher.truncate(end, self._active)
        for held in self._snapshots.offsets():
            if held > end:
                self._snapshots.delete(held)
        self._snapshot_offset = -1
