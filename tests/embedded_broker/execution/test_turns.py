"""No request keeps the loop long: what a turn unpacks, and what happens while the rest is done beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from support.broker.broker_talk import NOW_MS, Talk, batch, produce, produce_request
from support.broker.hostile_batches import LATE_MS, MIB, bomb, promising
from support.broker.quota_talk import alter
from support.running import patches

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.execution.answers import Account, Answer
from splashdam.embedded_broker.execution.turns import (
    HEAVY_BYTES,
    INLINE_BYTES,
    TURN_UNITS,
    UNIT_BYTES,
    WAITS_IN_A_TURN,
    Steps,
    Turns,
    let_others,
)
from splashdam.model.broker_errors import InvalidRecordError
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.record import reader, validation
from splashdam.record.batch import INT32, Codec, parse_header, stamp_crc
from splashdam.record.compression import MAX_DECOMPRESSED_BYTES, Compression, OverLimitError
from splashdam.record.sealing import build_batch
from splashdam.storage import timestamp_lookup
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.segments import segment
from splashdam.storage.segments.batch_scan import Head, iter_heads
from splashdam.storage.segments.indexes import TimeIndex
from splashdam.storage.timestamp_lookup import STEP_HEADS
from splashdam.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

T = TypeVar("T")

WHERE = TopicPartition("t", 0)
PACKED = {"compression.type": "lz4"}
COMPACTED = {"cleanup.policy": "compact"}


class GatedFiles(MemoryFiles):
    """Files in memory whose work beside the loop waits at a gate, while that is closed.

    Attributes:
        is_beside: whether such work is being done now.
        waiting: works at the gate.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_beside = False
        self.waiting = 0
        self._gate = trio.Event()
        self._gate.set()

    def shut(self) -> None:
        """Holds back what comes."""
        self._gate = trio.Event()

    def let_in(self) -> None:
        """Opens the gate."""
        self._gate.set()

    async def run(self, work: Callable[[], T]) -> T:
        """As ``Files.run``."""
        self.waiting += 1
        try:
            await trio.lowlevel.checkpoint()
            await self._gate.wait()
        finally:
            self.waiting -= 1
        self.is_beside = True
        try:
            return work()
        finally:
            self.is_beside = False

    async def wait_held(self) -> None:
        """Returns when work is at the gate."""
        while not self.waiting:
            await trio.lowlevel.checkpoint()


@pytest.fixture
def files() -> GatedFiles:
    """The broker's file system."""
    return GatedFiles()


class UnpackedBytes(trio.abc.Instrument):
    """Counts what the loop unpacks itself in one step of a task."""

    def __init__(self, files: GatedFiles) -> None:
        self.most = self.beside = self.total = 0
        self._files = files
        self._here = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A new step."""
        self._here = 0

    def add(self, size_bytes: int) -> None:
        """So much was unpacked."""
        if self._files.is_beside:
            self.beside += size_bytes
        else:
            self.total += size_bytes
            self._here += size_bytes
            self.most = max(self.most, self._here)


@pytest.fixture
async def unpacked(files: GatedFiles, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[UnpackedBytes]:
    """Counts from now on; a try that ends at its limit counts with the limit."""
    counted = UnpackedBytes(files)
    decompress = reader.decompress

    def counting(codec: Codec, data: Any, *, max_bytes: int) -> bytes:
        try:
            unpacked = decompress(codec, data, max_bytes=max_bytes)
        except OverLimitError:
            counted.add(max_bytes)
            raise
        counted.add(len(unpacked))
        return unpacked

    for place in (reader, validation):
        hit = patches.perhaps(counting, because="a request reads what is stored, or checks what came")
        monkeypatch.setattr(place, "decompress", hit)
    trio.lowlevel.add_instrument(counted)
    yield counted
    trio.lowlevel.remove_instrument(counted)


def by_time(timestamp: int, *, partitions: int = 1) -> ListOffsetsRequest:
    """The first offset of a time, in some partitions."""
    asked = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in range(partitions)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)])


def plant(broker: Broker, *batches: bytes) -> None:
    """Appends batches that no producer could: as a directory of somebody else may hold them."""
    log = broker.logs.logs[WHERE]
    for each in batches:
        log.append_as_leader(each, now_ms=NOW_MS, header=parse_header(each))


async def another(network: MemoryNetwork) -> Talk:
    """A second connection."""
    return Talk(await network.connect("broker", 9092))


MOST_IN_A_TURN = TURN_UNITS * UNIT_BYTES + 2 * INLINE_BYTES


# --- what a turn unpacks ------------------------------------------------------------------------------------


async def test_a_look_up_by_time_unpacks_beside_the_loop(
    broker: Broker, talk: Talk, unpacked: UnpackedBytes
) -> None:
    """42 bytes of a request made the loop unpack batch after batch, because their heads promised a time."""
    broker.topics.create("t")
    plant(broker, *[promising(bomb(4 * MIB))] * 20)
    answer = (await talk.ask(by_time(LATE_MS), 10)).topics[0].partitions[0]
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)
    assert unpacked.beside > 20 * 4 * MIB
    assert unpacked.most <= MOST_IN_A_TURN


@pytest.mark.parametrize("timestamp", [LATE_MS, -3])
async def test_small_batches_end_a_turn_too(
    broker: Broker, talk: Talk, unpacked: UnpackedBytes, timestamp: int
) -> None:
    """Batches that may be unpacked in a turn are, but only so many in one."""
    broker.topics.create("t")
    plant(broker, *[promising(bomb(200_000))] * 100)
    await talk.ask(by_time(timestamp), 10)
    await talk.ask(by_time(LATE_MS), 10)
    assert unpacked.beside == 0
    assert MOST_IN_A_TURN // 2 < unpacked.most <= MOST_IN_A_TURN


class Counted(trio.abc.Instrument):
    """Counts things that the loop does: in all, and the most in one step of a task."""

    def __init__(self) -> None:
        self.total = self.most = 0
        self._here = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A new step."""
        self._here = 0

    def add(self, count: int) -> None:
        """So many were done."""
        self.total += count
        self._here += count
        self.most = max(self.most, self._here)


@pytest.fixture
async def counted() -> AsyncIterator[Counted]:
    """Counts what is added from now on."""
    counts = Counted()
    trio.lowlevel.add_instrument(counts)
    yield counts
    trio.lowlevel.remove_instrument(counts)


async def test_a_turn_walks_along_so_many_records(
    broker: Broker, talk: Talk, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uncompressed batches count, too: 1.4 million tiny records in batches with wrong record counts."""
    broker.topics.create("t")
    tiny = promising(build_batch([(1000, None, b"", None)] * 14_000, Compression.parse("none")))
    plant(broker, *[tiny] * 100)
    find = timestamp_lookup.find_by_time

    def walked(records: Any, count: int, **given: Any) -> Any:
        counted.add(count)
        return find(records, count, **given)

    monkeypatch.setattr(timestamp_lookup, "find_by_time", walked)
    await talk.ask(by_time(LATE_MS), 10)
    smallest_bytes = len(tiny) // 14_000
    assert counted.total == 1_400_000
    assert counted.most <= MOST_IN_A_TURN // smallest_bytes


async def test_a_turn_passes_so_many_heads(
    broker: Broker, talk: Talk, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that are too early are passed by their heads, 32 of them for a unit."""
    broker.topics.create("t", 1, {"segment.bytes": "100000000", "index.interval.bytes": "100000000"})
    early, late = batch(b"v"), promising(batch(b"v"))
    plant(broker, late, *[early] * (2 * STEP_HEADS * TURN_UNITS))

    def passed(*given: Any) -> Iterator[Head]:
        for head in iter_heads(*given):
            counted.add(1)
            yield head

    for place in (timestamp_lookup, segment):
        monkeypatch.setattr(place, "iter_heads", patches.perhaps(passed, because="it goes on where it was"))
    await talk.ask(by_time(LATE_MS), 10)
    assert counted.total > STEP_HEADS * TURN_UNITS
    assert counted.most <= STEP_HEADS * (TURN_UNITS + 2)


async def test_a_turn_looks_up_so_many_times(
    broker: Broker, talk: Talk, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look at a time index for each partition that is named, and so many partitions in a turn."""
    partitions = 2 * TURN_UNITS
    broker.topics.create("t", partitions)
    for log in broker.logs.logs.values():
        log.append_as_leader(batch(b"v"), now_ms=NOW_MS)
    lookup = TimeIndex.lookup

    def looked_up(index: TimeIndex, timestamp_ms: int) -> int:
        counted.add(1)
        return lookup(index, timestamp_ms)

    monkeypatch.setattr(TimeIndex, "lookup", looked_up)
    answer = await talk.ask(by_time(0, partitions=partitions), 10)
    assert len(answer.topics[0].partitions) == partitions
    assert counted.total >= partitions
    assert counted.most <= TURN_UNITS


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("configs", [{"compression.type": "uncompressed"}, PACKED, COMPACTED])
async def test_produced_bombs_are_unpacked_beside_the_loop(
    broker: Broker, talk: Talk, unpacked: UnpackedBytes, codec: str, configs: dict[str, str]
) -> None:
    """On topics that look into their batches a few KB of a producer cost the loop a second."""
    configs = {**configs, "max.message.bytes": "100000000"}
    if configs.get("compression.type") == codec:
        configs["compression.type"] = "gzip"  # a batch that has its topic's codec is not unpacked
    broker.topics.create("t", 1, configs)
    await talk.send_together(*[produce_request("t", bomb(8 * MIB, codec))] * 3, version=9)
    answers = [(await talk.answer()).responses[0].partition_responses[0] for _ in range(3)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 1), (0, 2)]
    assert unpacked.most <= MOST_IN_A_TURN


async def test_pipelined_requests_share_a_turn(broker: Broker, talk: Talk, unpacked: UnpackedBytes) -> None:
    """Many requests of little work each, at once: their work counts, and not their size alone."""
    broker.topics.create("t", 1, COMPACTED)
    small = bomb(INLINE_BYTES - 1000)
    await talk.send_together(*[produce_request("t", small)] * 100, version=9)
    for number in range(100):
        answer = await talk.answer()
        assert answer.responses[0].partition_responses[0].base_offset == number
    assert unpacked.beside == 0
    assert unpacked.most <= MOST_IN_A_TURN


async def test_small_batches_pay_for_no_thread(broker: Broker, talk: Talk, unpacked: UnpackedBytes) -> None:
    """A usual batch is admitted in its turn, on the fast path too."""
    broker.topics.create("t", 1, {"compression.type": "gzip"})
    usual = build_batch([(1000 + i, None, b"value", None) for i in range(500)], Compression.parse("lz4"))
    for _ in range(3):
        assert (await produce(talk, "t", usual)).error_code == 0
    assert (await produce(talk, "t", batch(b"plain" * 1000))).error_code == 0
    assert broker.turns.beside == 0


async def test_a_batch_that_lies_about_its_size(broker: Broker, talk: Talk, unpacked: UnpackedBytes) -> None:
    """gzip's trailer says one byte: the loop finds out within its limit, and hands it on."""
    broker.topics.create("t", 1, COMPACTED)
    lying = bytearray(bomb(4 * MIB, "gzip"))
    lying[-4:] = (1).to_bytes(4, "little")
    stamp_crc(lying, 0, len(lying))
    assert (await produce(talk, "t", bytes(lying))).error_code == 87
    assert unpacked.most <= MOST_IN_A_TURN
    assert broker.turns.beside == 1


async def test_the_fast_path_tries_in_vain_once(broker: Broker, talk: Talk, unpacked: UnpackedBytes) -> None:
    """A batch that was seen to be too much for a turn was tried by the long way once more."""
    broker.topics.create("t", 1, COMPACTED)
    lying = bytearray(bomb(4 * MIB, "gzip"))
    lying[-4:] = (1).to_bytes(4, "little")
    stamp_crc(lying, 0, len(lying))
    assert (await produce(talk, "t", bomb(100))).error_code == 0  # its form is known from here on
    before = unpacked.total
    assert (await produce(talk, "t", bytes(lying))).error_code == 87
    assert unpacked.total - before == INLINE_BYTES
    assert broker.turns.beside == 1


async def test_ordinary_topics_unpack_beside_the_loop_too(
    broker: Broker, talk: Talk, unpacked: UnpackedBytes
) -> None:
    """Every packed batch is looked into, and garbage in a large one is found without a stall."""
    broker.topics.create("ordinary", 1)
    assert (await produce(talk, "ordinary", bomb(4 * MIB))).error_code == 0
    garbage = bytearray(bomb(4 * MIB))
    INT32.pack_into(garbage, 23, 1)
    INT32.pack_into(garbage, 57, 2)
    stamp_crc(garbage, 0, len(garbage))
    answer = await produce(talk, "ordinary", bytes(garbage))
    assert (answer.error_code, answer.base_offset) == (87, -1)
    assert (answer.error_message or "").startswith("record 1: ")
    assert unpacked.most <= MOST_IN_A_TURN
    assert broker.turns.beside == 2


async def test_a_bomb_beyond_every_limit_is_refused(broker: Broker, talk: Talk) -> None:
    """Nothing unpacks to more than 100 MB; 10, so that a producer splits the batch."""
    broker.topics.create("t", 1, COMPACTED)
    answer = await produce(talk, "t", bomb(MAX_DECOMPRESSED_BYTES + 1))
    assert answer.error_code == 10
    assert "limit of 100000000" in (answer.error_message or "")


async def test_buffers_that_became_too_large_are_released(broker: Broker, talk: Talk) -> None:
    """A batch that is stored unpacked has to keep to max.message.bytes: 10, as Kafka."""
    broker.topics.create("t", 1, {"compression.type": "uncompressed"})
    assert (await produce(talk, "t", bomb(4 * MIB))).error_code == 10
    assert broker.logs.logs[WHERE].log_end_offset == 0


# --- while it is done beside --------------------------------------------------------------------------------


@pytest.fixture
async def held(broker: Broker, talk: Talk, files: GatedFiles) -> Talk:
    """A connection whose produce of a bomb is at the gate, with its batch's producer fields."""
    broker.topics.create("t", 2, COMPACTED)
    files.shut()
    first = bomb(MIB, producer_id=7, producer_epoch=0, base_sequence=0)
    await talk.send(produce_request("t", first), 9)
    await files.wait_held()
    return talk


async def test_others_go_on(held: Talk, network: MemoryNetwork, broker: Broker, files: GatedFiles) -> None:
    """Work beside the loop blocks only its own connection, even if others write to the same partition."""
    async with (await another(network)).stream as stream:
        talk = Talk(stream)
        assert (await produce(talk, "t", build_batch([(1, b"k", b"v", None)]))).base_offset == 0
    files.let_in()
    assert (await held.answer()).responses[0].partition_responses[0].base_offset == 1


async def test_the_fast_path_does_not_overtake(held: Talk, broker: Broker, files: GatedFiles) -> None:
    """The sequence numbers of a connection stay in order, packed or not; a repeat is known as one."""
    second = build_batch([(1, b"k", b"v", None)], producer_id=7, producer_epoch=0, base_sequence=1)
    third = bomb(MIB, producer_id=7, producer_epoch=0, base_sequence=2)
    for each in (second, third, second):
        await held.send(produce_request("t", each), 9)
    files.let_in()
    answers = [(await held.answer()).responses[0].partition_responses[0] for _ in range(4)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 1), (0, 2), (0, 1)]
    assert broker.logs.logs[WHERE].log_end_offset == 3


async def test_a_topic_that_goes_meanwhile(held: Talk, broker: Broker, files: GatedFiles) -> None:
    """3, and nothing is appended anywhere."""
    topic = broker.topics.get("t")
    assert topic is not None
    broker.topics.delete(topic)
    files.let_in()
    assert (await held.answer()).responses[0].partition_responses[0].error_code == 3


async def test_another_topic_of_its_name_meanwhile(broker: Broker, talk: Talk, files: GatedFiles) -> None:
    """A request by id does not write to a topic that has the name by now; the client asks for the new id."""
    topic = broker.topics.create("t", 1, COMPACTED)
    files.shut()
    await talk.send(produce_request("t", bomb(MIB), topic_id=topic.topic_id), 13)
    await files.wait_held()
    broker.topics.delete(topic)
    broker.topics.create("t", 1, COMPACTED)
    files.let_in()
    assert (await talk.answer()).responses[0].partition_responses[0].error_code == 100
    assert broker.logs.logs[WHERE].log_end_offset == 0


async def test_options_that_change_meanwhile(held: Talk, broker: Broker, files: GatedFiles) -> None:
    """The batch is held against those that count when it is appended."""
    log = broker.logs.logs[WHERE]
    log.reconfigure(log.settings.with_configs({"cleanup.policy": "compact", "max.message.bytes": "100"}))
    files.let_in()
    assert (await held.answer()).responses[0].partition_responses[0].error_code == 10
    assert log.log_end_offset == 0


async def test_a_client_that_leaves_meanwhile(
    held: Talk, network: MemoryNetwork, broker: Broker, files: GatedFiles
) -> None:
    """Its place is given back, and the others get on."""
    await held.stream.aclose()
    files.let_in()
    async with (await another(network)).stream as stream:
        talk = Talk(stream)
        for _ in range(5):
            assert (await produce(talk, "t", bomb(MIB), partition=1)).error_code == 0


async def test_a_broker_that_closes_meanwhile(held: Talk, broker: Broker, files: GatedFiles) -> None:
    """Closing does not wait for parked requests; that the fixture ends is the test."""
    assert files.waiting == 1


async def test_a_log_that_changes_during_a_look_up(
    broker: Broker, talk: Talk, files: GatedFiles, network: MemoryNetwork
) -> None:
    """Segments roll and go while one batch is looked at; the look-up goes on with what is there."""
    broker.topics.create("t", 1, {"segment.bytes": "20000", "file.delete.delay.ms": "0"})
    log = broker.logs.logs[WHERE]
    plant(broker, *[promising(bomb(MIB))] * 4)
    log.roll(1000)
    plant(broker, build_batch([(5000, None, b"found", None)]))
    files.shut()
    await talk.send(by_time(5000), 10)
    await files.wait_held()
    log.roll(2000)
    log.advance_log_start(4)
    assert log.delete_old_segments(wall_ms=1000, now_ms=0.0)
    files.let_in()
    answer = (await talk.answer()).topics[0].partitions[0]
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, 4, 5000)


async def test_a_log_that_goes_during_a_look_up(broker: Broker, talk: Talk, files: GatedFiles) -> None:
    """3: the partition is not there any more."""
    topic = broker.topics.create("t")
    plant(broker, *[promising(bomb(MIB))] * 2)
    files.shut()
    await talk.send(by_time(5000), 10)
    await files.wait_held()
    broker.topics.delete(topic)
    files.let_in()
    assert (await talk.answer()).topics[0].partitions[0].error_code == 3


# --- turns by themselves ------------------------------------------------------------------------------------


class Doing:
    """A work of one size, counted where it is done."""

    def __init__(self, size_bytes: int, looks_bytes: int | None = None) -> None:
        self.size_bytes = size_bytes if looks_bytes is None else looks_bytes
        self._real_bytes = size_bytes
        self.limits: list[int] = []

    def do(self, max_bytes: int) -> int:
        """Its size, where that is allowed."""
        self.limits.append(max_bytes)
        if self._real_bytes > max_bytes:
            raise OverLimitError
        return self._real_bytes


def no_time() -> float:
    """A clock that stands still."""
    return 0.0


async def inline(work: Callable[[], T]) -> T:
    """Beside the loop, in memory."""
    await trio.lowlevel.checkpoint()
    return work()


async def settled(answer: Answer) -> Any:
    """The response of a plain or a parked answer."""
    wait: Callable[[], Awaitable[Any]] | None = getattr(answer, "wait", None)
    return answer if wait is None else await wait()


async def test_steps_that_fit_a_turn_need_no_other(autojump_clock: object) -> None:
    """The answer is there at once."""
    turns = Turns(inline, no_time)

    def steps() -> Steps[Any]:
        yield 1
        return (yield Doing(1000))

    assert turns.answer(steps(), Account()) == 1000  # type: ignore[comparison-overlap]  # any value does for an answer


async def test_a_turn_ends_after_its_units(autojump_clock: object) -> None:
    """A loop over what a client named lets others have their turn."""
    turns, passed = Turns(inline, no_time), 0

    def steps() -> Steps[Any]:
        nonlocal passed
        for _ in range(3 * TURN_UNITS):
            passed += 1
            yield 1
        return None

    answer = turns.answer(steps(), Account())
    assert passed == TURN_UNITS
    await settled(answer)
    assert passed == 3 * TURN_UNITS


async def test_errors_reach_the_handler(autojump_clock: object) -> None:
    """From either place they are raised where the work was asked for."""
    turns, raised = Turns(inline, no_time), []

    class Failing(Doing):
        def do(self, max_bytes: int) -> int:
            super().do(max_bytes)
            raise InvalidRecordError(str(self.size_bytes))

    def steps() -> Steps[Any]:
        for size_bytes in (10, MIB):
            try:
                yield Failing(size_bytes)
            except InvalidRecordError as error:
                raised.append(error.message)
        return None

    await settled(turns.answer(steps(), Account()))
    assert raised == ["10", str(MIB)]


async def test_light_work_passes_heavy_work(autojump_clock: object) -> None:
    """However much heavy work there is, there is a place for what is soon done."""
    gate, done = trio.Event(), []

    async def slow(work: Callable[[], T]) -> T:
        result = work()
        if result == 8 * MIB:  # type: ignore[comparison-overlap]  # a Doing's result
            await gate.wait()
        done.append(result)
        return result

    turns = Turns(slow, no_time)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(turns.do_beside, Doing(8 * MIB), Account())
        await trio.testing.wait_all_tasks_blocked()
        await turns.do_beside(Doing(MIB), Account())
        assert done == [MIB]
        gate.set()
    assert done == [MIB] + [8 * MIB] * 10


class Workshop:
    """Works beside the loop that are held until somebody lets the next one end."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self._begun: list[trio.Event] = []

    async def run(self, work: Callable[[], T]) -> T:
        """As ``Files.run``."""
        may_end = trio.Event()
        self._begun.append(may_end)
        await may_end.wait()
        return work()

    async def end_all(self) -> None:
        """Lets one after the other end, in the order in which they began."""
        await trio.testing.wait_all_tasks_blocked()
        while self._begun:
            self._begun.pop(0).set()
            await trio.testing.wait_all_tasks_blocked()

    async def have(self, turns: Turns, party: str, size_bytes: int) -> None:
        """Has one work done for a party."""
        await turns.do_beside(Doing(size_bytes), Account(party))
        self.done.append(party)


@pytest.mark.parametrize("size_bytes", [MIB, 8 * MIB])
async def test_parties_have_places_in_turn(autojump_clock: object, size_bytes: int) -> None:
    """One party's 50 connections made another one's single batch wait for all of theirs."""
    shop = Workshop()
    turns = Turns(shop.run, no_time)
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(shop.have, turns, "many", size_bytes)
        await trio.testing.wait_all_tasks_blocked()
        for party in ("b", "c", "b"):
            nursery.start_soon(shop.have, turns, party, size_bytes)
            await trio.testing.wait_all_tasks_blocked()
        await shop.end_all()
    assert len(shop.done) == 53
    held = 3 if size_bytes <= HEAVY_BYTES else 2
    assert sorted(shop.done[held : held + 3]) == ["b", "c", "many"]
    assert shop.done.index("b", shop.done.index("b") + 1) < held + 6


async def test_neither_light_nor_heavy_work_starves(autojump_clock: object) -> None:
    """A place that both may have goes to them by turns."""
    shop = Workshop()
    turns = Turns(shop.run, no_time)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(shop.have, turns, "light", MIB)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(5):
            nursery.start_soon(shop.have, turns, "heavy", 8 * MIB)
        await shop.end_all()
    assert shop.done.index("heavy") < 6
    assert shop.done[12:].count("light") >= 8


async def test_possibly_heavy_work_is_tried_as_light_first(autojump_clock: object) -> None:
    """By the worst ratio of its codec nearly every batch was heavy; now it is so once it was seen to be."""
    turns = Turns(inline, no_time)
    light, heavy = Doing(MIB, 100_000), Doing(8 * MIB, 100_000)
    assert [await turns.do_beside(each, Account()) for each in (light, heavy)] == [MIB, 8 * MIB]
    assert (light.limits, heavy.limits) == ([HEAVY_BYTES], [HEAVY_BYTES, MAX_DECOMPRESSED_BYTES])


async def test_a_cancelled_waiter_takes_no_place(autojump_clock: object) -> None:
    """Waiting for a place can be cancelled, and the others get theirs."""
    shop = Workshop()
    turns = Turns(shop.run, no_time)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(shop.have, turns, "a", MIB)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1):
            await shop.have(turns, "b", MIB)
        nursery.start_soon(shop.have, turns, "c", MIB)
        await shop.end_all()
    assert shop.done == ["a", "a", "a", "c"]


async def test_an_account_has_all_turns_but_the_first(autojump_clock: object) -> None:
    """A quota of the handler's time saw the first turn alone, and neither the others nor the works beside."""
    now_ms, account = 0.0, Account()

    async def slow(work: Callable[[], T]) -> T:
        nonlocal now_ms
        now_ms += 1000
        return work()

    def steps() -> Steps[Any]:
        nonlocal now_ms
        for spent_ms in (1, 10, 100):
            now_ms += spent_ms
            yield TURN_UNITS
        yield Doing(MIB)
        return None

    await settled(Turns(slow, lambda: now_ms).answer(steps(), account))
    assert account.spent_ms == 1110


async def test_a_quota_sees_work_beside_the_loop(
    broker: Broker,
    talk: Talk,
    files: GatedFiles,
    network: MemoryNetwork,
    autojump_clock: trio.testing.MockClock,
) -> None:
    """request_percentage: a batch that takes 5 s to unpack is charged to its client."""
    broker.topics.create("t", 1, COMPACTED)
    async with (await another(network)).stream as stream:
        assert await alter(Talk(stream), {"client-id": "talk"}, request_percentage=10.0) == 0
    files.shut()
    await talk.send(produce_request("t", bomb(MIB)), 9)
    await files.wait_held()
    autojump_clock.jump(5)
    files.let_in()
    answer = await talk.answer()
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert answer.throttle_time_ms >= 900  # Kafka's most is a window, a second


def test_the_loop_is_never_held_up(tmp_path: Path) -> None:
    """On a disk and with threads: the CPU time of the loop's thread between two chances for the others."""
    paths = filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")])
    done = subprocess.run(
        [sys.executable, "-m", "support.broker.hold_up_the_loop", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    longest = json.loads(done.stdout)
    assert longest.keys() == {"by time", "compacted", "packed", "many by time"}
    assert {name: seconds for name, seconds in longest.items() if seconds > 0.05} == {}


async def test_many_waits_that_are_over_are_several_turns(autojump_clock: trio.testing.MockClock) -> None:
    """A produce request, markers or DeleteRecords for thousands of partitions: all came back in one turn."""
    others = 0

    async def count() -> None:
        nonlocal others
        while True:
            await trio.lowlevel.checkpoint()
            others += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        for number in range(1, 10 * WAITS_IN_A_TURN + 1):
            await let_others(number)
        nursery.cancel_scope.cancel()
    assert others >= 8
