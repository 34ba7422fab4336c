"""Fetch 4–17: whole record batches from the log, at once or when there is enough (facts B21–B25, B27).

Sessions are not kept: a request that opens one is answered with session id 0, which every client takes as
"none"; one that names a session gets 70.
"""

from __future__ import annotations

from functools import partial

import trio

from splashdam.embedded_broker.parking import FetchIsolation, FetchWaiter
from splashdam.embedded_broker.partitions import check_leader_epoch, leader_elsewhere, leader_log
from splashdam.embedded_broker.registry import Parked, RequestContext, handles
from splashdam.embedded_broker.replica_fetches import ReplicaFetch
from splashdam.embedded_broker.storage.log import Log
from splashdam.embedded_broker.storage.log_file import FileSlice
from splashdam.embedded_broker.topic_configs import options_of
from splashdam.model.broker_errors import (
    NotLeaderOrFollowerError,
    UnknownTopicIdError,
    UnsupportedCompressionTypeError,
)
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

_MAX_WAIT_MS = 60_000
"""No fetch is parked for longer, whatever it asks: then its client hears that nothing has come."""

_FIRST_ZSTD_VERSION = 10
_FIRST_LEADER_VERSION = 12
_FIRST_TOPIC_ID_VERSION = 13
_FIRST_ENDPOINT_VERSION = 16


@handles(FetchRequest, versions=range(4, 18))
def fetch(request: FetchRequest, context: RequestContext) -> FetchResponse | Parked:
    """What is there now, or a parked answer if that is less than ``min_bytes`` and waiting may help."""
    if request.session_id != 0 and request.session_epoch > 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    reading = _Reading(request, context)
    if reading.read() or request.max_wait_ms <= 0:
        return reading.response()
    reading.close()
    return Parked(partial(_wait_and_read, request, context))


async def _wait_and_read(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Reads again whenever enough came or became stable, and answers what there is when the time is up."""
    reading = _Reading(request, context, is_repeat=True)
    with (
        FetchWaiter(context.broker.parking, reading.partitions(), reading.isolation) as waiter,
        trio.move_on_after(min(request.max_wait_ms, _MAX_WAIT_MS) / 1000),
    ):
        while not reading.read():
            missing_bytes = reading.missing_bytes
            reading.close()
            await waiter.wait(missing_bytes)
        return reading.response()
    reading.read()
    return reading.response()


def _replica_of(request: FetchRequest) -> tuple[int, int]:
    """Node id and broker epoch of the follower that asks; the id is below 0 for others."""
    state = request.replica_state
    return (request.replica_id, -1) if state.replica_id < 0 else (state.replica_id, state.replica_epoch)


def _isolation_of(request: FetchRequest) -> FetchIsolation:
    if _replica_of(request)[0] >= 0:
        return FetchIsolation.LOG_END
    if request.isolation_level == IsolationLevel.READ_COMMITTED:
        return FetchIsolation.TXN_COMMITTED
    return FetchIsolation.HIGH_WATERMARK


def _without_duplicates(request: FetchRequest) -> list[tuple[FetchTopic, list[FetchPartition]]]:
    """Every topic and partition once, in the order of the request; as in Kafka the last mention counts."""
    topics: dict[tuple[str, bytes], tuple[FetchTopic, dict[int, FetchPartition]]] = {}
    for topic in request.topics:
        _, partitions = topics.setdefault((topic.topic, bytes(topic.topic_id)), (topic, {}))
        partitions.update((asked.partition, asked) for asked in topic.partitions)
    return [(topic, list(partitions.values())) for topic, partitions in topics.values()]


class _Reading:
    """One pass over the partitions of a request."""

    def __init__(self, request: FetchRequest, context: RequestContext, *, is_repeat: bool = False) -> None:
        self._context = context
        self._is_repeat = is_repeat
        self._max_bytes = min(request.max_bytes, context.broker.settings.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self.isolation = _isolation_of(request)
        self._replica_id, self._replica_epoch = _replica_of(request)
        self._asked = _without_duplicates(request)
        self._topics: list[FetchableTopicResponse] = []
        self._leaders: dict[int, NodeEndpoint] = {}
        self._slices: list[FileSlice] = []
        self._size_bytes = 0
        self._failed = False

    @property
    def missing_bytes(self) -> int:
        """What ``min_bytes`` still lacks."""
        return self._min_bytes - self._size_bytes

    def partitions(self) -> list[TopicPartition]:
        """The partitions asked for whose topics are known."""
        return [
            TopicPartition(name, asked.partition)
            for topic, asked_partitions in self._asked
            if (name := self._name(topic)) is not None
            for asked in asked_partitions
        ]

    def read(self) -> bool:
        """Reads every partition; true if that is enough to answer: ``min_bytes`` reached, or an error."""
        self._topics = []
        self._size_bytes = 0
        self._failed = False
        for topic, asked_partitions in self._asked:
            name = self._name(topic)
            self._topics.append(
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[self._partition(name, asked) for asked in asked_partitions],
                )
            )
        return self._failed or self._size_bytes >= self._min_bytes

    def response(self) -> FetchResponse:
        """The answer; whoever sends it closes its slices."""
        return FetchResponse(responses=self._topics, node_endpoints=list(self._leaders.values()))

    def close(self) -> None:
        """Lets go of what was read."""
        for piece in self._slices:
            piece.close()
        self._slices = []
        self._topics = []

    def _name(self, topic: FetchTopic) -> str | None:
        if self._context.version < _FIRST_TOPIC_ID_VERSION:
            return topic.topic
        found = self._context.broker.topics.by_id(topic.topic_id)
        return None if found is None else found.name

    def _partition(self, name: str | None, asked: FetchPartition) -> PartitionData:
        answer = PartitionData(
            partition_index=asked.partition, high_watermark=-1, aborted_transactions=None, records=b""
        )
        try:
            self._fill(answer, name, asked)
        except BrokerResponseError as error:
            answer.error_code, answer.records = error.code, b""
            self._failed = True
            if name is not None and isinstance(error, NotLeaderOrFollowerError):
                self._name_leader(answer, TopicPartition(name, asked.partition))
        return answer

    def _name_leader(self, answer: PartitionData, topic_partition: TopicPartition) -> None:
        leader = leader_elsewhere(self._context, topic_partition)
        if leader is not None and self._context.version >= _FIRST_LEADER_VERSION:
            answer.current_leader = LeaderIdAndEpoch(
                leader_id=leader.node_id, leader_epoch=leader.leader_epoch
            )
            if self._context.version >= _FIRST_ENDPOINT_VERSION:
                self._leaders[leader.node_id] = NodeEndpoint(
                    node_id=leader.node_id, host=leader.address.host, port=leader.address.port
                )

    def _fill(self, answer: PartitionData, name: str | None, asked: FetchPartition) -> None:
        if name is None:
            raise UnknownTopicIdError
        log = leader_log(self._context.broker, TopicPartition(name, asked.partition))
        check_leader_epoch(log, asked.current_leader_epoch)
        if self._context.version < _FIRST_ZSTD_VERSION and options_of(log).compression_type == "zstd":
            raise UnsupportedCompressionTypeError
        stable = log.last_stable_offset
        limits = {
            FetchIsolation.TXN_COMMITTED: stable,
            FetchIsolation.LOG_END: log.log_end_offset,
            FetchIsolation.HIGH_WATERMARK: None,
        }
        size_bytes = self._take(answer, log, asked, limits[self.isolation])
        if self.isolation is FetchIsolation.TXN_COMMITTED:
            bound = log.fetch_bound(asked.fetch_offset, size_bytes) if size_bytes else asked.fetch_offset
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in log.aborted_transactions(asked.fetch_offset, min(bound, stable))
            ]
        answer.high_watermark = log.high_watermark
        answer.last_stable_offset = stable
        answer.log_start_offset = log.log_start_offset
        if self._replica_id >= 0 and not self._is_repeat:
            self._context.broker.replicas.on_fetch(
                log,
                ReplicaFetch(
                    self._replica_id,
                    self._replica_epoch,
                    asked.fetch_offset,
                    asked.log_start_offset,
                    asked.current_leader_epoch,
                    log.log_end_offset,
                ),
            )

    def _take(self, answer: PartitionData, log: Log, asked: FetchPartition, up_to: int | None) -> int:
        """Reads, and returns how many bytes that gave."""
        left_bytes = max(0, min(asked.partition_max_bytes, self._max_bytes - self._size_bytes))
        if left_bytes == 0 and self._size_bytes:
            return 0  # the answer is full; looking for what cannot be in it costs
        piece = log.read(asked.fetch_offset, left_bytes, min_one_batch=self._size_bytes == 0, up_to=up_to)
        self._size_bytes += piece.size_bytes
        if piece.fileno() is not None:
            self._slices.append(piece)  # it keeps the descriptor until it is sent
            answer.records = piece
            return piece.size_bytes
        try:
            answer.records = piece.read()
        finally:
            piece.close()
        return piece.size_bytes
