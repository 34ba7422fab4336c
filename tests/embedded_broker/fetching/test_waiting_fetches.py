"""Fetches that wait: what wakes them, how soon they are answered, and what that costs."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Container
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trio
from support.broker.broker_talk import NOW_MS, Talk, batch, fetch_request, fetched, produce, records_of
from support.broker.loop_watch import Passes
from support.broker.transaction_talk import RawProducer
from support.running.patches import guard
from trio.testing import MockClock, wait_all_tasks_blocked

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.execution import turns
from splashdam.embedded_broker.fetching.reading import FEW_PARTITIONS, FetchReading
from splashdam.embedded_broker.serving.sending import Outbox
from splashdam.embedded_broker.topics.parking import FetchParking, FetchWaiter
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.log import Log
from splashdam.wire.messages.fetch import PartitionData

FIRST = TopicPartition("t", 0)
PATIENT = {"min_bytes": 1, "max_wait_ms": 60_000}

OverTcp: TypeAlias = tuple[Broker, Talk, Talk]
"""A broker, and two clients."""


@pytest.fixture
async def broker(broker: Broker) -> Broker:
    """The broker, with a topic of three partitions."""
    broker.topics.create("t", 3)
    return broker


@pytest.fixture
async def producer(network: MemoryNetwork, broker: Broker) -> Talk:
    """Another client."""
    return Talk(await network.connect("broker", 9092))


@pytest.fixture
async def over_tcp(tmp_path: Path) -> AsyncIterator[OverTcp]:
    """A broker with the same topic on a port, in real time: it writes to sockets at once."""
    async with open_broker(tmp_path) as opened:
        opened.topics.create("t", 3)
        host, port = opened.addresses[0]
        async with (
            await trio.open_tcp_stream(host, port) as consuming,
            await trio.open_tcp_stream(host, port) as producing,
        ):
            yield opened, Talk(consuming), Talk(producing)


async def until_parked(broker: Broker, count: int) -> None:
    """Wait until fetches of so many partitions wait."""
    with trio.fail_after(300):
        while broker.parking.parked != count:
            await trio.lowlevel.checkpoint()


async def park(talk: Talk, offset: int = 0, **options: Any) -> None:
    """Send a fetch of all partitions that waits."""
    await talk.send(fetch_request("t", offset, partitions=(0, 1, 2), **{**PATIENT, **options}), 12)
    await wait_all_tasks_blocked()


async def values(talk: Talk) -> list[list[bytes | None]]:
    """Return the values in the next answer, by partition."""
    return [[record.value for record in records_of(part.records)] for part in fetched(await talk.answer())]


async def test_a_record_reached_a_waiting_fetch_three_passes_of_the_scheduler_later(
    over_tcp: OverTcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a record's way to a consumer was these passes and what they did again."""
    broker, talk, producer = over_tcp
    passes, at = Passes(), {}
    append, write_now = Log.append_as_leader, Outbox.write_now

    def appended(self: Log, *given: Any, **options: Any) -> Any:
        at["appended"] = passes.count
        return append(self, *given, **options)

    def written(self: Outbox) -> bool:
        at["written"] = passes.count
        return write_now(self)

    monkeypatch.setattr(Log, "append_as_leader", appended)
    monkeypatch.setattr(Outbox, "write_now", written)
    await talk.send(fetch_request("t", 0, partitions=(0, 1, 2), **PATIENT), 12)
    await until_parked(broker, 3)
    trio.lowlevel.add_instrument(passes)
    await produce(producer, "t", batch(b"a"))
    assert await values(talk) == [[b"a"], [], []]
    trio.lowlevel.remove_instrument(passes)
    assert at["written"] == at["appended"]


async def test_a_wake_read_all_partitions_of_a_fetch_again(
    talk: Talk, producer: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those without an event since they were read have nothing new: a fetch may name thousands."""
    reads: list[int] = []
    read = Log.read

    def counted(self: Log, *given: Any, **options: Any) -> Any:
        reads.append(self.topic_partition.partition)
        return read(self, *given, **options)

    monkeypatch.setattr(Log, "read", counted)
    await park(talk)
    assert reads == [0, 1, 2]
    reads.clear()
    await produce(producer, "t", batch(b"a"), partition=1)
    assert await values(talk) == [[], [b"a"], []]
    assert reads == [1]


async def test_an_open_transaction_was_read_twice_for_each_of_its_batches(
    over_tcp: OverTcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the producer's turn, where it is not stable yet, and again in the waiting fetch's own."""
    broker, talk, producer = over_tcp
    reads: list[int] = []
    read, answer_now, listen = Log.read, FetchWaiter.answer_now, FetchWaiter.listen
    told: list[str] = []

    def counted(self: Log, *given: Any, **options: Any) -> Any:
        reads.append(self.topic_partition.partition)
        return read(self, *given, **options)

    def in_turn(self: FetchWaiter) -> None:
        told.append("in turn")
        answer_now(self)

    def listened(self: FetchWaiter) -> set[TopicPartition]:
        told.append("own task")
        return listen(self)

    writing = RawProducer(producer)
    assert await writing.initialize() == 0
    assert await writing.write(b"opens the transaction") == 0
    await talk.send(fetch_request("t", 0, partitions=(0, 1, 2), isolation_level=1, **PATIENT), 12)
    await until_parked(broker, 3)
    monkeypatch.setattr(Log, "read", counted)
    monkeypatch.setattr(FetchWaiter, "answer_now", in_turn)
    monkeypatch.setattr(FetchWaiter, "listen", listened)
    for number in range(1, 4):
        assert await writing.write(b"v") == 0
        with trio.fail_after(300):
            while len(told) < 2 * number:
                await trio.lowlevel.checkpoint()
        for _ in range(5):  # its own task reads right after it has listened
            await trio.lowlevel.checkpoint()
        assert (reads, told) == ([0] * number, ["in turn", "own task"] * number)
    assert await writing.end() == 0
    assert await values(talk) == [[b"opens the transaction", b"v", b"v", b"v"], [], []]


async def test_records_that_were_too_few_are_read_again(
    talk: Talk, producer: Talk, autojump_clock: MockClock
) -> None:
    """What was read before the wait is let go of, and comes with the answer."""
    await produce(producer, "t", batch(b"a"), partition=2)
    await park(talk, min_bytes=2 * len(batch(b"a")))
    await produce(producer, "t", batch(b"b"))
    assert await values(talk) == [[b"b"], [], [b"a"]]


@pytest.mark.parametrize("partitions", [64, 65])
async def test_a_waiting_fetch_kept_an_answer_for_each_partition(
    broker: Broker, talk: Talk, producer: Talk, autojump_clock: MockClock, partitions: int
) -> None:
    """One of 2,000 partitions held 340 bytes for each of them, however long it waited.

    Those of few partitions are kept: they spare a consumer that waits for a record some microseconds.
    """

    def count() -> int:
        gc.collect()
        return sum(isinstance(each, PartitionData) for each in gc.get_objects())

    before, kept = count(), partitions if partitions <= FEW_PARTITIONS else 0
    broker.topics.create("many", partitions)
    asked = fetch_request("many", 0, partitions=range(partitions), min_bytes=3 * len(batch(b"a")))
    asked.max_wait_ms = 60_000
    await talk.send(asked, 12)
    await wait_all_tasks_blocked()
    assert count() == before + kept
    for value, number in ((b"a", 1), (b"b", 2)):
        await produce(producer, "many", batch(value), partition=number)
        await wait_all_tasks_blocked()
        assert count() == before + kept
    await produce(producer, "many", batch(b"c"), partition=1)
    parts = fetched(await talk.answer())
    assert [part.partition_index for part in parts] == list(range(partitions))
    assert [part.high_watermark for part in parts] == [0, 2, 1] + [0] * (partitions - 3)
    values = [[record.value for record in records_of(part.records)] for part in parts]
    assert values == [[], [b"a", b"c"], [b"b"]] + [[]] * (partitions - 3)


async def test_an_append_before_the_fetch_is_parked_is_not_missed(
    talk: Talk, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its first read and its wait others have their turns: what happened meanwhile is read."""
    enter = FetchWaiter.__enter__

    def late(self: FetchWaiter) -> FetchWaiter:
        data = batch(b"a")
        broker.logs.logs[FIRST].append_as_leader(data, now_ms=NOW_MS)
        broker.parking.appended(FIRST, len(data))
        return enter(self)

    monkeypatch.setattr(FetchWaiter, "__enter__", late)
    await park(talk)
    assert await values(talk) == [[b"a"], [], []]


async def test_a_fetch_of_many_partitions_waits_for_its_own_turn(
    over_tcp: OverTcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer's turn does not pay for an answer of hundreds of partitions."""
    broker, talk, producer = over_tcp
    answers: list[bool] = []
    answer_now = FetchWaiter.answer_now

    def noted(self: FetchWaiter) -> None:
        answer_now(self)
        answers.append(self.is_answered)

    monkeypatch.setattr(FetchWaiter, "answer_now", noted)
    for topic, count in (("few", 64), ("many", 65)):
        broker.topics.create(topic, count)
        await talk.send(fetch_request(topic, 0, partitions=range(count), **PATIENT), 12)
        await until_parked(broker, count)
        await produce(producer, topic, batch(b"a"))
        assert sum(bool(part.records) for part in fetched(await talk.answer())) == 1
    assert answers == [True, False]


async def test_no_more_is_answered_than_the_turn_allows(
    over_tcp: OverTcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that is used up leaves a waiting fetch to its own task."""
    broker, talk, producer = over_tcp
    monkeypatch.setattr(FetchWaiter, "answer_now", guard("the turn is used up"))
    monkeypatch.setattr(turns, "TURN_UNITS", 1)
    await talk.send(fetch_request("t", 0, partitions=(0, 1, 2), **PATIENT), 12)
    await until_parked(broker, 3)
    await produce(producer, "t", batch(b"a"))
    assert await values(talk) == [[b"a"], [], []]
    assert not broker.parking.due


async def test_an_error_in_the_answer_closes_the_connection_of_its_own_client(
    talk: Talk, producer: Talk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The producer, in whose turn it happens, gets its answer and goes on."""
    await park(talk)

    def fail(*_given: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(FetchReading, "read", fail)
    assert (await produce(producer, "t", batch(b"a"))).error_code == 0
    assert await talk.is_closed()
    assert (await produce(producer, "t", batch(b"b"))).error_code == 0
    assert "the broker failed" in caplog.text
    caplog.clear()


async def test_the_deadline_does_not_answer_a_second_time(
    talk: Talk, broker: Broker, producer: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have come in the same pass of the scheduler, just before the answer."""
    scopes: list[trio.CancelScope] = []
    move_on_after = trio.move_on_after

    def noted(seconds: float) -> trio.CancelScope:
        scopes.append(move_on_after(seconds))
        return scopes[-1]

    monkeypatch.setattr(trio, "move_on_after", noted)
    await park(talk)
    monkeypatch.undo()
    data = batch(b"a")
    broker.logs.logs[FIRST].append_as_leader(data, now_ms=NOW_MS)
    scopes[-1].cancel()
    broker.parking.appended(FIRST, len(data))
    (waiter,) = broker.parking.due
    waiter.answer_now()
    assert await values(talk) == [[b"a"], [], []]
    await talk.ask(fetch_request("t", 0), 12)  # whose answer is the next one


async def test_a_fetch_is_answered_once_however_many_events_come(nursery: trio.Nursery) -> None:
    """Its task has its turn only after all producers of this pass have had theirs."""
    parking = FetchParking()
    answered: list[list[TopicPartition]] = []
    has_left = trio.Event()

    def answer(changed: Container[TopicPartition]) -> bool:
        answered.append([FIRST] if FIRST in changed else [])
        return True

    async def wait() -> None:
        with FetchWaiter(parking, [FIRST], answer=answer) as waiter:
            await waiter.wait(10)
            assert waiter.is_answered
        has_left.set()

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    parking.appended(FIRST, 9)
    assert not parking.due
    for _ in range(3):
        parking.appended(FIRST, 1)
        while parking.due:
            parking.due.popitem()[0].answer_now()
    parking.changed(FIRST)
    assert not parking.due
    assert answered == [[FIRST]]
    await has_left.wait()
