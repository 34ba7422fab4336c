"""The follower's side of replication: one task for each leader, which fetches by the Kafka protocol.

Fetched batches are appended as they are; the high watermark comes with the next fetch. Whatever fails is
tried again after ``replica.fetch.backoff.ms``, for a single partition if only that failed.

Truncation (KIP-101, KIP-595): the leader compares the follower's last epoch and offset with its own epochs,
and answers with the last epoch that it knows up to there and its end. The follower truncates its log to that
end or, if it does not know the epoch, to the end of its own last epoch below, and fetches again. If the
leader has deleted what the follower needs next, the follower starts anew at the leader's log start offset.

Fetch sessions (KIP-227): after one full request only what has changed is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import attrs
import trio

from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    KafkaStorageError,
    OffsetOutOfRangeError,
    error_for,
)
from splashdam.model.errors import KafkaError, ProtocolError, message_of
from splashdam.model.values import TopicPartition
from splashdam.model.version import VERSION
from splashdam.net.clock import Clock
from splashdam.net.connection.connection import Connection
from splashdam.storage.leader_epochs import EpochEnd
from splashdam.storage.log import EARLIEST, LATEST, Log, LogState
from splashdam.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from splashdam.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from splashdam.embedded_broker.configs.broker_settings import BrokerSettings

_log = logging.getLogger(__name__)

_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


_GONE = (LogState.FAILED, LogState.CLOSED)
"""The log is on a failed disk, or was deleted."""


class FetchingBroker(Protocol):
    """What a fetcher needs of its broker."""

    @property
    def node_id(self) -> int: ...

    @property
    def broker_epoch(self) -> int:
        """The broker epoch of its registration."""
        ...

    @property
    def settings(self) -> BrokerSettings: ...

    @property
    def clock(self) -> Clock:
        """For deadlines and timestamps."""
        ...

    async def connect(self, node_id: int) -> trio.abc.Stream:
        """Open a stream to another broker.

        Raises:
            KafkaConnectionError: the broker cannot be reached.
        """
        ...

    def changed(self, topic_partition: TopicPartition) -> None:
        """The log start offset has moved: wake consumers that wait for this partition."""
        ...

    def high_watermark_moved(self, topic_partition: TopicPartition) -> None:
        """Wake consumers that wait for this partition."""
        ...

    def truncating(self, log: Log, offset: int) -> None:
        """Checkpoint that nothing from ``offset`` on is flushed, before a log is truncated there."""
        ...

    def truncated(self, log: Log) -> None:
        """Make the truncation of a log durable before it grows again.

        Raises:
            KafkaStorageError: the write failed.
        """
        ...

    def finish_truncation(self, log: Log) -> None:
        """Finish a truncation that the disk has interrupted, if there is one; raises KafkaStorageError."""
        ...


@attrs.define(eq=False)
class FollowedPartition:
    """A partition that is followed, in one leader epoch.

    Attributes:
        log: its log.
        leader_epoch: of the present leader.
        paused_until_ms: it is not fetched before.
        asked_offset: the log end offset at the last request.
    """

    log: Log
    leader_epoch: int
    paused_until_ms: float = 0.0
    asked_offset: int = -1


class LeaderFetcher:
    """Fetches from one other broker.

    Changes are collected as they happen, so a request costs what has changed since the last one, and
    thousands of idle partitions cost nothing.

    Args:
        leader_id: node id of the other broker.
        follower: this broker.
    """

    def __init__(self, leader_id: int, follower: FetchingBroker) -> None:
        self._leader_id = leader_id
        self._follower = follower
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        self._by_id: dict[tuple[bytes, int], TopicPartition] = {}
        self._changed_partitions: dict[TopicPartition, None] = {}  # may differ from what the leader knows
        self._unwanted: dict[TopicPartition, None] = {}  # to be removed from the session
        self._paused: dict[TopicPartition, FollowedPartition] = {}
        self._changed = trio.Event()
        self._session = FetchSession()

    def follow(self, log: Log, leader_epoch: int) -> None:
        """Follow a partition in this leader epoch."""
        before = self._followed.get(log.topic_partition)
        if before is None or before.log is not log or before.leader_epoch != leader_epoch:
            self._paused.pop(log.topic_partition, None)
            if before is not None:  # a topic that was deleted and created again has another id
                self._by_id.pop((before.log.topic_id, log.topic_partition.partition), None)
            self._followed[log.topic_partition] = FollowedPartition(log, leader_epoch)
            self._by_id[log.topic_id, log.topic_partition.partition] = log.topic_partition
            self._changed_partitions[log.topic_partition] = None
            self._changed.set()

    def unfollow(self, topic_partition: TopicPartition) -> None:
        """Stop following a partition; answers that are still in flight are ignored."""
        followed = self._followed.pop(topic_partition, None)
        if followed is not None:
            self._by_id.pop((followed.log.topic_id, topic_partition.partition), None)
            self._paused.pop(topic_partition, None)
            self._changed_partitions.pop(topic_partition, None)
            self._unwanted[topic_partition] = None

    def report(self, topic_partition: TopicPartition) -> None:
        """Send the log start offset and end offset with the next request, if they have changed."""
        if topic_partition in self._followed:
            self._changed_partitions[topic_partition] = None

    @property
    def _backoff_ms(self) -> int:
        return self._follower.settings.replication.replica_fetch_backoff_ms

    async def run(self) -> None:
        """Fetch for ever; there is no connection while nothing is followed."""
        while True:
            self._changed = trio.Event()
            if not self._followed:
                await self._changed.wait()
            try:
                await self._fetch_from_leader()
            except KafkaError as error:
                _log.info("fetching from node %d: %s", self._leader_id, message_of(error))
            except Exception:
                _log.exception("fetching from node %d failed", self._leader_id)
            if self._followed:
                await trio.sleep(self._backoff_ms / 1000)

    async def _fetch_from_leader(self) -> None:
        """Fetch over one connection until nothing is followed any more, or something fails."""
        follower, settings = self._follower, self._follower.settings
        connection = Connection(
            await follower.connect(self._leader_id),
            clock=follower.clock,
            client_id=f"broker-{follower.node_id}-fetcher-{self._leader_id}",
            request_timeout_ms=settings.replication.replica_socket_timeout_ms,
            max_in_flight_requests=1,
            max_response_bytes=settings.replication.replica_fetch_response_max_bytes
            + settings.limits.socket_request_max_bytes,
            peer=f"node {self._leader_id}",
        )
        self._session = FetchSession()
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            await nursery.start(connection.run)
            try:
                await connection.negotiate("splashdam-broker", VERSION)
                while self._followed:
                    await self.step(connection)
            except Exception as error:  # leaves as itself below, not wrapped in the nursery's group
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def step(self, connection: Connection) -> None:
        """Send one request and handle its answer; or wait, if all partitions are paused.

        Raises:
            KafkaError: the connection is broken, or the leader refuses the whole request.
        """
        self._resume()
        if len(self._paused) == len(self._followed):
            await self._wait_resumed()
            return
        request = self._request()
        wanted, unwanted = self._next(), self._unwanted
        # Before the request: what changes while it is under way goes into the next one.
        self._changed_partitions, self._unwanted = {}, {}
        self._session.fill(request, wanted, unwanted)
        response = await connection.request(request)
        if response.error_code in _SESSION_ERRORS:
            self._session.lost()
            return
        if response.error_code:
            raise error_for(response.error_code, "fetch")
        self._session.answered(response.session_id)
        for topic_partition, followed, data in self._partitions_of(response):
            await self._handle(connection, topic_partition, followed, data)

    async def _wait_resumed(self) -> None:
        """Wait until a pause ends; not at all if nothing is followed."""
        self._changed = trio.Event()
        now_ms = self._follower.clock.now_ms()
        until_ms = min((each.paused_until_ms for each in self._paused.values()), default=now_ms)
        with trio.move_on_after(max(0.0, until_ms - now_ms) / 1000):
            await self._changed.wait()

    def _failed(self, where: TopicPartition, followed: FollowedPartition, error: KafkaError) -> None:
        """Log why a partition cannot be fetched, and try it again later; an earlier leader's is forgotten."""
        if self._followed.get(where) is followed:
            level = logging.WARNING if isinstance(error, KafkaStorageError) else logging.INFO
            _log.log(level, "fetching %s from node %d: %s", where, self._leader_id, message_of(error))
            self._pause(where, followed)

    def _pause(self, where: TopicPartition, followed: FollowedPartition) -> None:
        """Do not fetch a partition until the backoff is over."""
        if self._followed.get(where) is followed:
            followed.paused_until_ms = self._follower.clock.now_ms() + self._backoff_ms
            self._paused[where] = followed
            self._unwanted[where] = None

    def _resume(self) -> None:
        if not self._paused:
            return
        now_ms = self._follower.clock.now_ms()
        for where in [each for each, paused in self._paused.items() if paused.paused_until_ms <= now_ms]:
            followed = self._paused.pop(where)
            self._changed_partitions[where] = None
            # Before it fetches: the fetch offset tells the leader that it has all records below.
            try:
                self._follower.finish_truncation(followed.log)
            except BrokerResponseError as error:
                self._failed(where, followed, error)

    def _next(self) -> dict[TopicPartition, Wanted]:
        """Return the partitions to send: all of them in a new session, else those that may have changed."""
        for each in list(self._followed if self._session.is_new else self._changed_partitions):
            if self._followed[each].log.state in _GONE:
                self.unfollow(each)
        # Only what has changed is sent: ten thousand idle partitions that were checked for every fetch took a
        # quarter of a core (docs/decisions/replication.md).
        changed = self._followed if self._session.is_new else self._changed_partitions
        return {each: self._wanted(self._followed[each]) for each in changed if each not in self._paused}

    def _request(self) -> FetchRequest:
        settings = self._follower.settings
        return FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._follower.node_id, replica_epoch=self._follower.broker_epoch
            ),
            max_wait_ms=settings.replication.replica_fetch_wait_max_ms,
            min_bytes=settings.replication.replica_fetch_min_bytes,
            max_bytes=settings.replication.replica_fetch_response_max_bytes,
            topics=[],
        )

    def _wanted(self, followed: FollowedPartition) -> Wanted:
        log = followed.log
        followed.asked_offset = log.log_end_offset
        return Wanted(
            log.topic_id,
            FetchPartition(
                partition=log.topic_partition.partition,
                current_leader_epoch=followed.leader_epoch,
                fetch_offset=log.log_end_offset,
                last_fetched_epoch=log.last_epoch,
                log_start_offset=log.log_start_offset,
                partition_max_bytes=self._follower.settings.replication.replica_fetch_max_bytes,
                high_watermark=log.high_watermark,
            ),
        )

    # --- answers --------------------------------------------------------------------------------------------

    def _partitions_of(
        self, response: FetchResponse
    ) -> list[tuple[TopicPartition, FollowedPartition, PartitionData]]:
        """Return the partitions of an answer that are still followed."""
        found = []
        for topic in response.responses:
            topic_id = bytes(topic.topic_id)
            for data in topic.partitions:
                where = self._by_id.get((topic_id, data.partition_index))
                if where is not None:
                    found.append((where, self._followed[where], data))
        return found

    async def _handle(
        self, connection: Connection, where: TopicPartition, followed: FollowedPartition, data: PartitionData
    ) -> None:
        self.report(where)  # the log end offset changes below, or the answer is stale and has to be replaced
        if not self._is_current(where, followed):
            return
        try:
            await self._apply(connection, where, followed, data)
        except (BrokerResponseError, ProtocolError) as error:
            if followed.log.state is not LogState.CLOSED:
                self._failed(where, followed, error)
        except KafkaError:  # of the connection
            raise
        except Exception:  # a bug: it must not stop the other partitions
            _log.exception("fetching %s from node %d failed", where, self._leader_id)
            self._pause(where, followed)

    async def _apply(
        self, connection: Connection, where: TopicPartition, followed: FollowedPartition, data: PartitionData
    ) -> None:
        """Append, truncate or start anew, as the answer says."""
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._handle_out_of_range(connection, where, followed)
        elif data.error_code:
            raise error_for(data.error_code, f"fetch from offset {followed.asked_offset}")
        elif data.diverging_epoch.end_offset >= 0 or data.diverging_epoch.epoch >= 0:
            leader = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            log = followed.log
            await self._truncate(where, followed, _cut_of(log, leader))
        else:
            self._append(followed.log, data)
            # else the next fetch would acknowledge records that a power cut takes
            if followed.log.must_flush:
                await followed.log.sync(self._follower.clock.wall_ms())

    def _is_current(self, where: TopicPartition, followed: FollowedPartition) -> bool:
        """Whether the partition is still followed, and its log unchanged, as when the request was sent."""
        return (
            self._followed.get(where) is followed
            and followed.log.state is not LogState.CLOSED
            and followed.log.log_end_offset == followed.asked_offset
        )

    def _append(self, log: Log, data: PartitionData) -> None:
        if isinstance(data.records, memoryview) and data.records:
            taken = log.append_as_follower(data.records, now_ms=self._follower.clock.wall_ms())
            if taken:  # moves to the end of the order, so that others are served first if not all fits
                self._followed[log.topic_partition] = self._followed.pop(log.topic_partition)
        if log.advance_high_watermark(data.high_watermark):
            self._follower.high_watermark_moved(log.topic_partition)
        # The leader's start may be above the high watermark of this log, which then refuses to start there.
        start_offset = min(data.log_start_offset, log.high_watermark)
        if start_offset > log.log_start_offset:
            log.advance_log_start(start_offset)
            self._follower.changed(log.topic_partition)

    async def _truncate(self, where: TopicPartition, followed: FollowedPartition, offset: int) -> None:
        """Truncate the log once a running sync is over, if the partition is still followed then."""
        await followed.log.wait_for_sync()
        if self._is_current(where, followed):
            # First: if the disk refuses, the log is not cut. It must not grow again beside an old checkpoint.
            self._follower.truncating(followed.log, offset)
            followed.log.truncate_to(offset, now_ms=self._follower.clock.wall_ms())
            self._follower.truncated(followed.log)

    async def _handle_out_of_range(
        self, connection: Connection, where: TopicPartition, followed: FollowedPartition
    ) -> None:
        """Handle OFFSET_OUT_OF_RANGE: the leader's log ends before ours, or starts after its end."""
        log = followed.log
        latest = await self._offset(connection, where, followed, LATEST)
        if latest < followed.asked_offset:
            await self._truncate(where, followed, latest)
            return
        earliest = await self._offset(connection, where, followed, EARLIEST)
        if earliest <= followed.asked_offset:
            raise OffsetOutOfRangeError(
                f"the leader has offsets {earliest} to {latest}, and refused {followed.asked_offset}"
            )
        await log.wait_for_sync()
        if self._is_current(where, followed):
            log.truncate_fully_and_start_at(earliest, now_ms=self._follower.clock.wall_ms())
            self._follower.truncated(log)

    async def _offset(
        self, connection: Connection, where: TopicPartition, followed: FollowedPartition, timestamp: int
    ) -> int:
        asked = ListOffsetsPartition(
            partition_index=where.partition,
            current_leader_epoch=followed.leader_epoch,
            timestamp=timestamp,
        )
        response = await connection.request(
            ListOffsetsRequest(
                replica_id=self._follower.node_id,
                topics=[ListOffsetsTopic(name=where.topic, partitions=[asked])],
            )
        )
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code:
                    raise error_for(answer.error_code, "offsets")
                return answer.offset
        raise ProtocolError("the leader's ListOffsets answer is empty")


def _cut_of(log: Log, leader: EpochEnd) -> int:
    return truncation_offset(
        leader, log.end_of_epoch, log_end_offset=log.log_end_offset, high_watermark=log.high_watermark
    )


def truncation_offset(
    leader: EpochEnd, end_of_epoch: Callable[[int], EpochEnd], *, log_end_offset: int, high_watermark: int
) -> int:
    """Return the offset to truncate the follower's log to.

    Args:
        leader: the diverging epoch and its end, from the leader's answer.
        end_of_epoch: returns the end of an epoch in the follower's log.
        log_end_offset: of the follower.
        high_watermark: of the follower.
    """
    # The leader knows no epoch to compare with; below the high watermark the logs are the same.
    if leader.end_offset < 0:
        return min(high_watermark, log_end_offset)
    own = end_of_epoch(leader.epoch)
    if own.end_offset < 0:
        return min(leader.end_offset, log_end_offset)
    if own.epoch != leader.epoch:
        return min(own.end_offset, log_end_offset)
    return min(own.end_offset, leader.end_offset, log_end_offset)


_MAX_EPOCH = 2**31 - 1


class Wanted(NamedTuple):
    """The fetch of one partition."""

    topic_id: bytes
    partition: FetchPartition


class FetchSession:
    """The follower's side of a fetch session with one leader (Kafka's ``FetchSessionHandler``)."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._sent: dict[TopicPartition, Wanted] = {}

    @property
    def is_new(self) -> bool:
        """Whether the next request has to be a full one."""
        return not self._id

    def fill(
        self,
        request: FetchRequest,
        wanted: Mapping[TopicPartition, Wanted],
        unwanted: Iterable[TopicPartition] = (),
    ) -> None:
        """Add partitions to a request: those that differ from what the session has.

        Args:
            request: without partitions.
            wanted: partitions that may have changed; all of them if the session is new. The leader reads them
                in this order, which matters if not all fits into an answer.
            unwanted: partitions to remove, whether the session has them or not.
        """
        if self.is_new:
            self._sent = {}
        before = self._sent
        changed = {each: ask for each, ask in wanted.items() if before.get(each) != ask}
        forgotten = {each: before[each] for each in unwanted if each in before and each not in wanted}
        # A partition of a topic that was created anew is removed under its old id.
        forgotten |= {each: before[each] for each in changed if _is_another(before.get(each), wanted[each])}
        request.session_id, request.session_epoch = self._id, self._epoch
        request.topics = [
            FetchTopic(
                topic=name, topic_id=topic_id, partitions=[changed[each].partition for each in partitions]
            )
            for (name, topic_id), partitions in _by_topic(changed).items()
        ]
        request.forgotten_topics_data = [
            ForgottenTopic(topic=name, topic_id=topic_id, partitions=[each.partition for each in partitions])
            for (name, topic_id), partitions in _by_topic(forgotten).items()
        ]
        for each in forgotten:
            before.pop(each, None)
        before.update(changed)

    def answered(self, session_id: int) -> None:
        """Note an answer without an error; session id 0 means that the leader keeps no session."""
        self._id = session_id
        self._epoch = 0 if not session_id else 1 if self._epoch == _MAX_EPOCH else self._epoch + 1

    def lost(self) -> None:
        """Begin anew with a full request: the leader does not know the session, or not in this epoch."""
        self._id = self._epoch = 0


def _is_another(before: Wanted | None, now: Wanted) -> bool:
    return before is not None and before.topic_id != now.topic_id


def _by_topic(wanted: Mapping[TopicPartition, Wanted]) -> dict[tuple[str, bytes], list[TopicPartition]]:
    topics: dict[tuple[str, bytes], list[TopicPartition]] = {}
    for each, (topic_id, _) in wanted.items():
        topics.setdefault((each.topic, topic_id), []).append(each)
    return topics
