"""How a log gets to stable storage: at once, or many who wait behind one sync."""

from __future__ import annotations

import trio

from splashdam.embedded_broker.storage.append_result import LogState
from splashdam.embedded_broker.storage.files import Files
from splashdam.embedded_broker.storage.loader import LoadedLog
from splashdam.embedded_broker.storage.log_flush import FlushRound, LogFlusher
from splashdam.embedded_broker.storage.log_reading import ReadableLog
from splashdam.embedded_broker.storage.settings import LogSettings
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.options import MAX_LONG
from splashdam.model.values import TopicPartition


class FlushableLog(ReadableLog):
    """The flushing part of ``Log``."""

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
    ) -> None:
        super().__init__(directory, topic_partition, settings, loaded, topic_id=topic_id)
        self._active = loaded.segments.active
        self._flusher = LogFlusher(
            files, directory, recovery_point, loaded.epochs, names_are_safe=loaded.is_as_left
        )
        self._flushed_ms = now_ms
        self._sync_under_way: trio.Event | None = None

    @property
    def recovery_point(self) -> int:
        """Everything below is on stable storage."""
        return self._flusher.recovery_point

    @property
    def needs_flush(self) -> bool:
        """Whether a closed segment waits to be brought to stable storage."""
        return self._flusher.needs_flush

    @property
    def is_synced(self) -> bool:
        """Whether everything in the log is on stable storage."""
        return self.recovery_point >= self.log_end_offset

    @property
    def must_flush(self) -> bool:
        """Whether ``flush.messages`` says that the last append is not to be answered before a flush."""
        return self.log_end_offset - self._flusher.recovery_point >= self.settings.flush_messages

    def is_due(self, wall_ms: int) -> bool:
        """Whether ``flush.ms`` has passed since the last flush, and something was written.

        A clock that was put back says nothing of how long that was, so it counts as passed.
        """
        return (
            self.log_end_offset > self.recovery_point
            and not 0 <= wall_ms - self._flushed_ms < self.settings.flush_ms
            and self.settings.flush_ms < MAX_LONG
            and self.state is LogState.OPEN
        )

    def flush(self) -> None:
        """Brings the log to stable storage and moves the recovery point; blocks.

        Raises:
            KafkaStorageError: it could not. After a failed sync the log takes no more appends: what the disk
                has is unknown, and a second try would prove nothing.
        """
        round_ = self._begin_flush()
        try:
            round_.run()
        except KafkaStorageError:
            self._fail()
            raise
        self._end_flush(round_)

    async def sync(self, wall_ms: int | None = None) -> None:
        """As ``flush``, while others go on using the log; a closed one has nothing left to flush.

        Whoever comes while a sync is under way waits for its end; the first of those then syncs for all of
        them.

        Args:
            wall_ms: wall clock, milliseconds since the epoch, from which ``flush.ms`` counts anew.

        Raises:
            KafkaStorageError: as ``flush``.
        """
        wanted = self.log_end_offset
        while self._sync_under_way is not None:
            await self._sync_under_way.wait()
            if self.recovery_point >= wanted:  # whoever led that one may lead the next already
                return
        if self._is_closed() or (self.recovery_point >= wanted and not self.needs_flush):
            return
        round_ = self._begin_flush()
        done = self._sync_under_way = trio.Event()
        try:
            await round_.run_async()
        except KafkaStorageError:
            if self._is_closed():  # meanwhile: closing flushed it, or it is deleted
                return
            self._fail()
            raise
        finally:
            self._sync_under_way = None
            done.set()
        self._end_flush(round_)
        self._flushed_ms = self._flushed_ms if wall_ms is None else wall_ms

    def _fail(self) -> None:
        self.state = LogState.FAILED
        if self.replication is not None:
            self.replication.log_failed()

    def _begin_flush(self) -> FlushRound:
        if self.state is not LogState.OPEN:
            self._refuse("flush")
        return self._flusher.begin(self._active, self.log_end_offset)

    def _end_flush(self, done: FlushRound) -> None:
        if self.state is not LogState.OPEN:  # closed meanwhile, or another flush failed: nothing is proven
            return
        for closed in self._flusher.end(done):
            self._segments.touch(closed)
