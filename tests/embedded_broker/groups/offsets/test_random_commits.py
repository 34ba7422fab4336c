"""Random commits, transactions, expiries, restarts and power cuts against a plain model of the offsets."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import NamedTuple

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.groups.offset_records import CommittedOffset, NewOffset
from splashdam.embedded_broker.topics.internal_topics import InternalTopic
from splashdam.embedded_broker.transactions.markers import write_marker
from splashdam.model.values import TopicPartition
from splashdam.storage.files.memory import Fault, MemoryFiles, PowerCutError
from splashdam.storage.topic_names import CONSUMER_OFFSETS
from splashdam.storage.transaction_marker import TransactionMarker

HOUR_MS = 3_600_000
SETTINGS = {
    "offsets_topic_num_partitions": 1,
    "offsets_retention_minutes": 60,
    "log_cleaner_enable": False,
}


class Commit(NamedTuple):
    """An offset, in a transaction unless the producer is -1."""

    group_id: str
    topic_partition: TopicPartition
    offset: int
    producer_id: int


class End(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    committed: bool


class Expire(NamedTuple):
    """An hour passes, and the broker looks for what is too old."""


class Restart(NamedTuple):
    """The broker starts again, after a clean end, a kill or a power cut."""

    how: str
    seed: int


producers = st.integers(0, 1)
partitions = st.builds(TopicPartition, st.just("t"), st.integers(0, 1))
steps = st.lists(
    st.builds(Commit, st.sampled_from(["g1", "g2"]), partitions, st.integers(0, 99), st.just(-1) | producers)
    | st.builds(End, producers, st.booleans())
    | st.just(Expire())
    | st.builds(Restart, st.sampled_from(["stop", "kill", "power cut"]), st.integers(0, 999)),
    min_size=10,
    max_size=40,
)

Key = tuple[str, TopicPartition]


class Model:
    """The appended records, each with the log's end after it, and the resulting offsets."""

    def __init__(self) -> None:
        self.history: list[tuple[int, Commit | End | Key]] = []

    def cut(self, end_offset: int) -> None:
        """After a power cut the log may end earlier."""
        self.history = [each for each in self.history if each[0] <= end_offset]

    def outcome(self) -> tuple[dict[Key, int], set[Key]]:
        """The offsets that hold, and what has a transaction pending."""
        visible: dict[Key, tuple[int, int]] = {}
        pending: dict[int, dict[Key, tuple[int, int]]] = {}
        for number, (_, what) in enumerate(self.history):
            if isinstance(what, Commit):
                news = {(what.group_id, what.topic_partition): (number, what.offset)}
                if what.producer_id >= 0:
                    pending.setdefault(what.producer_id, {}).update(news)
                    continue
            elif isinstance(what, End):
                news = pending.pop(what.producer_id, {}) if what.committed else {}
                pending.pop(what.producer_id, None)
            else:
                visible.pop(what, None)
                continue
            for key, found in news.items():
                visible[key] = max(found, visible.get(key, (-1, 0)))
        open_keys = {key for each in pending.values() for key in each}
        return {key: offset for key, (_, offset) in visible.items()}, open_keys


class Run:
    """One example."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.model = Model()
        self.committed_ms: dict[Key, int] = {}

    async def play(self, todo: list[NamedTuple]) -> None:
        restart: Restart | None = Restart("stop", 0)
        while restart is not None:
            with suppress(PowerCutError):  # the end of a broker whose machine has none
                async with open_broker("/data", port=None, files=self.files, **SETTINGS) as broker:
                    self.look(broker)
                    restart = self.until_restart(broker, todo)
                    if restart is not None and restart.how != "stop":
                        self.files.inject(Fault(None))
            if restart is not None and restart.how == "kill":
                self.files.kill()
            elif restart is not None and restart.how == "power cut":
                self.files.crash(Random(restart.seed))
            self.files.heal()

    def until_restart(self, broker: Broker, todo: list[NamedTuple]) -> Restart | None:
        topic = InternalTopic(CONSUMER_OFFSETS, broker)
        while todo:
            step = todo.pop(0)
            if isinstance(step, Restart):
                return step
            if isinstance(step, Expire):
                self.expire(broker, topic)
            elif isinstance(step, Commit):
                committed = CommittedOffset(step.offset, "", -1, broker.clock.wall_ms())
                epoch = -1 if step.producer_id < 0 else 0
                log = broker.offsets.commit(
                    step.group_id,
                    {step.topic_partition: NewOffset.of(step.topic_partition, committed)},
                    producer_id=step.producer_id,
                    producer_epoch=epoch,
                )
                self.model.history.append((log.log_end_offset, step))
            elif isinstance(step, End):
                log = topic.log(0)
                write_marker(
                    broker, log.topic_partition, TransactionMarker(step.producer_id, 0, step.committed, 0)
                )
                self.model.history.append((log.log_end_offset, step))
            self.compare(broker)
        return None

    def expire(self, broker: Broker, topic: InternalTopic) -> None:
        visible, pending = self.model.outcome()
        gone = sorted(visible.keys() - pending)
        assert broker.offsets.expire(broker.clock.wall_ms() - 1) == 0
        assert broker.offsets.expire(broker.clock.wall_ms() + HOUR_MS) == len(gone)
        if gone:
            self.model.history += [(topic.log(0).log_end_offset, key) for key in gone]

    def look(self, broker: Broker) -> None:
        """After a start: the log tells how much a power cut has left."""
        log = broker.logs.logs.get(TopicPartition(CONSUMER_OFFSETS, 0))
        self.model.cut(0 if log is None else log.log_end_offset)
        self.compare(broker)

    def compare(self, broker: Broker) -> None:
        visible, pending = self.model.outcome()
        groups = {name: group for name in ("g1", "g2") if (group := broker.groups.find(name)) is not None}
        assert visible == {
            (name, each): stored.committed.offset
            for name, group in groups.items()
            for each, stored in group.offsets.items()
        }
        assert pending == {(name, each) for name, group in groups.items() for each in group.open_transactions}
        assert set(groups) == {name for name, _ in visible.keys() | pending}


@settings(max_examples=30, deadline=None)
@given(todo=steps)
def test_offsets_equal_the_commits(todo: list[NamedTuple]) -> None:
    """After every step, and after every start: pending ones stay pending, and what was forgotten stays so."""
    trio.run(Run().play, list(todo), clock=MockClock(autojump_threshold=0))
