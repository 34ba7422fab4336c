"""Produce 3–13: append one batch to each partition; ``Log.append_as_leader`` checks it.

ApiVersions names it from version 0: librdkafka before 2.11.1 switches compression off where 0 is missing
(apache/kafka#18727); a request below 3 closes the connection. Transactional batches are enrolled
first (``transactions/verification.py``): from version 12 on they bring their partition into the transaction.

Where ``flush.messages`` makes a sync due, the answer waits for it: the batches of one wake, and those of
other clients that arrive during a sync, share the next one (``Log.sync``). A transaction's state is synced
before the first batch of such a log: a power cut may also keep bytes that were not synced, and no
coordinator would ever end the transaction of a batch that it does not know.

With ``acks=all`` and other replicas, the answer waits for the ISR (``replication/partition.py``).

A batch that has to be unpacked (``producing/appending.py``) may take more than a turn of the loop
(``execution/turns.py``). Then the rest of the request waits for it, and so do the connection's later
requests, as in Kafka: the batches of a partition are appended in the order in which they came. Whatever the
broker knows of topic, leader and transaction is looked up behind that wait, in the turn that appends.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from splashdam.embedded_broker.execution.answers import Answer, CloseConnectionError, Parked
from splashdam.embedded_broker.execution.turns import PARTITIONS_IN_A_UNIT, Steps, in_steps, let_others
from splashdam.embedded_broker.producing.appending import (
    ATTRIBUTES_LOW_BYTE,
    BatchValidation,
    TakesBatches,
    ValidatedBatch,
    append_batch,
    check_attributes,
    is_appended_as_sent,
    refuse,
)
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.partitions import leader_elsewhere, leader_log
from splashdam.embedded_broker.transactions.error_mapping import FIRST_IMPLICIT_PRODUCE
from splashdam.embedded_broker.transactions.verification import (
    CoordinatorVerdict,
    Enrolment,
    enrol,
    producer_of,
)
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    InvalidRequiredAcksError,
    InvalidTopicError,
    KafkaStorageError,
    RequestTimedOutError,
    UnknownTopicIdError,
)
from splashdam.model.log_text import quoted
from splashdam.model.values import Buffer, TopicPartition
from splashdam.record.batch import HEADER_BYTES, TRANSACTIONAL_BIT
from splashdam.storage.log import Log
from splashdam.storage.topic_names import INTERNAL_TOPICS
from splashdam.wire.message import Response
from splashdam.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from splashdam.embedded_broker.topics.topics import Topics
    from splashdam.storage.log import Replication

_FIRST_LEADER_VERSION = 10
_FIRST_TOPIC_ID_VERSION = 13
_ALL = -1  # acks


@handles(ProduceRequest, versions=range(3, 14), advertised_from=0)
def produce(request: ProduceRequest, context: RequestContext) -> Steps[Answer]:
    """Append, and answer with base offsets; with ``acks=0`` there is no answer.

    Raises:
        CloseConnectionError: an append failed; ``acks=0`` leaves no other way to report it.
    """
    if context.version >= _FIRST_TOPIC_ID_VERSION:
        yield from _name_topics(request, context.broker.topics)
    if request.transactional_id is not None:
        coordinator = context.broker.enrolments.coordinator_to_ask(request.transactional_id)
        if coordinator is not None:
            return Parked(partial(_append_verified, coordinator, request, context))
    return (yield from _append_in_order(_Asked(request, context)))


def _append_in_order(asked: _Asked) -> Steps[Answer]:
    state_log = yield from _state_to_sync(asked)
    if state_log is not None:
        return Parked(partial(_append_behind, state_log, asked))
    return (yield from _append_all(asked))


async def _append_verified(
    coordinator: int, request: ProduceRequest, context: RequestContext
) -> Response | None:
    """Append after the coordinator of the transaction has enrolled the partitions."""
    broker, transactional_id = context.broker, request.transactional_id or ""
    is_implicit = context.version >= FIRST_IMPLICIT_PRODUCE
    wanted = await broker.turns.finish_steps(_to_enrol(request, broker), context.account)
    verdict = await broker.enrolments.ask(coordinator, transactional_id, wanted, is_implicit=is_implicit)
    return await broker.turns.finish(_append_in_order(_Asked(request, context, verdict)), context.account)


def _to_enrol(request: ProduceRequest, broker: TakesBatches) -> Steps[list[Enrolment]]:
    wanted = []
    for topic in request.topic_data:
        for number, data in enumerate(topic.partition_data, 1):
            if number % PARTITIONS_IN_A_UNIT == 0:
                yield 1
            topic_partition = TopicPartition(topic.name, data.index)
            if _must_enrol(topic_partition, data.records, broker):
                wanted.append(Enrolment(topic_partition, producer_of(data.records or b"")))
    return wanted


def _must_enrol(topic_partition: TopicPartition, batch: Buffer | None, broker: TakesBatches) -> bool:
    """Return whether a batch may be the first of its transaction in a partition that this broker leads."""
    log = broker.logs.logs.get(topic_partition)
    if log is None or batch is None or len(batch) < HEADER_BYTES:
        return False
    is_transactional = bool(batch[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT)
    return is_transactional and not log.producers.has_open_transaction(*producer_of(batch))


def _append_all(asked: _Asked) -> Steps[Answer]:
    request, context, _ = asked
    due: list[_Due] = []
    responses: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
        for data in topic.partition_data:
            if answers or len(responses) > 1:
                yield 1  # the connection has counted the first one
            where = _Place(TopicPartition(topic.name, data.index), topic.topic_id)
            answers.append((yield from _append(where, data, asked, due)))
    endpoints: list[NodeEndpoint] = []
    if context.version >= _FIRST_LEADER_VERSION:
        endpoints = yield from _named_leaders(responses, context)
    if due:
        # Counted from now, not from when earlier answers have been sent: the client counts from its request.
        deadline = trio.current_time() + request.timeout_ms / 1000
        safe = partial(_answer_when_safe, request.acks, responses, endpoints, due, deadline)
        return Parked(safe, lets_others_begin=True)
    return _answer(request.acks, responses, endpoints)


def _name_topics(request: ProduceRequest, topics: Topics) -> Steps[None]:
    """Fill in topic names for ids; the name of an unknown id stays empty."""
    for number, topic in enumerate(request.topic_data, 1):
        if number % PARTITIONS_IN_A_UNIT == 0:
            yield 1
        known = topics.by_id(topic.topic_id)
        topic.name = "" if known is None else known.name


class _Due(NamedTuple):
    """A batch whose answer waits until the log is safe up to ``end_offset``.

    Safe means on stable storage, or, where ``replication`` is given, on all replicas of the ISR.
    """

    broker: TakesBatches
    answer: PartitionProduceResponse
    log: Log
    end_offset: int
    replication: Replication | None = None
    term: int = 0


class _Asked(NamedTuple):
    """The request of a batch, and its context."""

    request: ProduceRequest
    context: RequestContext
    verdict: CoordinatorVerdict | None = None
    """The answer of the other broker that coordinates the transaction."""


class _Place(NamedTuple):
    """The partition of a batch. From Produce 13 on the id counts: a topic created again has another one."""

    topic_partition: TopicPartition
    topic_id: bytes


def _append(
    place: _Place,
    data: PartitionProduceData,
    asked: _Asked,
    due: list[_Due],
) -> Steps[PartitionProduceResponse]:
    request, context, _ = asked
    validated = None
    answer = PartitionProduceResponse(index=data.index, base_offset=-1)
    try:
        batch, log = _find(place, data, asked)
        while not may_append(log, batch, validated):
            # Anything may have changed behind this: options, leader, the topic itself.
            validated = yield from _validated(log, batch, context)
            batch, log = _find(place, data, asked)
        state_log = _enrolled(batch, log, asked)
        replication = log.replication if request.acks == _ALL else None
        if replication is not None:
            # Before the append: at NOT_ENOUGH_REPLICAS (19) the producer may rely on it that nothing was
            # appended.
            replication.check_enough_in_sync()
        appended = append_batch(log, batch, context.broker, validated)
    except BrokerResponseError as error:
        refuse(answer, place.topic_partition, error, context.broker)
        return answer
    answer.base_offset, _, answer.log_append_time_ms, answer.log_start_offset, _ = appended
    due += [
        _Due(context.broker, answer, each, each.log_end_offset)
        for each in (state_log, log)
        if each and each.must_flush
    ]
    if replication is not None:
        due.append(_Due(context.broker, answer, log, appended.last_offset + 1, replication, replication.term))
    return answer


def may_append(log: Log, batch: Buffer, validated: ValidatedBatch | None) -> bool:
    """Return whether a batch can be appended now; else it has to be validated, perhaps again."""
    settings = log.settings
    if validated is None:
        return is_appended_as_sent(batch, settings)
    return validated.settings is settings


def _validated(log: Log, batch: Buffer, context: RequestContext) -> Steps[ValidatedBatch | None]:
    """Return the validated batch; None if it is appended as sent."""
    settings = log.settings
    if is_appended_as_sent(batch, settings):
        return None
    validated: ValidatedBatch = yield BatchValidation.of(batch, settings, context.broker.clock.wall_ms())
    return validated


def _find(place: _Place, data: PartitionProduceData, asked: _Asked) -> tuple[Buffer, Log]:
    """Return the batch and its log; to be called again after each turn."""
    (request, context, _), topic_partition = asked, place.topic_partition
    has_id = context.version >= _FIRST_TOPIC_ID_VERSION
    if not topic_partition.topic and has_id:
        raise UnknownTopicIdError
    _check_request(request)
    if topic_partition.topic in INTERNAL_TOPICS:
        raise InvalidTopicError(
            f"{topic_partition.topic} is the broker's own topic; nobody else writes to it"
        )
    batch = check_attributes(data.records, context.version)
    log = leader_log(context.broker, topic_partition)
    if has_id and log.topic_id != place.topic_id:
        raise UnknownTopicIdError(f"{topic_partition.topic} was deleted, and another topic has its name")
    return batch, log


def _enrolled(batch: Buffer, log: Log, asked: _Asked) -> Log | None:
    """Enrol the partition of a transactional batch; return the state log if it was written to."""
    if not batch[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
        return None
    request, context, verdict = asked
    return enrol(context.broker, request.transactional_id, batch, log, context.version, verdict=verdict)


def _state_to_sync(asked: _Asked) -> Steps[Log | None]:
    """Enrol the partitions that are synced; return the state log if it has to be synced before them."""
    request, context, _ = asked
    if request.transactional_id is None:
        return None
    state_log = None
    for topic in request.topic_data:
        for number, data in enumerate(topic.partition_data, 1):
            if number % PARTITIONS_IN_A_UNIT == 0:
                yield 1
            place = _Place(TopicPartition(topic.name, data.index), topic.topic_id)
            log = context.broker.logs.logs.get(place.topic_partition)
            if log is not None and log.settings.flush_messages == 1:
                with suppress(BrokerResponseError):  # raised again, and answered, at the append
                    batch, log = _find(place, data, asked)
                    state_log = _enrolled(batch, log, asked) or state_log
    return state_log if state_log is not None and not state_log.is_synced else None


async def _append_behind(state_log: Log, asked: _Asked) -> Response | None:
    request, context, _ = asked
    try:
        await state_log.sync()
    except KafkaStorageError as error:
        refused = _refuse_all(request, state_log.topic_partition, error, context.broker)
        responses = await context.broker.turns.finish_steps(refused, context.account)
        return _answer(request.acks, responses, [])
    return await context.broker.turns.finish(_append_all(asked), context.account)


def _refuse_all(
    request: ProduceRequest, unsynced: TopicPartition, error: KafkaStorageError, broker: TakesBatches
) -> Steps[list[TopicProduceResponse]]:
    """Refuse every batch with the error of the log that could not be synced."""
    responses = []
    for topic in request.topic_data:
        yield 1
        answers = [PartitionProduceResponse(index=data.index) for data in topic.partition_data]
        yield from in_steps(answers, lambda answer: refuse(answer, unsynced, error, broker))
        responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
    return responses


def _check_request(request: ProduceRequest) -> None:
    if request.acks not in (-1, 0, 1):
        raise InvalidRequiredAcksError(f"acks is {request.acks}; it must be 0, 1 or -1 (all)")


def _named_leaders(
    responses: list[TopicProduceResponse], context: RequestContext
) -> Steps[list[NodeEndpoint]]:
    """Name the leaders of partitions that other brokers lead, and return the addresses of those."""
    endpoints = {}
    for topic in responses:
        for number, answer in enumerate(topic.partition_responses, 1):
            if number % PARTITIONS_IN_A_UNIT == 0:
                yield 1
            if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            leader = leader_elsewhere(
                context.broker, context.address, TopicPartition(topic.name, answer.index)
            )
            if leader is not None:
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.node_id, leader_epoch=leader.leader_epoch
                )
                endpoints[leader.node_id] = NodeEndpoint(
                    node_id=leader.node_id,
                    host=leader.address.host,
                    port=leader.address.port,
                    rack=context.broker.controller.state.rack_of(leader.node_id),
                )
    return list(endpoints.values())


async def _answer_when_safe(
    acks: int,
    responses: list[TopicProduceResponse],
    endpoints: list[NodeEndpoint],
    due: list[_Due],
    deadline: float,
) -> ProduceResponse | None:
    for number, each in enumerate(due, 1):
        await let_others(number)
        try:
            if each.replication is not None:
                await _wait_replicated(each.replication, each.end_offset, each.term, deadline)
            elif each.log.recovery_point < each.end_offset:
                await each.log.sync()
        except BrokerResponseError as error:
            refuse(each.answer, each.log.topic_partition, error, each.broker)
    return _answer(acks, responses, endpoints)


async def _wait_replicated(replication: Replication, end_offset: int, term: int, deadline: float) -> None:
    """``Replication.wait_replicated`` with the producer's timeout; the batch stays in the log in any case."""
    with trio.move_on_at(deadline):
        await replication.wait_replicated(end_offset, term)
        return
    raise RequestTimedOutError(f"not all replicas in sync have it yet; the log has, up to {end_offset}")


def _answer(
    acks: int, responses: list[TopicProduceResponse], endpoints: list[NodeEndpoint]
) -> ProduceResponse | None:
    if acks != 0:
        return ProduceResponse(responses=responses, node_endpoints=endpoints)
    for topic in responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                where = f"{topic.name}-{answer.index}"
                # As in Kafka: without an answer a closed connection is all that tells the producer to look
                # for the leader.
                raise CloseConnectionError(
                    f"{quoted(where)}, acks=0: {answer.error_code} {quoted(str(answer.error_message))}"
                )
    return None
