"""Drains batches into one ProduceRequest per node, and handles the responses.

No task waits for a response: the connection calls back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.accumulator.batch import ProducerBatch
from splashdam.accumulator.compressions import BatchCompressions
from splashdam.accumulator.readiness import DrainGate, ReadyCheck
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from splashdam.model.cluster import Node
from splashdam.model.errors import KafkaConnectionError, KafkaError, ProtocolError, message_of
from splashdam.model.values import TopicPartition
from splashdam.net.connection.in_flight import PendingResponse
from splashdam.record.batch import HEADER_BYTES, Codec
from splashdam.record.compression import Compression
from splashdam.sender.broker_links import BrokerLink, BrokerLinks
from splashdam.sender.completion import Completion
from splashdam.sender.context import SenderContext
from splashdam.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from splashdam.wire.produce_form import ProduceForm

if TYPE_CHECKING:
    from splashdam.sender.transactions.manager import TransactionManager


NodeBatches = tuple[BrokerLink, list[ProducerBatch]]
"""The batches of one request, with the connection they go over."""


FIRST_WITH_ZSTD = 7
"""The first version of Produce that carries zstd (KIP-110)."""

LAST_WITH_NAMES = 12
"""Newer versions of Produce name topics by id, and refuse it once the topic was deleted and recreated."""

MOST_FORMS = 1024
"""Partitions whose forms are kept, a kilobyte each. To make one costs what it saves for two requests."""

LAST_WITHOUT_V2 = 11
"""In newer versions of Produce a transactional batch adds its partition to the transaction (KIP-890)."""


def build_request(
    batches: Iterable[ProducerBatch],
    *,
    acks: int,
    timeout_ms: float,
    compressions: BatchCompressions,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Seal the batches and group them by topic; the request references their bytes."""
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        topic, partition = batch.topic_partition
        data = topics.get(topic)
        if data is None:
            data = topics[topic] = TopicProduceData(name=topic)
        records = batch.seal(compressions.of(topic))
        data.partition_data.append(PartitionProduceData(index=partition, records=records))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=int(timeout_ms),
        topic_data=[*topics.values()],
    )


def check_codec(compression: Compression, version: int) -> None:
    """Raise if this version of Produce cannot carry the codec.

    Raises:
        UnsupportedCompressionTypeError: zstd, below version 7 (brokers before 2.1).
    """
    if compression.codec is Codec.ZSTD and version < FIRST_WITH_ZSTD:
        raise UnsupportedCompressionTypeError(
            f"the broker speaks Produce v{version} at most; zstd needs v{FIRST_WITH_ZSTD} (Kafka 2.1)"
        )


def answers_by_partition(response: ProduceResponse) -> dict[TopicPartition, PartitionProduceResponse]:
    """Return the parts of a ProduceResponse by partition."""
    answers = {}
    for topic in response.responses:
        for each in topic.partition_responses:
            answers[TopicPartition(topic.name, each.index)] = each
    return answers


def answer_of_silence(batch: ProducerBatch) -> PartitionProduceResponse:
    """Return the answer for ``acks=0``: only the write to the socket is known to have succeeded."""
    return PartitionProduceResponse(index=batch.topic_partition.partition, base_offset=-1)


def answer_of_failure(batch: ProducerBatch, error: KafkaError) -> PartitionProduceResponse:
    """Return a failed request as an answer, so that it takes the way of a broker's error code.

    Lost connections and invalid responses become NETWORK_EXCEPTION (13).
    """
    code, text = int(ErrorCode.NETWORK_EXCEPTION), message_of(error)
    if isinstance(error, BrokerResponseError):
        code, text = error.code, error.message  # `message`, since the class adds "[code name] " again
    return PartitionProduceResponse(
        index=batch.topic_partition.partition, error_code=code, base_offset=-1, error_message=text
    )


def new_leader(
    answer: PartitionProduceResponse, response: ProduceResponse, known: Mapping[int, Node]
) -> Node | None:
    """Return the partition leader that a response names (KIP-951); its address may be there or ``known``."""
    leader_id = answer.current_leader.leader_id
    for endpoint in response.node_endpoints:
        # Negative: the answer names no leader.
        if endpoint.node_id == leader_id >= 0:
            return Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
    return known.get(leader_id)


def seal_and_fit(
    context: SenderContext, completion: Completion, batches: Sequence[ProducerBatch], version: int
) -> list[ProducerBatch]:
    """Seal drained batches and keep those that fit into one request. The guard is not held.

    Until now their compressed size was an estimate. A batch that outgrew ``batch_size`` because of it and is
    too large for a request is split as if the broker had refused it; one that does not fit beside the others
    goes with the next request; one whose codec the broker does not know fails.

    Returns:
        the batches to send now: at most ``max_request_size`` bytes in all, or a single batch.
    """
    accumulator, now_ms = context.accumulator, context.clock.now_ms()
    max_request_size = context.settings.max_request_size
    fitting: list[ProducerBatch] = []
    used_bytes = 0

    def place(batch: ProducerBatch, size_bytes: int) -> bool:
        # Not on a retry: it went out in this size before, and may be in the log.
        if size_bytes > max_request_size and batch.attempts == 0 and accumulator.outgrew(batch):
            refusal = MessageTooLargeError(f"{size_bytes} bytes compressed, above max_request_size")
            completion.settle(batch, answer_of_failure(batch, refusal), now_ms)
            return False
        if fitting and used_bytes + size_bytes > max_request_size:
            completion.put_back(batch, now_ms)
            return False
        accumulator.release_surplus(batch)
        return True

    for batch in batches:
        try:
            check_codec(accumulator.compressions.of(batch.topic_partition.topic), version)
            _seal(accumulator, batch)
        except KafkaError as error:
            context.guard.run(completion.refuse_unsent, batch, error)
            continue
        size_bytes = batch.size_bytes
        if context.guard.run(place, batch, size_bytes):
            fitting.append(batch)
            used_bytes += size_bytes
    return fitting


def _seal(accumulator: RecordAccumulator, batch: ProducerBatch) -> None:
    compressions, topic = accumulator.compressions, batch.topic_partition.topic
    compression, first = compressions.of(topic), batch.sealed is None
    batch.seal(compression)
    if first and compression.codec is not Codec.NONE:
        plain_bytes, packed_bytes = batch.uncompressed_bytes - HEADER_BYTES, batch.size_bytes - HEADER_BYTES
        # Small batches compress badly: they would raise the estimate, and later batches would stay small.
        representative = 2 * plain_bytes >= accumulator.batch_bytes
        if representative or packed_bytes < compressions.ratio(topic) * plain_bytes:
            compressions.observe(topic, plain_bytes, packed_bytes)


Answers = dict[TopicPartition, PartitionProduceResponse]


class Shipping:
    """Drains batches for nodes with a usable connection, sends them, and completes them by the response.

    Args:
        context: what all parts share.
        links: the connections to nodes; missing ones are opened.
        completion: completes the batches; the sender runs their waiters afterwards.
        gate: holds back partitions for idempotence and transactions.
        transactions: of a producer that has a transactional id.

    Attributes:
        ended: the sender has ended and fails all batches itself; responses are ignored.
        last_had_one_record: whether the last request had one, as those of a caller that awaits each.
    """

    def __init__(
        self,
        context: SenderContext,
        links: BrokerLinks,
        completion: Completion,
        gate: DrainGate,
        transactions: TransactionManager | None = None,
    ) -> None:
        self._context = context
        self._links = links
        self._completion = completion
        self._gate = gate
        self._transactions = transactions
        self._forms: dict[TopicPartition, ProduceForm | None] = {}  # None: sent to once
        self.ended = False
        self.last_had_one_record = False

    def ready(self, now_ms: float) -> ReadyCheck:
        """Return the nodes with ready batches; request unknown partition leaders. The guard is held."""
        metadata = self._context.metadata
        check = self._context.accumulator.ready(metadata.cluster, now_ms, self._gate)
        if check.unknown_leader_topics:
            metadata.request_missing(check.unknown_leader_topics, now_ms)
        return check

    def drain(
        self, check: ReadyCheck, nursery: trio.Nursery, now_ms: float
    ) -> tuple[float, list[NodeBatches]]:
        """Drain the batches that can be written at once. The guard is held.

        Returns:
            milliseconds until a backoff or throttling of another node ends, and the batches by node.
        """
        context = self._context
        cluster = context.metadata.cluster
        delay_ms = math.inf
        sendable: dict[int, BrokerLink] = {}
        for node_id in check.nodes:
            link = self._links.link_to(cluster.nodes[node_id])
            writable = link.sendable
            if context.accumulator.availability.timeout_ms:
                context.accumulator.availability.note(node_id, now_ms, writable=writable)
            if writable:
                sendable[node_id] = link
            else:
                link.want(nursery, now_ms)
                delay_ms = min(delay_ms, link.delay_ms(now_ms))
        if not sendable:
            return delay_ms, []
        drained = context.accumulator.drain(
            cluster, sendable, context.settings.max_request_size, now_ms, self._gate
        )
        requests: list[NodeBatches] = []
        for node_id, batches in drained.items():
            self._completion.begin(batches)
            context.metadata.touch([batch.topic_partition.topic for batch in batches], now_ms)
            requests.append((sendable[node_id], batches))
        return delay_ms, requests

    def drain_lone(self, batch: ProducerBatch, now_ms: float) -> BrokerLink | None:
        """Drain the only queued batch, which the gate admits; return its connection. The guard is held.

        None, with nothing changed, if its leader is not known or cannot be written to now.
        """
        context, topic_partition = self._context, batch.topic_partition
        cluster = context.metadata.cluster
        leader = cluster.leader_for(topic_partition)
        # `drain` also notes which nodes could take their requests (KIP-794).
        if leader < 0 or context.accumulator.availability.timeout_ms:
            return None
        link = self._links.link_to(cluster.nodes[leader])
        if not link.sendable:
            return None
        context.accumulator.take_lone(batch, cluster, self._gate)
        self._completion.begin((batch,))
        context.metadata.touch((topic_partition.topic,), now_ms)
        return link

    def ship(self, link: BrokerLink, batches: Sequence[ProducerBatch], patience_ms: float) -> None:
        """Seal and send the batches. The response or its failure completes them. The guard is not held.

        The loop may block for up to ``patience_ms`` until they are written; see ``send_now`` of
        ``net.connection.streams``.
        """
        context = self._context
        self.last_had_one_record = len(batches) == 1 and batches[0].record_count == 1
        try:
            if context.accumulator.compressions.used:
                batches = seal_and_fit(context, self._completion, batches, link.version_for(ProduceRequest))
                if not batches:
                    return
            # Not with ``acks=0``: a form serves to read the answer, and the broker then sends none.
            if len(batches) == 1 and context.settings.acks:
                version = link.version_for(ProduceRequest, self._newest)
                form = self._form(version, batches[0].topic_partition)
                if form is not None:
                    self._ship_filled(form, link, batches[0], patience_ms)
                    return
            link.submit(
                ProduceRequest,
                partial(self._request, batches),
                partial(self._answered, batches),
                expect_response=context.settings.acks != 0,
                patience_ms=patience_ms,
                newest=self._newest,
            )
        except ProtocolError as error:  # our own error: those of the broker come with the response
            for batch in batches:
                context.guard.run(self._completion.refuse_unsent, batch, error)
        except KafkaError as error:
            # A lost connection, for example: it takes the way of a broker's error code, and may be retried.
            self._settle(batches, _failures(batches, error))

    def _ship_filled(
        self, form: ProduceForm, link: BrokerLink, batch: ProducerBatch, patience_ms: float
    ) -> None:
        """Send one batch in few steps: records that are awaited one by one go this way."""
        context = self._context
        records = batch.seal(context.accumulator.compressions.of(batch.topic_partition.topic))
        now_ms = context.clock.now_ms()
        on_done = partial(self._answered_filled, batch)
        link.submit_filled(form, records, on_done, now_ms=now_ms, patience_ms=patience_ms)
        # After the write: the broker works meanwhile, and somebody waits for this record.
        context.counters.shipped((batch,), now_ms)

    def _form(self, version: int, topic_partition: TopicPartition) -> ProduceForm | None:
        """Return the form of a partition's requests; None for the first one, and for rarely used ones.

        A producer that goes round among more partitions would make a form for each request.
        """
        if topic_partition not in self._forms:
            if len(self._forms) >= MOST_FORMS:
                # All of them: no order of use is kept, and without a form a request is an ordinary one.
                self._forms.clear()
            self._forms[topic_partition] = None
            return None
        form = self._forms[topic_partition]
        if form is None or form.version != version:
            settings = self._context.settings
            form = self._forms[topic_partition] = ProduceForm(
                topic_partition,
                version,
                client_id=settings.client_id,
                acks=settings.acks,
                timeout_ms=int(settings.request_timeout_ms),
                transactional_id=settings.transactional_id,
            )
        return form

    def _answered_filled(self, batch: ProducerBatch, pending: PendingResponse[ProduceResponse]) -> None:
        acknowledged = pending.acknowledged
        # The answer did not fit the form (an error, a throttle time), so it was decoded.
        if acknowledged is None or self.ended:
            self._answered((batch,), pending)
            return
        context = self._context
        context.counters.answered(pending.latency_ms, 0)
        context.guard.run(self._completion.acknowledge, batch, *acknowledged)

    def _answered(self, batches: Sequence[ProducerBatch], pending: PendingResponse[ProduceResponse]) -> None:
        context = self._context
        if self.ended:
            return
        if pending.error is not None:
            answers = _failures(batches, pending.error)
        elif context.settings.acks == 0:
            answers = {batch.topic_partition: answer_of_silence(batch) for batch in batches}
        else:
            response = pending.result()
            latency_ms = context.clock.now_ms() - pending.sent_at_ms
            context.counters.answered(latency_ms, response.throttle_time_ms)
            answers = self._answers(batches, response)
        self._settle(batches, answers)

    def _request(self, batches: Sequence[ProducerBatch], _version: int) -> ProduceRequest:
        settings = self._context.settings
        request = build_request(
            batches,
            acks=settings.acks,
            timeout_ms=settings.request_timeout_ms,
            compressions=self._context.accumulator.compressions,
            transactional_id=settings.transactional_id,
        )
        # Counted here, where the batches are sealed (their size is final) and still have their bytes.
        self._context.counters.shipped(batches, self._context.clock.now_ms())
        return request

    @property
    def _newest(self) -> int:
        """The newest Produce version to use; above ``LAST_WITHOUT_V2`` leaders add partitions (KIP-890)."""
        transactions = self._transactions
        return LAST_WITH_NAMES if transactions is None or transactions.v2 else LAST_WITHOUT_V2

    def _answers(self, batches: Sequence[ProducerBatch], response: ProduceResponse) -> Answers:
        answers = answers_by_partition(response)
        for batch in batches:
            answer = answers.get(batch.topic_partition)
            if answer is None:
                # What it leaves out is unknown, as after a lost answer.
                silence = KafkaConnectionError("the broker's answer does not name this partition")
                answers[batch.topic_partition] = answer_of_failure(batch, silence)
            elif answer.error_code:
                self._follow_leader(batch, answer, response)
        return answers

    def _follow_leader(
        self, batch: ProducerBatch, answer: PartitionProduceResponse, response: ProduceResponse
    ) -> None:
        metadata = self._context.metadata
        leader = new_leader(answer, response, metadata.cluster.nodes)
        if leader is not None:
            self._context.guard.run(
                metadata.apply_leader, batch.topic_partition, leader, answer.current_leader.leader_epoch
            )

    def _settle(self, batches: Sequence[ProducerBatch], answers: Answers) -> None:
        now_ms = self._context.clock.now_ms()

        # One hold of the guard for all batches: a caller that the first batch wakes takes the guard after the
        # last one, and sees the outcome of each.
        def settle() -> None:
            for batch in batches:
                self._completion.settle(batch, answers[batch.topic_partition], now_ms)

        self._context.guard.run(settle)


def _failures(batches: Sequence[ProducerBatch], error: KafkaError) -> Answers:
    return {batch.topic_partition: answer_of_failure(batch, error) for batch in batches}
