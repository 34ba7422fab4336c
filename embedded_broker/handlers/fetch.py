"""Fetch 4–18: whole record batches from the log, at once or when there is enough (–B25, B27).

Sessions are kept as Kafka keeps them (``fetching/sessions.py``). With ``replica.selector.class`` set, a
consumer that names its rack is sent to a follower in that rack (KIP-392), which answers up to the high
watermark that it knows.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import NamedTuple

import trio

from splashdam.embedded_broker.configs.broker_settings import RACK_AWARE_SELECTOR
from splashdam.embedded_broker.execution.answers import Answer, Parked, Send
from splashdam.embedded_broker.execution.turns import PARTITIONS_IN_A_UNIT, Steps
from splashdam.embedded_broker.fetching.reading import (
    FEW_PARTITIONS,
    FIRST_TOPIC_ID_VERSION,
    FetchLimits,
    FetchReading,
)
from splashdam.embedded_broker.fetching.sessions import (
    FetchContext,
    PartitionKey,
    SessionPartition,
    SessionRequest,
)
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.parking import FetchIsolation, FetchWaiter
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

_MAX_WAIT_MS = 60_000
"""A fetch is parked no longer than this, whatever ``max_wait_ms`` says; then it is answered, empty."""

_FIRST_LEADER_VERSION = 12
_FIRST_ENDPOINT_VERSION = 16
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@handles(FetchRequest, versions=range(4, 19))
def fetch(request: FetchRequest, context: RequestContext) -> Steps[Answer]:
    """Answer now, or park if there is less than ``min_bytes`` and waiting may help."""
    limits = _limits_of(request, context)
    session_request = yield from _session_request_of(request, context, is_follower=limits.replica_id >= 0)
    try:
        asked = yield from context.broker.fetch_sessions.context(
            session_request, context.broker.clock.now_ms()
        )
    except BrokerResponseError as error:
        return FetchResponse(error_code=error.code)
    reading = FetchReading(asked, limits, context.broker, context.version)
    events = context.broker.parking.events
    try:
        if (yield from reading.read()) or request.max_wait_ms <= 0:
            return (yield from _answer(reading, asked, context))
    except BaseException:
        reading.let_go()
        raise
    reading.let_go()
    waiting = _Waiting(reading, events, asked, limits, min(request.max_wait_ms, _MAX_WAIT_MS), context)
    return Parked(partial(_wait_and_read, waiting), may_send=True)


class _Waiting(NamedTuple):
    """A fetch that has found too little."""

    reading: FetchReading
    events: int
    """``FetchParking.events`` before it read."""
    asked: FetchContext
    limits: FetchLimits
    max_wait_ms: int
    context: RequestContext


async def _wait_and_read(waiting: _Waiting, send: Send | None = None) -> FetchResponse | None:
    """Read again whenever enough bytes have arrived or become stable; at the deadline answer in any case.

    Returns:
        The answer, or None if it was sent.
    """
    reading, events, asked, limits, max_wait_ms, context = waiting
    parking = context.broker.parking
    is_enough = False
    with (
        FetchWaiter(
            parking,
            asked.waited_for(),
            limits.isolation,
            wants_high_watermark=asked.wants_high_watermark,
            answer=None if send is None else partial(_answer_in_turn, waiting, send),
        ) as waiter,
        asked.parked(waiter),
        trio.move_on_after(max_wait_ms / 1000),
    ):
        changed: set[TopicPartition] | None = None  # not known: the waiter was not there yet
        if parking.events == events and not asked.is_over:
            await waiter.wait(reading.missing_bytes)
            changed = waiter.listen()
        while not waiter.is_answered:
            is_enough = await _is_enough(reading, changed, context) or asked.is_over
            if is_enough:
                break
            reading.let_go()
            await waiter.wait(reading.missing_bytes)
            # Before the read, which may take several turns: what is appended meanwhile must end the wait
            # above.
            changed = waiter.listen()
    if waiter.is_answered:
        waiter.check_answer()
        return None
    if not is_enough:
        await _is_enough(reading, None, context)
    # Not within the deadline: an answer that is cancelled midway has changed the session already.
    try:
        return await context.broker.turns.finish_steps(_answer(reading, asked, context), context.account)
    except BaseException:
        reading.let_go()
        raise


def _answer_in_turn(waiting: _Waiting, send: Send, changed: set[TopicPartition]) -> bool:
    """Answer a fetch that waits, if it finds enough now; return whether it did.

    The turn is that of the request that caused the event, so a fetch of many partitions waits for its own.
    """
    reading, asked, context = waiting.reading, waiting.asked, waiting.context
    turns, began_ms = context.broker.turns, context.broker.clock.now_ms()
    if asked.count > FEW_PARTITIONS or asked.is_over:
        return False
    try:
        try:
            if not turns.take_all(reading.read(changed)):
                reading.let_go()
                changed.clear()  # read here, and not once more when its own task has its turn
                return False
            answer = turns.take_all(_answer(reading, asked, context))
        finally:
            context.account.spent_ms += context.broker.clock.now_ms() - began_ms  # of its own client's quota
        send(answer)
    except BaseException:
        reading.let_go()
        raise
    return True


async def _is_enough(
    reading: FetchReading, changed: set[TopicPartition] | None, context: RequestContext
) -> bool:
    try:
        return await context.broker.turns.finish_steps(reading.read(changed), context.account)
    except BaseException:
        reading.let_go()
        raise


def _limits_of(request: FetchRequest, context: RequestContext) -> FetchLimits:
    settings = context.broker.settings
    max_bytes = min(request.max_bytes, settings.limits.fetch_max_bytes)
    state = request.replica_state
    replica_id, replica_epoch = state.replica_id, state.replica_epoch
    if replica_id < 0:
        replica_id, replica_epoch = request.replica_id, -1
    if replica_id >= 0:
        isolation = FetchIsolation.LOG_END
    elif request.isolation_level == IsolationLevel.READ_COMMITTED:
        isolation = FetchIsolation.TXN_COMMITTED
    else:
        isolation = FetchIsolation.HIGH_WATERMARK
    is_sent_on = replica_id < 0 and settings.replication.replica_selector_class == RACK_AWARE_SELECTOR
    return FetchLimits(
        max_bytes,
        min(request.min_bytes, max_bytes),
        isolation,
        replica_id,
        replica_epoch,
        request.rack_id if is_sent_on else "",
    )


def _session_request_of(
    request: FetchRequest, context: RequestContext, *, is_follower: bool
) -> Steps[SessionRequest]:
    """Return the request with every partition once: as in Kafka, the last mention in place of the first."""
    uses_topic_ids = context.version >= FIRST_TOPIC_ID_VERSION
    asked: dict[PartitionKey, SessionPartition] = {}
    numbers = count(1)
    for topic in request.topics:
        for each in topic.partitions:
            if next(numbers) % PARTITIONS_IN_A_UNIT == 0:
                yield 1
            if uses_topic_ids:
                asked[topic.topic_id, each.partition] = SessionPartition(each, None, topic.topic_id)
            else:
                where = TopicPartition(topic.topic, each.partition)
                asked[where] = SessionPartition(each, where, topic.topic_id)
    forgotten = (
        (topic.topic_id if uses_topic_ids else topic.topic, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    )
    return SessionRequest(
        request.session_id, request.session_epoch, uses_topic_ids, is_follower, asked, forgotten
    )


def _answer(reading: FetchReading, asked: FetchContext, context: RequestContext) -> Steps[FetchResponse]:
    """Make the answer; the connection closes its file slices."""
    answer = yield from asked.answer(reading.fetched, context.broker.clock.now_ms())
    if answer.error_code:
        reading.let_go()
    topics: list[FetchableTopicResponse] = []
    leaders: dict[int, NodeEndpoint] = {}
    last: tuple[bytes, str] | None = None
    for number, fetched in enumerate(answer.partitions, 1):
        if number % PARTITIONS_IN_A_UNIT == 0:
            yield 1
        topic_id, where = fetched.partition.topic_id, fetched.partition.topic_partition
        topic = (topic_id, "" if where is None else where.topic)
        if topic != last:
            topics.append(FetchableTopicResponse(topic=topic[1], topic_id=topic_id, partitions=[]))
            last = topic
        topics[-1].partitions.append(fetched.answer)
        if where is not None and fetched.answer.error_code in _MOVED:
            _name_leader(fetched.answer, where, leaders, context)
    return FetchResponse(
        error_code=answer.error_code,
        session_id=answer.session_id,
        responses=topics,
        node_endpoints=list(leaders.values()),
    )


def _name_leader(
    answer: PartitionData, where: TopicPartition, leaders: dict[int, NodeEndpoint], context: RequestContext
) -> None:
    """Name the leader and its address (KIP-951)."""
    leader = context.broker.leadership.leader_of(where)
    if leader is None or context.version < _FIRST_LEADER_VERSION:
        return
    address = context.broker.leadership.brokers(context.address).get(leader.node_id)
    if address is not None:
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.leader_epoch)
        if context.version >= _FIRST_ENDPOINT_VERSION:
            leaders[leader.node_id] = NodeEndpoint(
                node_id=leader.node_id,
                host=address.host,
                port=address.port,
                rack=context.broker.controller.state.rack_of(leader.node_id),
            )
