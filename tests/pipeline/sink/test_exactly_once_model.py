"""Batches written exactly once, whatever dies: a driver at any step of its commit, tasks, whole processes.

A batch that is tried again has the same rows, but other partitions and another order. What readers of
committed records see in the end is each row once.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from support.pipeline.pipeline_sink_kit import Tasks, options, read, rows, schema
from support.running.patches import Patches, perhaps

from splashdam import EmbeddedBroker
from splashdam.pipeline.sink import committing, transactional
from splashdam.pipeline.sink.decisions import Decider, Decision
from splashdam.pipeline.sink.writers import SinkMessage, stream_writer

ROWS = 6
CONFIG = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}

names = itertools.count()

POINTS = "before decide, after decide, before end 1, after end 1, before end 2, before ended, after ended"
CRASHES = (*POINTS.split(", "), "before clear", "after all")
crashes = st.sampled_from([None, None, *CRASHES])
reached: set[str] = set()
"""The points that a commit came to, of all examples: a driver that cannot die there proves nothing."""
cuts = st.lists(st.integers(0, ROWS), min_size=1, max_size=2)
mishaps = st.sampled_from(["none", "none", "raises", "dies after", "twice"])


class CrashError(Exception):
    """The driver's process dies here, or what it called has failed."""


class Crashes:
    """Has the driver die at one named point.

    Args:
        monkeypatch: puts it there.
        point: None for nowhere.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, point: str | None) -> None:
        self._point = point
        self._ends = self._decisions = 0
        self._end, self._clear, self._decide = (
            committing.end_transaction,
            committing._clear,
            Decider.decide,
        )
        because = "the driver dies before it comes there, or there is nothing to end"
        monkeypatch.setattr(committing, "end_transaction", perhaps(self.end, because=because))
        monkeypatch.setattr(committing, "_clear", perhaps(self.clear, because=because))

        def decide(decider: Decider, decision: Decision) -> None:
            self.decide(decider, decision)

        monkeypatch.setattr(Decider, "decide", perhaps(decide, because=because))

    def reach(self, point: str) -> None:
        """Dies, if it is here."""
        reached.add(point)
        if point == self._point:
            raise CrashError(point)

    async def end(self, *arguments: Any, **more: Any) -> None:
        """As ``end_transaction``."""
        self._ends += 1
        number = self._ends  # the next one begins before this one is done
        self.reach(f"before end {number}")
        await self._end(*arguments, **more)
        self.reach(f"after end {number}")

    def clear(self, *arguments: Any) -> None:
        """As ``_clear``."""
        self.reach("before clear")
        self._clear(*arguments)

    def decide(self, decider: Decider, decision: Decision) -> None:
        """As ``Decider.decide``."""
        what = "ended" if decision.is_ended else "decide"
        self.reach(f"before {what}")
        self._decide(decider, decision)
        self.reach(f"after {what}")


class SparkMachine(RuleBasedStateMachine):
    """Plays Spark: a stream that writes batch after batch, each until its commit returns."""

    def __init__(self) -> None:
        super().__init__()
        self.monkeypatch = Patches()
        self.tasks = Tasks(self.monkeypatch)
        self.number = next(names)
        self.batch = 0
        self.committed: Counter[bytes] = Counter()

    @initialize(level=st.sampled_from([1, 2]))
    def start(self, level: int) -> None:
        self.broker = BROKERS[level]
        self.topic = f"t{self.number}"
        given = options(self.broker.bootstrap_servers, topic=self.topic, delivery="exactly_once")
        self.writer = stream_writer(schema("value binary"), given, False)

    def values(self) -> list[bytes]:
        return [b"%d:%d" % (self.batch, row) for row in range(ROWS)]

    def write(self, partition: int, values: list[bytes]) -> SinkMessage:
        return self.tasks.run(self.writer, rows(values), partition, f"q{self.number}", self.batch)

    def task(self, partition: int, values: list[bytes], mishap: str) -> SinkMessage:
        """The attempt that counts, behind others."""
        if mishap == "raises":

            def half() -> Iterator[pa.RecordBatch]:
                yield from rows(values[:1])
                raise CrashError("the task fails")

            with pytest.raises(CrashError):
                self.tasks.run(self.writer, half(), partition, f"q{self.number}", self.batch)
        elif mishap == "dies after":
            self.write(partition, values)
        first = self.write(partition, values)
        return self.write(partition, values) if mishap == "twice" else first

    @rule(order=st.permutations(range(ROWS)), cuts=cuts, mishap=mishaps, crash=crashes, is_told=st.booleans())
    def run_batch(
        self, order: list[int], cuts: list[int], mishap: str, crash: str | None, is_told: bool
    ) -> None:
        """One try of the present batch, in any split of its rows."""
        values = [self.values()[row] for row in order]
        bounds = [0, *sorted(cuts), ROWS]
        parts = [values[first:end] for first, end in itertools.pairwise(bounds)]
        messages = [
            self.task(partition, part, mishap if partition == 0 else "none")
            for partition, part in enumerate(parts)
        ]
        with Patches.context() as patched:
            try:
                reach = Crashes(patched, crash)
                self.writer.commit(messages, self.batch)
                reach.reach("after all")
            except CrashError:
                died = True
            else:
                died = False
        if not died:
            self.committed.update(self.values())
            self.batch += 1
        elif is_told:
            self.writer.abort([None, *messages], self.batch)

    @rule(is_stale=st.booleans())
    def tasks_see(self, is_stale: bool) -> None:
        """Decided or not: the driver checks again."""
        self.monkeypatch.undo()
        if is_stale:
            stale = Decision(-1, (), is_ended=True)
            blind = perhaps(lambda *_: stale, because="the next rule may run no task")
            self.monkeypatch.setattr(transactional, "_last", blind)

    @rule()
    def new_processes(self) -> None:
        """No worker knows the ids that others have used."""
        transactional.IDS._pid = -1

    def teardown(self) -> None:
        """The batch that was begun is written in the end; then each row is there once."""
        self.run_batch(list(range(ROWS)), [3], "none", None, False)
        self.monkeypatch.undo()
        found = Counter(bytes(each.value) for each in read(self.broker.bootstrap_servers, self.topic))
        assert found == self.committed


BROKERS: dict[int, EmbeddedBroker] = {}


@pytest.fixture(scope="module", autouse=True)
def _brokers() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as directory:
        for level in (1, 2):
            config = {**CONFIG, "transaction.version": level}
            BROKERS[level] = EmbeddedBroker(f"{directory}/{level}", fsync=False, port=0, config=config)
            BROKERS[level].start()
        yield
        for broker in BROKERS.values():
            broker.stop()
        BROKERS.clear()
    assert reached >= set(CRASHES)


TestExactlyOnce = SparkMachine.TestCase
TestExactlyOnce.settings = settings(
    max_examples=8,
    stateful_step_count=4,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink a failure would take minutes
)
