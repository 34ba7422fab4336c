"""A cluster for tests that does what a script says: answers, errors, lost answers, late ones, none at all.

It speaks the real protocol over a ``MemoryNetwork``, keeps its partitions as ``ScriptedLog`` and records
every request::

    cluster = ScriptedCluster(network, topics={"t": 2})
    cluster.produce_script.append(Trouble(code=ErrorCode.NOT_ENOUGH_REPLICAS))
    async with trio.open_nursery() as nursery:
        await nursery.start(cluster.run)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import attrs
import trio

from splashdam.model.broker_errors import ErrorCode
from splashdam.model.errors import ForeignBytesError
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.wire.framing import FrameDecoder
from splashdam.wire.header import RequestHeader, decode_request, encode_response
from splashdam.wire.message import Message, Request, Response
from splashdam.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from splashdam.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from splashdam.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.scripted.coordinator import COORDINATED, ScriptedCoordinator
from support.scripted.log import ScriptedLog

Q = TypeVar("Q", bound=Request[Any])
Handler = Callable[["ScriptedBroker", Any, int], Response]

_V2_FROM = 12  # first version of Produce that adds partitions to transactions
_LEADERS_FROM = 10  # first version of Produce that names leaders
_OTHER_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

SPOKEN: dict[type[Request[Any]], tuple[int, int]] = {
    ProduceRequest: (3, 11),
    MetadataRequest: (0, 13),
    ApiVersionsRequest: (0, 4),
    InitProducerIdRequest: (0, 5),
    **COORDINATED,
}
"""The versions offered unless a test says otherwise."""


@attrs.frozen
class Trouble:
    """What happens to one request instead of the usual.

    Attributes:
        code: each partition is answered with this error, and nothing is written.
        for_good: refuses the records of these batches now and ever after with ``code``, as a broker does with
            records that are invalid; batches that are written already are recognised as usual.
        write: with a ``code``: writes nevertheless, and then answers with the error.
        record_errors: names these records, by index, as the reason (KIP-467).
        then: ``answer`` as usual; ``hang_up``: do the work, then break the connection without an answer;
            ``silence``: do the work and never answer; ``refuse``: break the connection and do nothing;
            ``late``: break the connection, and do the work ``delay_ms`` later, as a broker does with what it
            had in its queues.
        delay_ms: wait this long first.
        throttle_ms: tell the client to stay away for so long.
    """

    code: int = 0
    for_good: bool = False
    write: bool = False
    record_errors: dict[int, str] = attrs.field(factory=dict)
    then: Literal["answer", "hang_up", "silence", "refuse", "late"] = "answer"
    delay_ms: float = 0
    throttle_ms: int = 0


USUAL = Trouble()


@attrs.frozen
class Received:
    """A request that came in.

    Attributes:
        node_id: at which broker.
        header: with API key, version, correlation id and client id.
        message: what was asked.
        at_ms: when, in the loop's time.
    """

    node_id: int
    header: RequestHeader
    message: Request[Any]
    at_ms: float


class ScriptedBroker:
    """One broker of the cluster: an address, and connections served one request at a time."""

    def __init__(self, cluster: ScriptedCluster, node_id: int) -> None:
        self.node_id = node_id
        self.host = f"node-{node_id}"
        self.port = 9092
        self._cluster = cluster

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listens and serves until cancelled."""
        listeners = await self._cluster.network.listen(self.host, self.port)
        await trio.serve_listeners(self._serve, list(listeners), task_status=_Started(task_status))

    async def _serve(self, stream: trio.abc.Stream) -> None:
        frames = FrameDecoder(100_000_000)
        async with trio.open_nursery() as late_work, stream:
            try:
                while data := await stream.receive_some(frames.wanted_bytes):
                    for frame in frames.feed(data):
                        if not await self._answer(stream, frame, late_work):
                            return
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            except ForeignBytesError:  # a client whose connections break asks in TLS why, and is hung up on
                return

    async def _answer(self, stream: trio.abc.Stream, frame: memoryview, late_work: trio.Nursery) -> bool:
        """Handles a request; False hangs up."""
        header, message = decode_request(frame)
        self._cluster.received.append(Received(self.node_id, header, message, trio.current_time() * 1000))
        trouble = self._cluster.next_trouble(message)
        if trouble.then == "late":
            late_work.start_soon(self._work_later, message, header, trouble)
            await stream.aclose()
            return False
        await trio.sleep(trouble.delay_ms / 1000)
        if trouble.then == "refuse" or isinstance(message, SaslHandshakeRequest):  # it knows no SASL
            return False
        response = self._cluster.respond(self, message, header.api_version, trouble)
        if trouble.then == "hang_up":
            return False
        if trouble.then == "answer" and not (isinstance(message, ProduceRequest) and message.acks == 0):
            try:
                for part in encode_response(
                    response, version=header.api_version, correlation_id=header.correlation_id
                ):
                    assert isinstance(part, bytes | bytearray | memoryview)
                    await stream.send_all(part)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._cluster.surfaced.append(message)
                raise
        return True

    async def _work_later(self, message: Request[Any], header: RequestHeader, trouble: Trouble) -> None:
        await trio.sleep(trouble.delay_ms / 1000)
        self._cluster.respond(self, message, header.api_version, trouble)
        self._cluster.surfaced.append(message)


class ScriptedCluster:
    """Brokers that share partitions, leaders and one script.

    Args:
        network: where they listen, as ``node-1:9092``, ``node-2:9092``, ….
        topics: number of partitions by topic; leaders are dealt out in turn.
        nodes: number of brokers.
        max_batch_bytes: limit for a batch, None for none.

    Attributes:
        received: every request, in order.
        surfaced: those that were worked on when their connections were gone.
        produce_script: what happens to the next ProduceRequests, first to last; then the usual.
        id_script: likewise for InitProducerId.
        trouble_for: asked for each request that no script covers.
        logs: the partitions.
        leaders: node id and leader epoch by partition; node id -1 for none.
        spoken: offered versions by request class.
        features: finalized levels of the cluster's features.
        coordinator: of transactions and groups, with its own script.
        topic_errors: topics that metadata answers with an error code.
    """

    def __init__(
        self,
        network: MemoryNetwork,
        *,
        topics: dict[str, int],
        nodes: int = 1,
        max_batch_bytes: int | None = None,
    ) -> None:
        self.network = network
        self.brokers = {node_id: ScriptedBroker(self, node_id) for node_id in range(1, nodes + 1)}
        self.received: list[Received] = []
        self.surfaced: list[Request[Any]] = []
        self.produce_script: deque[Trouble] = deque()
        self.id_script: deque[Trouble] = deque()
        self.trouble_for: Callable[[Request[Any]], Trouble] = lambda _message: USUAL
        self.logs: dict[TopicPartition, ScriptedLog] = {}
        self.leaders: dict[TopicPartition, tuple[int, int]] = {}
        self.spoken = dict(SPOKEN)
        self.features: dict[str, int] = {}
        self.coordinator = ScriptedCoordinator(self)
        self.topic_errors: dict[str, int] = {}
        self._topics: dict[str, int] = {}
        self._max_batch_bytes = max_batch_bytes
        self._last_producer_id = 1000
        self._handlers: dict[type[Message], Handler] = {
            ApiVersionsRequest: self._api_versions,
            MetadataRequest: self._metadata,
            InitProducerIdRequest: self._init_producer_id,
        }
        for topic, partitions in topics.items():
            self.create_topic(topic, partitions)

    @property
    def bootstrap(self) -> tuple[tuple[str, int], ...]:
        """The brokers' addresses."""
        return tuple((broker.host, broker.port) for broker in self.brokers.values())

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """All brokers, until cancelled."""
        async with trio.open_nursery() as nursery:
            for broker in self.brokers.values():
                await nursery.start(broker.run)
            task_status.started()

    def create_topic(self, topic: str, partitions: int) -> None:
        """Adds a topic; partition p is led by node p mod number of nodes."""
        self._topics[topic] = partitions
        node_ids = sorted(self.brokers)
        for number in range(partitions):
            self.leaders[TopicPartition(topic, number)] = (node_ids[number % len(node_ids)], 0)
            self.logs[TopicPartition(topic, number)] = ScriptedLog(self._max_batch_bytes)

    def move_leader(self, topic_partition: TopicPartition, node_id: int) -> None:
        """Another leader, in the next leader epoch; -1 leaves the partition without one."""
        self.leaders[topic_partition] = (node_id, self.leaders[topic_partition][1] + 1)

    def requests(self, request_cls: type[Q]) -> list[Q]:
        """What was received of one kind, in order."""
        return [each.message for each in self.received if isinstance(each.message, request_cls)]

    def next_trouble(self, message: Request[Any]) -> Trouble:
        """What the script has for this request."""
        if isinstance(message, ProduceRequest) and self.produce_script:
            return self.produce_script.popleft()
        if isinstance(message, InitProducerIdRequest) and self.id_script:
            return self.id_script.popleft()
        if self.coordinator.script.get(type(message)):
            return self.coordinator.script[type(message)].popleft()
        return self.trouble_for(message)

    def respond(
        self, broker: ScriptedBroker, message: Request[Any], version: int, trouble: Trouble
    ) -> Response:
        """Does what the request asks and returns the answer."""
        if isinstance(message, ProduceRequest):
            return self._produce(broker, message, version, trouble)
        if type(message) in COORDINATED or getattr(message, "transactional_id", None) is not None:
            return self.coordinator.respond(broker.node_id, message, version, trouble)
        response = self._handlers[type(message)](broker, message, version)
        if trouble.code:
            response.error_code = trouble.code  # type: ignore[attr-defined]  # those that are scripted have it
        return response

    def _api_versions(
        self, _broker: ScriptedBroker, _message: ApiVersionsRequest, _version: int
    ) -> ApiVersionsResponse:
        keys = [
            ApiVersion(api_key=cls.API_KEY, min_version=first, max_version=last)
            for cls, (first, last) in self.spoken.items()
        ]
        features = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in self.features.items()
        ]
        return ApiVersionsResponse(
            api_keys=keys, finalized_features=features, finalized_features_epoch=len(features) - 1
        )

    def _metadata(self, _broker: ScriptedBroker, message: MetadataRequest, _version: int) -> MetadataResponse:
        names = sorted(self._topics) if message.topics is None else [each.name for each in message.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port)
                for each in self.brokers.values()
            ],
            cluster_id="scripted",
            controller_id=1,
            topics=[self._topic(name or "") for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        code = self.topic_errors.get(
            name, 0 if name in self._topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        if code:
            return MetadataResponseTopic(name=name, error_code=code)
        return MetadataResponseTopic(
            name=name, partitions=[self._partition(name, number) for number in range(self._topics[name])]
        )

    def _partition(self, name: str, number: int) -> MetadataResponsePartition:
        leader, epoch = self.leaders[TopicPartition(name, number)]
        return MetadataResponsePartition(
            error_code=0 if leader > 0 else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=number,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=sorted(self.brokers),
            isr_nodes=sorted(self.brokers),
        )

    def _init_producer_id(
        self, _broker: ScriptedBroker, _message: InitProducerIdRequest, _version: int
    ) -> InitProducerIdResponse:
        self._last_producer_id += 1
        return InitProducerIdResponse(producer_id=self._last_producer_id, producer_epoch=0)

    def _produce(
        self, broker: ScriptedBroker, message: ProduceRequest, version: int, trouble: Trouble
    ) -> ProduceResponse:
        response = ProduceResponse(throttle_time_ms=trouble.throttle_ms)
        for topic in message.topic_data:
            answers = []
            for each in topic.partition_data:
                where, batch = TopicPartition(topic.name, each.index), bytes(each.records or b"")
                allowed = self.coordinator.allows(
                    message.transactional_id, where, batch, v2=version >= _V2_FROM
                )
                refused = attrs.evolve(trouble, code=allowed) if allowed and not trouble.code else trouble
                answers.append(self._append(broker, where, batch, refused))
            response.responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
        if version >= _LEADERS_FROM:
            self._name_leaders(response)
        return response

    def _append(
        self, broker: ScriptedBroker, topic_partition: TopicPartition, batch: bytes, trouble: Trouble
    ) -> PartitionProduceResponse:
        log = self.logs.get(topic_partition)
        code, offset = trouble.code, -1
        if log is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif self.leaders[topic_partition][0] != broker.node_id:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif trouble.for_good:
            log.refuse(batch, code)
            code, offset = log.append(batch)
        elif not code or trouble.write:
            written, offset = log.append(batch)
            code = code or written
        return PartitionProduceResponse(
            index=topic_partition.partition,
            error_code=code,
            base_offset=-1 if code else offset,
            log_start_offset=0,
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
                for index, text in trouble.record_errors.items()
            ],
        )

    def _name_leaders(self, response: ProduceResponse) -> None:
        """KIP-951: an answer of the wrong broker names the right one."""
        for topic in response.responses:
            for each in topic.partition_responses:
                leader, epoch = self.leaders.get(TopicPartition(topic.name, each.index), (-1, -1))
                if each.error_code in _OTHER_LEADER and leader > 0:
                    each.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                    named = self.brokers[leader]
                    response.node_endpoints.append(
                        NodeEndpoint(node_id=leader, host=named.host, port=named.port)
                    )


class _Started:
    """Passes on that a listener is open, without the listeners themselves."""

    def __init__(self, task_status: trio.TaskStatus[None]) -> None:
        self._task_status = task_status

    def started(self, _value: object = None) -> None:
        self._task_status.started()
