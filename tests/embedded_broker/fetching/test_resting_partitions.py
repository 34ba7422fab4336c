"""Partitions of fetch sessions that rest: what wakes them, and what a session leaves behind when it ends."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from itertools import count

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.broker.broker_talk import MIB, Talk, batch, produce, records_of
from support.broker.steps import at_once
from support.running.examples import examples
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.fetching.sessions import (
    FetchContext,
    FetchSessions,
    PartitionKey,
    SessionPartition,
    SessionRequest,
)
from splashdam.embedded_broker.topics.parking import FetchParking, FetchWaiter
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

T0 = TopicPartition("t", 0)
OLD, NEW = (b"o" * 16, 0), (b"n" * 16, 0)
"""A partition by the id of a topic t that was deleted, and by that of the one which was made after it."""


def question(
    *asked: PartitionKey, session: tuple[int, int] = (0, 0), forgotten: Iterable[PartitionKey] = ()
) -> SessionRequest:
    """A request for partitions of t, by id."""
    partitions: dict[PartitionKey, SessionPartition] = {
        key: SessionPartition(
            FetchPartition(partition=key[1], fetch_offset=0, partition_max_bytes=1),
            TopicPartition("t", key[1]),
            bytes(key[0]) if isinstance(key[0], bytes) else bytes(16),
        )
        for key in asked
    }
    return SessionRequest(*session, True, False, partitions, forgotten)


def looked_at(context: FetchContext) -> list[PartitionKey]:
    return [(each.topic_id, each.asked.partition) for each in context.partitions]


def rest(context: FetchContext, *keys: PartitionKey) -> None:
    """Nothing is to be read of these partitions."""
    for each in list(context.partitions):
        if (each.topic_id, each.asked.partition) in keys:
            context.rest(each, None)


def opened_with(sessions: FetchSessions, asked: SessionRequest, now_ms: float = 0) -> int:
    """Open a session with a full fetch, and return its id."""
    return at_once(at_once(sessions.context(asked, now_ms)).answer([], now_ms)).session_id


def watchers(parking: FetchParking) -> int:
    return sum(len(each) for each in parking._waiters.values())


@pytest.fixture
def parking() -> FetchParking:
    """Tells what happens to partitions."""
    return FetchParking()


@pytest.fixture
def sessions(parking: FetchParking) -> FetchSessions:
    """Room for a single session."""
    return FetchSessions(1, parking)


def test_forgetting_a_deleted_topic_leaves_its_namesake_its_wake_up(
    parking: FetchParking, sessions: FetchSessions
) -> None:
    """Two ids share a name after delete and recreate; the watch of one was once taken from both."""
    session_id = opened_with(sessions, question(OLD))
    context = at_once(sessions.context(question(session=(session_id, 1)), 0))
    rest(context, OLD)
    context = at_once(sessions.context(question(NEW, session=(session_id, 2)), 0))
    rest(context, NEW)
    context = at_once(sessions.context(question(session=(session_id, 3), forgotten=[OLD]), 0))
    assert looked_at(context) == []
    parking.appended(T0, 1)
    assert looked_at(context) == [NEW]


def test_both_of_two_namesakes_wake(parking: FetchParking, sessions: FetchSessions) -> None:
    """The second that came to rest was once the only one that anything could wake."""
    session_id = opened_with(sessions, question(OLD, NEW))
    context = at_once(sessions.context(question(session=(session_id, 1)), 0))
    rest(context, OLD, NEW)
    assert looked_at(context) == []
    parking.changed(T0)
    assert looked_at(context) == [OLD, NEW]


@pytest.mark.parametrize("how", ["evicted", "opened anew", "ended"])
async def test_a_closed_session_is_registered_nowhere(
    parking: FetchParking, sessions: FetchSessions, how: str
) -> None:
    """A fetch may still be at work on it: what it says is not heard."""
    session_id = opened_with(sessions, question(OLD, (b"n" * 16, 1)))
    context = at_once(sessions.context(question(session=(session_id, 1)), 0))
    rest(context, OLD)
    assert watchers(parking) == 1
    if how == "evicted":
        assert opened_with(sessions, question(NEW), 1_000_000)
    else:
        at_once(sessions.context(question(session=(session_id, 0 if how == "opened anew" else -1)), 0))
    assert watchers(parking) == 0
    rest(context, OLD, (b"n" * 16, 1))
    with FetchWaiter(parking, context.waited_for()) as waiter, context.parked(waiter):
        rest(context, OLD)
        assert watchers(parking) == 0
    assert (watchers(parking), parking.parked) == (0, 0)


@pytest.mark.parametrize("grows", [True, False])
async def test_partitions_that_come_and_go_during_a_wait_are_counted_once(
    parking: FetchParking, sessions: FetchSessions, grows: bool
) -> None:
    """The number of those that are waited for once fell below zero, and could not be asked any more."""
    more = [(b"n" * 16, number) for number in range(1, 5)]
    begin = [OLD] if grows else [OLD, *more]
    session_id = opened_with(sessions, question(*begin))
    context = at_once(sessions.context(question(session=(session_id, 1)), 0))
    with FetchWaiter(parking, context.waited_for()) as waiter, context.parked(waiter):
        assert parking.parked == len(begin)
        at_once(
            sessions.context(
                question(*(more if grows else ()), session=(session_id, 2), forgotten=() if grows else more),
                0,
            )
        )
        assert parking.parked == len(begin)
    assert parking.parked == 0


# --- any order of events ------------------------------------------------------------------------------------

NUMBERS = st.integers(0, 1)
GENERATIONS = st.integers(0, 2)
"""Of topic t, by which its id goes."""


class Client:
    """A session as its client knows it."""

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.kept: set[PartitionKey] = set()
        self.news: set[PartitionKey] = set()  # to be looked at by the next fetch
        self.parked: list[ExitStack] = []


class RestMachine(RuleBasedStateMachine):
    """Two clients' sessions, by name or by id, of a topic that is deleted and made again.

    What the model knows: each partition that was asked for anew, or to which something happened since it came
    to rest, is looked at by the next fetch of its session, and no other one is.
    """

    @initialize(uses_ids=st.booleans())
    def begin(self, uses_ids: bool) -> None:
        self.uses_ids = uses_ids
        self.parking = FetchParking()
        self.sessions = FetchSessions(2, self.parking, new_id=count(1).__next__)
        self.clients: dict[int, Client] = {}
        self.fetches: list[tuple[Client, FetchContext]] = []

    def key(self, generation: int, number: int) -> PartitionKey:
        return (bytes([generation]) * 16, number) if self.uses_ids else TopicPartition("t", number)

    def ask(
        self, session: tuple[int, int], keys: Iterable[PartitionKey], forgotten: Iterable[PartitionKey] = ()
    ) -> SessionRequest:
        return question(*keys, session=session, forgotten=forgotten)._replace(uses_topic_ids=self.uses_ids)

    @rule(slot=NUMBERS, asked=st.sets(st.tuples(GENERATIONS, NUMBERS), min_size=1))
    def open(self, slot: int, asked: set[tuple[int, int]]) -> None:
        """On a connection that may have had a session: that one ends."""
        keys = {self.key(*each) for each in asked}
        before = self.clients.pop(slot, None)
        session = (0 if before is None else before.session_id, 0)
        session_id = opened_with(self.sessions, self.ask(session, keys))
        assert session_id
        client = self.clients[slot] = Client(session_id)
        client.kept, client.news = set(keys), set(keys)
        self.fetch_in(client, set(), set())

    @precondition(lambda self: self.clients)
    @rule(
        data=st.data(),
        asked=st.sets(st.tuples(GENERATIONS, NUMBERS)),
        forgotten=st.sets(st.tuples(GENERATIONS, NUMBERS)),
    )
    def fetch(
        self, data: st.DataObject, asked: set[tuple[int, int]], forgotten: set[tuple[int, int]]
    ) -> None:
        """Adds, changes and forgets; the model says what is looked at."""
        slot = data.draw(st.sampled_from(sorted(self.clients)))
        more, less = {self.key(*each) for each in asked}, {self.key(*each) for each in forgotten}
        self.fetch_in(self.clients[slot], more, less)
        if not self.clients[slot].kept:
            del self.clients[slot]

    def fetch_in(self, client: Client, more: set[PartitionKey], less: set[PartitionKey]) -> None:
        context = at_once(self.sessions.context(self.ask((client.session_id, client.epoch), more, less), 0))
        client.epoch += 1
        client.kept = (client.kept | more) - less
        client.news = (client.news | more) - less
        if client.kept:
            assert self.seen(context) == client.news
            self.fetches.append((client, context))
            self.rest_in(client, context)

    def rest_in(self, client: Client, context: FetchContext) -> None:
        for each in list(context.partitions):
            context.rest(each, None)
            client.news.discard(self.key_of(each))

    def seen(self, context: FetchContext) -> set[PartitionKey]:
        return {self.key_of(each) for each in context.partitions}

    def key_of(self, partition: SessionPartition) -> PartitionKey:
        number = partition.asked.partition
        return (partition.topic_id, number) if self.uses_ids else TopicPartition("t", number)

    @precondition(lambda self: self.fetches)
    @rule(data=st.data())
    def rest(self, data: st.DataObject) -> None:
        """By any fetch that was ever made, whatever has become of its session."""
        self.rest_in(*data.draw(st.sampled_from(self.fetches)))

    @rule(number=NUMBERS, how=st.sampled_from(["appended", "changed", "high_watermark_moved"]))
    def happen(self, number: int, how: str) -> None:
        """To a partition of this name, of whichever topic."""
        where = TopicPartition("t", number)
        if how == "appended":
            self.parking.appended(where, 1)
        else:
            getattr(self.parking, how)(where)
        for client in self.clients.values():
            client.news |= {each for each in client.kept if each[1] == number}

    @precondition(lambda self: self.fetches)
    @rule(data=st.data())
    def park(self, data: st.DataObject) -> None:
        """As long as other things happen, or until its session is gone."""
        client, context = data.draw(st.sampled_from(self.fetches))
        stack = ExitStack()
        stack.enter_context(context.parked(stack.enter_context(FetchWaiter(self.parking, ()))))
        client.parked.append(stack)
        self.fetches.append((client, context))

    @precondition(lambda self: any(client.parked for client, _ in self.fetches))
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """One that was parked."""
        waiting = [client for client, _ in self.fetches if client.parked]
        data.draw(st.sampled_from(waiting)).parked.pop().close()

    @rule(slot=NUMBERS)
    def end(self, slot: int) -> None:
        """A client takes its leave."""
        client = self.clients.pop(slot, None)
        if client is not None:
            at_once(self.sessions.context(self.ask((client.session_id, -1), ()), 0))

    @invariant()
    def the_next_fetch_looks_at_what_has_news_and_at_nothing_else(self) -> None:
        for client, context in self.fetches:
            if client in self.clients.values():
                assert self.seen(context) == client.news

    @invariant()
    def who_hears_of_partitions_is_a_session_that_there_is(self) -> None:
        heard = {each for watching in self.parking._waiters.values() for each in watching}
        assert heard <= set(self.sessions._sessions.values())
        assert self.parking.parked >= 0

    def teardown(self) -> None:
        """Nothing stays, neither registered nor counted."""
        if not hasattr(self, "clients"):
            return
        for slot in list(self.clients):
            self.end(slot)
        assert watchers(self.parking) == 0
        for client, _ in self.fetches:
            while client.parked:
                client.parked.pop().close()
        assert (watchers(self.parking), self.parking.parked, len(self.sessions)) == (0, 0, 0)


TestRestMachine = RestMachine.TestCase
TestRestMachine.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)


# --- over the wire ------------------------------------------------------------------------------------------


def request(broker: Broker, session: tuple[int, int], *numbers: int, **fields: int) -> FetchRequest:
    """A fetch of partitions of t in a session, which waits."""
    topic = broker.topics.get("t")
    assert topic is not None
    asked = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=MIB) for number in numbers]
    return FetchRequest(
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic_id=topic.topic_id, partitions=asked)] if asked else [],
        **{"min_bytes": 1, "max_wait_ms": 0, **fields},
    )


async def opened(talk: Talk, broker: Broker) -> int:
    """A session whose partitions rest."""
    answer: FetchResponse = await talk.ask(request(broker, (0, 0), 0, 1), 16)
    assert (await talk.ask(request(broker, (answer.session_id, 1)), 16)).responses == []
    return answer.session_id


@pytest.mark.parametrize("epoch", [0, -1])
async def test_a_fetch_that_waits_in_a_session_which_ends_is_answered(
    talk: Talk, network: MemoryNetwork, broker: Broker, autojump_clock: MockClock, epoch: int
) -> None:
    """It once waited for the rest of its time, deaf; its client hears of it with the next request."""
    broker.topics.create("t", 2)
    session_id = await opened(talk, broker)
    other = Talk(await network.connect("broker", 9092))
    before = trio.current_time()
    await talk.send(request(broker, (session_id, 2), max_wait_ms=60_000), 16)
    await trio.testing.wait_all_tasks_blocked()
    assert (await other.ask(request(broker, (session_id, epoch), 0), 16)).error_code == 0
    answer: FetchResponse = await talk.answer()
    assert (answer.error_code, answer.session_id, answer.responses) == (0, session_id, [])
    assert trio.current_time() == before
    assert (await talk.ask(request(broker, (session_id, 3)), 16)).error_code == (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )
    assert (watchers(broker.parking), broker.parking.parked) == (0, 0)


async def test_a_topic_that_was_made_again_wakes_a_fetch_after_the_old_one_was_forgotten(
    talk: Talk, network: MemoryNetwork, broker: Broker, autojump_clock: MockClock
) -> None:
    """As a consumer that goes on with the new topic: it once heard of no record any more."""
    old = broker.topics.create("t", 1)
    answer: FetchResponse = await talk.ask(request(broker, (0, 0), 0), 16)
    session = answer.session_id
    await talk.ask(request(broker, (session, 1)), 16)
    broker.topics.delete(old)
    broker.topics.create("t", 1)
    for epoch in (2, 3):
        await talk.ask(request(broker, (session, epoch), *([0] if epoch == 2 else [])), 16)
    last = request(broker, (session, 4), max_wait_ms=60_000)
    last.forgotten_topics_data = [ForgottenTopic(topic_id=old.topic_id, partitions=[0])]
    before = trio.current_time()
    await talk.send(last, 16)
    await trio.testing.wait_all_tasks_blocked()
    await produce(Talk(await network.connect("broker", 9092)), "t", batch(b"a"))
    answer = await talk.answer()
    (part,) = answer.responses[0].partitions
    assert [record.value for record in records_of(part.records)] == [b"a"]
    assert trio.current_time() == before
