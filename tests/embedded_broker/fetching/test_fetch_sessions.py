"""Fetch sessions (KIP-227): ids and epochs, what is answered, in which order, and who gives way to whom."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.broker.steps import at_once
from support.running.examples import examples

from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.fetching import sessions as sessions_module
from splashdam.embedded_broker.fetching.sessions import (
    FetchAnswer,
    FetchContext,
    Fetched,
    FetchSessions,
    SessionPartition,
    SessionRequest,
    next_epoch,
)
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.fetch import EpochEndOffset, FetchPartition, PartitionData

MAX_INT = 2**31 - 1

T = TypeVar("T")


def question(
    numbers: Iterable[int] = (),
    *,
    session: tuple[int, int] = (0, 0),
    forgotten: Iterable[int] = (),
    follower: bool = False,
    ids: bool = False,
    offset: int = 0,
) -> SessionRequest:
    """A request for partitions of one topic."""
    topic: str | bytes = b"i" * 16 if ids else "t"
    asked = {
        (topic, number): SessionPartition(
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1),
            TopicPartition("t", number),
            b"i" * 16 if ids else bytes(16),
        )
        for number in numbers
    }
    return SessionRequest(*session, ids, follower, asked, [(topic, number) for number in forgotten])


def same(context: FetchContext) -> list[Fetched]:
    """The same answer for each partition: nothing has come."""
    return [Fetched(each, part(each), 0) for each in context.partitions]


def part(partition: SessionPartition, **fields: object) -> PartitionData:
    return PartitionData(
        partition_index=partition.asked.partition,
        **{"high_watermark": 5, "log_start_offset": 0, **fields},  # type: ignore[arg-type]  # mixed types
    )


def numbers(answer: FetchAnswer) -> list[int]:
    return [each.answer.partition_index for each in answer.partitions]


def fetch(sessions: FetchSessions, asked: SessionRequest, now_ms: float = 0) -> FetchAnswer:
    context = at_once(sessions.context(asked, now_ms))
    return at_once(context.answer(same(context), now_ms))


def code_of(sessions: FetchSessions, asked: SessionRequest) -> int:
    with pytest.raises(BrokerResponseError) as caught:
        at_once(sessions.context(asked, 0))
    return caught.value.code


def test_a_full_fetch_opens_a_session_and_an_incremental_one_answers_changes() -> None:
    """First everything; then nothing, until a partition has something to say."""
    sessions = FetchSessions(10)
    first = fetch(sessions, question([0, 1, 2]))
    assert (numbers(first), first.session_id > 0) == ([0, 1, 2], True)
    second = fetch(sessions, question(session=(first.session_id, 1)))
    assert second == (0, first.session_id, [])
    context = at_once(sessions.context(question(session=(first.session_id, 2)), 0))
    a, b, c = context.partitions
    fetched = [Fetched(a, part(a), 0), Fetched(b, part(b), 9), Fetched(c, part(c, log_start_offset=1), 0)]
    assert numbers(at_once(context.answer(fetched, 0))) == [1, 2]


@pytest.mark.parametrize(
    "fields",
    [
        {"high_watermark": 6},
        {"log_start_offset": 3},
        {"preferred_read_replica": 2},
        {"diverging_epoch": EpochEndOffset(epoch=1, end_offset=2)},
        {"error_code": 6},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_changes_that_put_a_partition_into_the_answer(fields: dict[str, object]) -> None:
    """Each change is answered once, an error each time, and the end of an error, too."""
    sessions = FetchSessions(1)
    session_id = fetch(sessions, question([0])).session_id
    epochs = count(1)
    for _ in range(2):
        context = at_once(sessions.context(question(session=(session_id, next(epochs))), 0))
        (only,) = context.partitions
        assert numbers(at_once(context.answer([Fetched(only, part(only, **fields), 0)], 0))) == [0]
        if "high_watermark" in fields or "log_start_offset" in fields:
            break
    again = fetch(sessions, question(session=(session_id, next(epochs))))
    has_changed = {"high_watermark", "log_start_offset", "error_code"} & set(fields)
    assert numbers(again) == ([0] if has_changed else [])
    assert numbers(fetch(sessions, question(session=(session_id, next(epochs))))) == []


def test_partitions_with_records_go_to_the_end() -> None:
    """So that none starves where max_bytes is small; others keep their places."""
    sessions = FetchSessions(1)
    session_id = fetch(sessions, question([0, 1, 2, 3], ids=True)).session_id
    context = at_once(sessions.context(question(session=(session_id, 1), ids=True), 0))
    got = [Fetched(each, part(each), 7 * (each.asked.partition in (0, 2))) for each in context.partitions]
    assert numbers(at_once(context.answer(got, 0))) == [0, 2]
    context = at_once(sessions.context(question(session=(session_id, 2), ids=True), 0))
    assert [each.asked.partition for each in context.partitions] == [1, 3, 0, 2]


def test_partitions_come_change_and_go() -> None:
    """Listed ones are added or changed, forgotten ones go; a session that is left empty is closed."""
    sessions = FetchSessions(1)
    session_id = fetch(sessions, question([0, 1])).session_id
    context = at_once(
        sessions.context(question([1, 2], session=(session_id, 1), forgotten=[0, 7], offset=3), 0)
    )
    assert [(each.asked.partition, each.asked.fetch_offset) for each in context.partitions] == [
        (1, 3),
        (2, 3),
    ]
    assert numbers(at_once(context.answer(same(context), 0))) == [2]
    assert (len(sessions), sessions.partitions) == (1, 2)
    last = fetch(sessions, question(session=(session_id, 2), forgotten=[1, 2]))
    assert last == (0, 0, [])
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_errors() -> None:
    """70 unknown, 71 wrong epoch, 106 ids here and names there; none changes the session."""
    sessions = FetchSessions(1)
    session_id = fetch(sessions, question([0])).session_id
    assert code_of(sessions, question(session=(session_id ^ 1, 1))) == 70
    assert code_of(sessions, question(session=(0, 1))) == 70
    assert code_of(sessions, question(session=(session_id, 2))) == 71
    assert code_of(sessions, question(session=(session_id, -5))) == 71
    assert code_of(sessions, question(session=(session_id, 1), ids=True)) == 106
    assert fetch(sessions, question(session=(session_id, 1))).error_code == 0


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_closes_the_session_it_names(epoch: int) -> None:
    """Epoch 0 opens another one, -1 none."""
    sessions = FetchSessions(1)
    session_id = fetch(sessions, question([0])).session_id
    answer = fetch(sessions, question([0], session=(session_id, epoch)))
    assert numbers(answer) == [0]
    assert (answer.session_id == 0) == (epoch == -1)
    assert code_of(sessions, question(session=(session_id, 1))) == 70


def test_a_request_that_overtook_a_parked_one() -> None:
    """The parked one is answered with 71 and the session's id: the client went on elsewhere."""
    sessions = FetchSessions(1)
    session_id = fetch(sessions, question([0])).session_id
    parked = at_once(sessions.context(question(session=(session_id, 1)), 0))
    at_once(sessions.context(question(session=(session_id, 2)), 0))
    assert at_once(parked.answer(same(parked), 0)) == (71, session_id, [])


def test_epochs_wrap() -> None:
    """Behind the last one comes 1."""
    assert [next_epoch(epoch) for epoch in (0, 1, MAX_INT - 1, MAX_INT)] == [1, 2, MAX_INT, 1]


def test_no_room() -> None:
    """Without slots, or with too many partitions, the answer is complete and opens no session."""
    assert fetch(FetchSessions(0), question([0]))[:2] == (0, 0)
    sessions = FetchSessions(5, max_partitions=3)
    assert fetch(sessions, question(range(4))).session_id == 0
    session_id = fetch(sessions, question(range(3))).session_id
    assert fetch(sessions, question([0])).session_id == 0
    assert code_of(sessions, question([3], session=(session_id, 1))) == 70
    assert (len(sessions), sessions.partitions) == (0, 0)


@pytest.mark.parametrize("asked", [question(range(4)), question([3], session=(9, 1))], ids=["new", "grown"])
def test_no_room_for_so_large_a_session(asked: SessionRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session is closed in one step, so there is a limit for each."""
    monkeypatch.setattr(sessions_module, "MAX_SESSION_PARTITIONS", 3)
    sessions = FetchSessions(2, new_id=iter([9, 10]).__next__)
    assert fetch(sessions, question(range(3))).session_id == 9
    if asked.session_id:
        assert code_of(sessions, asked) == 70
        assert (len(sessions), sessions.partitions) == (0, 0)
    else:
        assert fetch(sessions, asked).session_id == 0
        assert (len(sessions), sessions.partitions) == (1, 3)


def units_of(steps: Steps[T]) -> tuple[int, T]:
    """Take all steps; return how many units they were, and the result."""
    units = 0
    try:
        while True:
            step = next(steps)
            assert isinstance(step, int)
            units += step
    except StopIteration as end:
        return units, end.value


def test_the_partitions_of_a_session_were_added_in_one_step() -> None:
    """45,000 of them kept the loop for 0.1 s."""
    sessions = FetchSessions(1)
    context = at_once(sessions.context(question(range(1600)), 0))
    units, answer = units_of(context.answer(same(context), 0))
    assert units == 200
    for epoch, (asked, forgotten) in enumerate([(range(1600), ()), ((), range(1600))], 1):
        change = question(asked, session=(answer.session_id, epoch), forgotten=forgotten)
        units, context = units_of(sessions.context(change, 0))
        assert units == 100
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_a_client_that_leaves_while_its_partitions_are_added_has_them_counted() -> None:
    """Otherwise many that leave would fill the memory past its limit."""
    sessions = FetchSessions(1, max_partitions=60)
    session_id = fetch(sessions, question([0])).session_id
    for epoch, steps_taken, partitions in ((1, 1, 16), (2, 1, 31), (3, 2, 0)):
        added = range(100 * epoch, 100 * epoch + 40)
        steps = sessions.context(question(added, session=(session_id, epoch)), 0)
        for _ in range(steps_taken):
            next(steps)
        steps.close()
        assert sessions.partitions == partitions
    assert len(sessions) == 0


def test_a_session_is_closed_while_partitions_are_added() -> None:
    """Whoever closed it, the client learns that it is not there."""
    sessions = FetchSessions(1)
    session_id = fetch(sessions, question([0])).session_id
    steps = sessions.context(question(range(40), session=(session_id, 1)), 0)
    next(steps)
    at_once(sessions.context(question(session=(session_id, -1)), 0))
    with pytest.raises(BrokerResponseError) as caught:
        at_once(steps)
    assert caught.value.code == 70
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_another_session_takes_the_room_while_one_is_made() -> None:
    """Room is asked for again when all partitions are there."""
    sessions = FetchSessions(5, max_partitions=50)
    context = at_once(sessions.context(question(range(40)), 0))
    steps = context.answer(same(context), 0)
    next(steps)
    assert fetch(sessions, question(range(20))).session_id
    assert at_once(steps).session_id == 0
    assert (len(sessions), sessions.partitions) == (1, 20)


@pytest.mark.parametrize(
    ("old", "new", "now_ms", "evicts"),
    [
        ({"size": 5}, {"size": 1}, 120_000, False),
        ({"size": 5}, {"size": 1}, 120_001, True),
        ({"size": 5, "follower": True}, {"size": 1}, 120_001, True),
        ({"size": 1}, {"size": 9}, 0, False),
        ({"size": 5}, {"size": 1, "follower": True}, 0, True),
        ({"size": 5, "follower": True}, {"size": 9, "follower": True}, 0, False),
    ],
    ids=["used lately", "stale", "stale follower", "larger but both new", "follower", "two followers"],
)
def test_which_session_is_evicted(
    old: dict[str, int], new: dict[str, int], now_ms: int, evicts: bool
) -> None:
    """A stale session to all; one of a client to a follower."""
    sessions = FetchSessions(1)
    first, second = (
        question(range(each["size"]), follower=bool(each.get("follower"))) for each in (old, new)
    )
    session_id = fetch(sessions, first).session_id
    assert (fetch(sessions, second, now_ms).session_id > 0) == evicts
    assert len(sessions) == 1
    assert (session_id in sessions._sessions) == (not evicts)


@pytest.mark.parametrize(("size", "evicts"), [(2, False), (3, False), (4, True)])
def test_an_old_session_gives_way_to_a_larger_one(size: int, evicts: bool) -> None:
    """Where it is older than two minutes, however lately it was used; the smallest goes."""
    sessions = FetchSessions(2)
    ids = [fetch(sessions, question(range(each))).session_id for each in (3, 9)]
    for epoch in range(1, 4):
        for session_id in ids:
            fetch(sessions, question(session=(session_id, epoch)), epoch * 60_000)
    assert (fetch(sessions, question(range(size)), 180_000).session_id > 0) == evicts
    assert (ids[0] in sessions._sessions, ids[1] in sessions._sessions) == (not evicts, True)


PARTITIONS = st.sets(st.integers(0, 5), max_size=6)


class SessionMachine(RuleBasedStateMachine):
    """A client and a broker with logs of random length: the client knows all that it should."""

    @initialize()
    def begin(self) -> None:
        self.sessions = FetchSessions(3, max_partitions=12)
        self.logs = dict.fromkeys(range(6), 0)
        self.broken: set[int] = set()
        self.known: dict[int, tuple[int, int]] = {}
        self.wanted: set[int] = set()
        self.session = (0, 0)
        self.has_errors: set[int] = set()

    @rule(number=st.integers(0, 5))
    def append(self, number: int) -> None:
        self.logs[number] += 1

    @rule(number=st.integers(0, 5))
    def break_or_mend(self, number: int) -> None:
        self.broken ^= {number}

    @rule(size=st.integers(1, 6))
    def somebody_else(self, size: int) -> None:
        fetch(self.sessions, question(range(size)))

    @rule(wanted=PARTITIONS)
    def fetch_again(self, wanted: set[int]) -> None:
        is_full = self.session[1] <= 0
        listed = wanted if is_full else wanted - self.wanted
        asked = question(listed, session=self.session, forgotten=() if is_full else self.wanted - wanted)
        try:
            context = at_once(self.sessions.context(asked, 0))
        except BrokerResponseError:  # another one came into its place, or there is no room for more
            self.session, self.wanted = (0, 0), set()
            return
        assert {each.asked.partition for each in context.partitions} == wanted
        answer = at_once(context.answer([self._read(each) for each in context.partitions], 0))
        for _, found, _ in answer.partitions:
            self.known[found.partition_index] = (found.error_code, found.high_watermark)
        for number in wanted:
            is_broken = number in self.broken
            assert self.known[number] == ((6, -1) if is_broken else (0, self.logs[number]))
        self.wanted = wanted if answer.session_id else set()
        self.session = (
            (answer.session_id, next_epoch(max(self.session[1], 0))) if answer.session_id else (0, 0)
        )

    def _read(self, partition: SessionPartition) -> Fetched:
        number = partition.asked.partition
        if number in self.broken:
            return Fetched(partition, part(partition, error_code=6, high_watermark=-1), 0)
        return Fetched(partition, part(partition, high_watermark=self.logs[number]), 0)

    @invariant()
    def counts_are_right(self) -> None:
        sessions = self.sessions._sessions.values()
        assert len(self.sessions) <= 3
        assert self.sessions.partitions == sum(len(each.partitions) for each in sessions) <= 12


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
