"""The fast path: into the open batch of a lane in one step, or aside and nothing changed."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients.holding import holding

from splashdam.model.errors import IllegalStateError
from splashdam.model.values import TopicPartition
from splashdam.net.reentrant_lock import ReentrantLock
from splashdam.record.compression import NO_COMPRESSION
from splashdam.record.reader import Record, read_records
from splashdam.record.sealing import seal

NOW_NS = 1_700_000_000_123_456_789
CAPACITY_BYTES = 4096


def sender(kernel: ModuleType, path: Any, slowly: Callable[..., Any]) -> Any:
    """A producer as ``client`` builds it on the kernel's class."""

    class Producer(kernel.Sends):  # type: ignore[misc, name-defined]
        def _own_send(self, *record: Any) -> Any:
            return slowly(*record)

        def _own_send_nowait(self, *record: Any) -> Any:
            return slowly(*record)

    producer = Producer()
    producer._path = path
    return producer


def say_slow(*record: Any) -> tuple[Any, ...]:
    return ("slow", *record)


class Road:
    """A path over one topic of three partitions, all with an open batch; ``send`` gives None off the path."""

    def __init__(self, kernel: ModuleType, **options: Any) -> None:
        self.kernel = kernel
        self.lanes = [kernel.PartitionLane(TopicPartition("t", number)) for number in range(3)]
        self.guard = ReentrantLock()
        defaults = {"wall_ns": lambda: NOW_NS, "future_type": kernel.FutureCell, "fits_bytes": 1000}
        self.path = kernel.FastPath(**{**defaults, "guard": self.guard, **options})
        self.topic = kernel.TopicLanes(self.lanes, self.lanes[1], 61, 500)
        self.path.publish("t", self.topic)
        self.send = sender(kernel, self.path, lambda *_: None).send
        for lane in self.lanes:
            self.open(lane)

    def open(self, lane: Any) -> None:
        lane.open(self.kernel.BatchBuffer(CAPACITY_BYTES), self.kernel.BatchOutcome(lane.topic_partition))

    def records(self, number: int) -> list[Record]:
        buffer = self.lanes[number].buffer
        return list(read_records(seal(buffer, NO_COMPRESSION))) if buffer.record_count else []

    def count(self) -> int:
        return sum(lane.buffer.record_count for lane in self.lanes if lane.buffer is not None)


def test_null_keys_stick_and_are_counted(kernel: ModuleType) -> None:
    """The future knows its batch, its place and its sizes; the clock's time is the record's."""
    road = Road(kernel)
    road.send("t", b"first")
    future = road.send("t", b"value", None, [("h", b"12"), ("é", None)])
    assert future.outcome is road.lanes[1].outcome
    assert (future.index, future.timestamp_ms) == (1, NOW_NS // 1_000_000)
    assert (future.key_size, future.value_size, future.header_size) == (-1, 5, 5)
    assert road.topic.sticky_bytes == 61 + (5 + 13) + (5 + 13 + 5 + 2 * 10)
    assert [record.value for record in road.records(1)] == [b"first", b"value"]


def test_the_sticky_limit_is_the_slow_paths_affair(kernel: ModuleType) -> None:
    """At the limit no record takes the fast path until the topic sticks to another lane."""
    road = Road(kernel)
    road.topic.sticky_bytes = 500
    assert road.send("t", b"v") is None
    road.topic.stick_to(road.lanes[2], 61)
    assert road.send("t", b"v").outcome is road.lanes[2].outcome


@given(key=st.binary(max_size=40), partition=st.none() | st.integers(0, 2), timestamp=st.integers(0, 2**62))
def test_keys_and_partitions(
    twins: tuple[ModuleType, ModuleType], key: bytes, partition: Any, timestamp: int
):
    """A key goes where murmur2 says, unless a partition is named; both twins write the same bytes."""
    written = []
    for twin in twins:
        road = Road(twin)
        road.send("t", b"0", b"", None, 0, 5)
        assert road.send("t", b"v", key, None, partition, timestamp) is not None
        number = (twin.murmur2(key) & 0x7FFFFFFF) % 3 if partition is None else partition
        assert (road.records(number)[-1].key, road.records(number)[-1].value) == (key, b"v")
        written.append([bytes(lane.buffer.view()) for lane in road.lanes])
    assert written[0] == written[1]


class Text(str):
    __slots__ = ()


class Number(int):
    pass


@pytest.mark.parametrize(
    "record",
    [
        ("unknown", b"v"),
        (Text("t"), b"v"),
        (7, b"v"),
        ([], b"v"),
        ("t", None),
        ("t", "text"),
        ("t", bytearray(b"v")),
        ("t", b"v", "key"),
        ("t", b"v", None, {"h": b"v"}),
        ("t", b"v", None, [("h", "text")]),
        ("t", b"v", None, None, None, -1),
        ("t", b"v", None, None, 0, -(2**63)),
        ("t", b"v", None, [["h", b"v"]]),
        ("t", b"v", None, [("\ud800", b"v")]),
        ("t", b"v", None, [("h",)]),
        ("t", b"v", None, None, 3),
        ("t", b"v", None, None, -1),
        ("t", b"v", None, None, 2**70),
        ("t", b"v", None, None, Number(1)),
        ("t", b"v", None, None, "1"),
        ("t", b"v", None, None, None, 2**63),
        ("t", b"v", None, None, None, 1.5),
        ("t", b"x" * 1001),
        ("t", b"x" * 500, b"y" * 501),
        ("t", b"", None, [("h", b"x" * 1000)]),
    ],
    ids=repr,
)
def test_what_is_unusual_steps_aside(kernel: ModuleType, record: tuple[Any, ...]) -> None:
    """It is neither refused nor taken: the slow path does all checks and says what is wrong."""
    road = Road(kernel)
    assert road.send(*record) is None
    assert road.path.try_send(*record) is None
    assert (road.count(), road.topic.sticky_bytes) == (0, 61)


@pytest.mark.parametrize("flag", ["closed", "detour"])
def test_a_closed_path_takes_nothing(kernel: ModuleType, flag: str) -> None:
    """Neither do one that was told to step aside, one without topics, and one whose batch is full."""
    road = Road(kernel)
    setattr(road.path, flag, True)
    assert road.send("t", b"v") is None
    setattr(road.path, flag, False)
    while road.send("t", b"x" * 900, None, None, 0) is not None:
        pass
    assert road.lanes[0].buffer.record_count == 4
    road.path.clear()
    assert road.send("t", b"v") is None
    assert road.path.route("t") is None


def test_topics_by_name(kernel: ModuleType) -> None:
    """Each by its text, whichever was published last, and anew where it was published anew."""
    first, second, third = (Road(kernel) for _ in range(3))
    path = first.path
    path.publish("u", second.topic)
    for name in ("t", "".join(["", "t"]), "u", "".join(["", "u"])):
        assert path.try_send(name, b"v") is not None
    assert (first.count(), second.count()) == (2, 2)
    path.publish("u", third.topic)
    path.publish("t", second.topic)
    for name in ("t", "u", "t"):
        assert path.try_send(name, b"v") is not None
    assert [road.count() for road in (first, second, third)] == [2, 4, 1]
    path.clear()
    assert path.try_send("t", b"v") is None
    assert path.try_send("u", b"v") is None


def test_a_lane_has_one_batch(kernel: ModuleType) -> None:
    """Opening a second batch is a bug: the first was not withdrawn."""
    road = Road(kernel)
    lane = road.lanes[0]
    with pytest.raises(IllegalStateError, match="is open already"):
        road.open(lane)
    buffer = lane.buffer
    lane.withdraw()
    assert (lane.buffer, lane.outcome) == (None, None)
    assert lane.try_append(0, None, b"v", None, kernel.FutureCell) is None
    assert road.send("t", b"v", None, None, 0) is None
    assert buffer.record_count == 0


@pytest.mark.parametrize("act", ["withdraw", "reopen", "clear", "close", "send"])
def test_what_the_clock_does_comes_first(kernel: ModuleType, act: str) -> None:
    """A batch that is closed meanwhile gets no record: the lane is looked at after everything in Python."""

    def wall_ns() -> int:
        if act in {"withdraw", "reopen"}:
            road.lanes[1].withdraw()
        if act == "reopen":
            road.open(road.lanes[1])
        if act == "clear":
            road.path.clear()
        if act == "close":
            road.path.closed = True
        if act == "send":
            inner.append(road.send("t", b"inner", None, None, None, 5))
        return NOW_NS

    road = Road(kernel, wall_ns=wall_ns)
    before = road.lanes[1].buffer
    inner: list[Any] = []
    future = road.send("t", b"outer")
    if act == "reopen":
        assert future.outcome is road.lanes[1].outcome
        assert before.record_count == 0
    elif act == "send":
        assert [inner[0].index, future.index] == [0, 1]
        assert [record.value for record in road.records(1)] == [b"inner", b"outer"]
    elif act != "close" or kernel.IMPL == "c":
        assert future is None
        assert before.record_count == 0


def test_who_interrupts_the_holder_of_the_guard(twins: tuple[ModuleType, ModuleType]) -> None:
    """The compiled twin needs no guard; an append of the other one is many steps, so it steps aside."""
    for twin in twins:
        road = Road(twin)
        with holding(road.guard):
            assert (road.send("t", b"v") is None) == (twin.IMPL == "python")


@pytest.mark.parametrize("strikes", ["while it waits", "when it has the lock", "when it has let go"])
def test_ctrl_c_leaves_no_guard_taken(twins: tuple[ModuleType, ModuleType], strikes: str) -> None:
    """The Python twin takes the lock without ``with``: an exception may come with each of its calls."""
    road = Road(twins[0])
    guard = road.guard
    take, give_back = guard.acquire, guard.release

    def acquire() -> None:
        if strikes != "while it waits":
            take()
        if strikes != "when it has let go":
            raise KeyboardInterrupt

    def release() -> None:
        give_back()
        if strikes == "when it has let go":
            raise KeyboardInterrupt

    guard.acquire, guard.release = acquire, release
    with pytest.raises(KeyboardInterrupt):
        road.send("t", b"v")
    assert guard.holder == 0
    with pytest.raises(RuntimeError):
        give_back()  # nobody has it
    guard.acquire, guard.release = take, give_back
    assert road.send("t", b"v").index == (1 if strikes == "when it has let go" else 0)


def test_threads_while_batches_come_and_go(kernel: ModuleType) -> None:
    """Each future names the place that its record is at, and nothing gets into a withdrawn batch."""
    road = Road(kernel)
    road.topic.sticky_limit_bytes = 2**40
    buffers = {id(lane.outcome): lane.buffer for lane in road.lanes}
    closed: list[tuple[Any, int]] = []
    sent: list[list[Any]] = [[] for _ in range(4)]
    over = threading.Event()

    def send(name: int) -> None:
        number = 0
        while not over.is_set():
            value = b"%d:%d" % (name, number)
            future = road.send("t", value, None, None, None if number % 3 else number % 2)
            if future is not None:
                sent[name].append((value, future))
                number += 1

    threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for round_number in range(300):
        lane = road.lanes[round_number % 2]
        buffer = lane.buffer
        with holding(road.guard):
            lane.withdraw()
            closed.append((buffer, buffer.record_count))
            road.open(lane)
            buffers[id(lane.outcome)] = lane.buffer
    over.set()
    for thread in threads:
        thread.join(300)
    assert [buffer.record_count for buffer, _ in closed] == [count for _, count in closed]
    futures = [each for futures in sent for each in futures]
    values = {
        key: [record.value for record in read_records(seal(buffer, NO_COMPRESSION))]
        if buffer.record_count
        else []
        for key, buffer in buffers.items()
    }
    assert sum(map(len, values.values())) == len(futures)
    for value, future in futures:
        assert values[id(future.outcome)][future.index] == value


@pytest.mark.parametrize("method", ["send", "send_nowait"])
def test_sends(kernel: ModuleType, method: str) -> None:
    """Positional and by name; what steps aside arrives on the slow path with all its arguments."""
    send = getattr(sender(kernel, Road(kernel).path, say_slow), method)
    assert send("t", b"v").index == 0
    assert send(topic="t", value=b"v", key=None, headers=None, partition=None, timestamp_ms=3).index == 1
    assert send("u", b"v", timestamp_ms=3) == ("slow", "u", b"v", None, None, None, 3)
    with pytest.raises(TypeError):
        send()
    with pytest.raises(TypeError):
        send("t", b"v", colour="red")
    not_plain = sender(kernel, Road(kernel, plain=False).path, say_slow)
    assert getattr(not_plain, method)("t", b"v")[0] == "slow"


def test_send_is_an_ordinary_method(kernel: ModuleType) -> None:
    """It has a signature, can be overridden and patched, on an instance's class or its base."""
    producer = sender(kernel, Road(kernel).path, say_slow)
    names = ["self", "topic", "value", "key", "headers", "partition", "timestamp_ms"]
    assert list(inspect.signature(kernel.Sends.send).parameters) == names
    assert list(inspect.signature(producer.send_nowait).parameters) == names[1:]

    class Doubling(type(producer)):
        def send(self, topic: str, value: Any = None, **more: Any) -> Any:
            return [super(Doubling, self).send(topic, value, **more) for _ in range(2)]

    doubling = Doubling()
    doubling._path = producer._path
    assert [future.index for future in doubling.send("t", b"v")] == [0, 1]
    with mock.patch.object(type(producer), "send") as patched:
        producer.send("t", b"v")
    patched.assert_called_once_with("t", b"v")
    assert producer.send("t", b"v").index == 2
