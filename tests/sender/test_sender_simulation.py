"""Whole runs in virtual time: random troubles, leader moves, lost connections, against a broker's own rules.

The broker is a model with the rules of Kafka's ``ProducerAppendInfo``. Whatever happens, every acknowledged
record stands in its partition exactly once and in the order in which it was sent, nothing is written twice,
nothing hangs, and all memory comes back.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.running.examples import examples
from support.scripted.cluster import ScriptedCluster, Trouble
from trio.testing import MockClock

from splashdam.model.broker_errors import NetworkExceptionError
from splashdam.model.values import TopicPartition
from splashdam.record.batch import Codec
from splashdam.record.compression import Compression
from splashdam.record.reader import read_records
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.produce import ProduceRequest

PARTITIONS = 2
GZIP = Compression(Codec.GZIP)
REFUSALS = [87, 29, -1, 47]
RETRIABLE = [2, 3, 6, 19, 56]

troubles = st.one_of(
    st.builds(Trouble, code=st.sampled_from(RETRIABLE)),
    st.builds(Trouble, code=st.sampled_from(REFUSALS), for_good=st.just(True)),
    st.builds(Trouble, code=st.sampled_from([7, 20]), write=st.booleans()),
    st.builds(Trouble, then=st.sampled_from(["hang_up", "refuse"])),
    st.builds(Trouble, then=st.just("late"), delay_ms=st.sampled_from([1, 50, 120, 400, 3000])),
    st.builds(Trouble, then=st.just("silence")),
    st.just(Trouble(code=10)),
    st.builds(Trouble, delay_ms=st.sampled_from([1, 30, 700, 2500])),
    st.just(Trouble()),
    st.just(Trouble()),
)

actions = st.one_of(
    st.tuples(st.just("send"), st.integers(0, PARTITIONS - 1), st.integers(1, 6)),
    st.tuples(st.just("send"), st.integers(0, PARTITIONS - 1), st.integers(1, 6)),
    st.tuples(st.just("sleep"), st.sampled_from([0, 1, 5, 90, 600, 1900]), st.just(0)),
    st.tuples(st.just("move"), st.integers(0, PARTITIONS - 1), st.integers(1, 2)),
    st.tuples(st.just("drop"), st.integers(1, 2), st.just(0)),
    st.tuples(st.just("outage"), st.integers(1, 2), st.sampled_from([0, 400])),
)


class Run:
    """One simulated run and what is checked at its end."""

    def __init__(
        self, make: Any, clock: MockClock, script: list[Trouble], *, dense: bool = False, **options: Any
    ) -> None:
        self.rig = make(
            VirtualClock(clock),
            cluster={"topics": {"t": PARTITIONS}, "nodes": 2, "max_batch_bytes": 250},
            batch_bytes=400,
            request_timeout_ms=1_000,
            delivery_timeout_ms=4_000,
            **options,
        )
        self.cluster: ScriptedCluster = self.rig.cluster
        self.cluster.produce_script.extend(script)
        self.sent: dict[int, list[tuple[bytes, Any]]] = {number: [] for number in range(PARTITIONS)}
        self.count = 0
        self.dense = dense
        for _ in range(150 * dense):  # what compressed well before does so no more
            self.rig.accumulator.compressions.observe("t", 1000, 250)

    async def play(self, steps: list[tuple[str, int, int]]) -> None:
        """Does what was drawn, then waits until every record has its end."""
        async with self.rig.running():
            for what, one, other in steps:
                await self.do(what, one, other)
            with trio.fail_after(60):
                for future in self.rig.futures:
                    await self.rig.outcome(future)
            await trio.sleep(5)  # what a broker still had in its queues

    async def do(self, what: str, one: int, other: int) -> None:
        """One step."""
        network = self.rig.network
        if what == "send":
            for _ in range(other):
                self.count += 1
                size = self.count * 37 % 120
                filling = random.Random(self.count).randbytes(size) if self.dense else b"." * size
                value = b"%06d" % self.count + filling
                self.sent[one].append((value, self.rig.send(value, partition=one)))
        elif what == "sleep":
            await trio.sleep(one / 1000)
        elif what == "move":
            self.cluster.move_leader(TopicPartition("t", one), other)
        elif what == "drop":
            network.drop(f"node-{one}", 9092)
        else:
            network.refuse(f"node-{one}", 9092)
            network.drop(f"node-{one}", 9092)
            await trio.sleep(other / 1000)
            network.refuse(f"node-{one}", 9092, refusing=False)

    def check(self, *, repeats_allowed: bool = False) -> None:
        """The promise."""
        for number, sent in self.sent.items():
            log = self.cluster.logs[TopicPartition("t", number)].values
            acked = [
                (value, future) for value, future in sent if future.outcome.error_of(future.index) is None
            ]
            if repeats_allowed:
                assert {value for value, _ in acked} <= set(log)
                continue
            repeated = {value for value, times in Counter(log).items() if times > 1}
            surfaced = self.surfaced(number)
            assert not repeated or (len(surfaced) > 1 and repeated <= set().union(*surfaced))
            places = [log.index(value) for value, _ in acked]
            assert places == sorted(places)
            for place, (value, future) in zip(places, acked, strict=True):
                assert future.outcome.offset_of(future.index) in (place, -1) or value in repeated

    def surfaced(self, number: int) -> list[set[bytes | None]]:
        """What each request had that was worked on when its connection was gone.

        Two of them are what a producer alone cannot keep from being written twice
        (docs/decisions/idempotence.md, "What remains"); one never is.
        """
        return [
            {record.value for record in read_records(bytes(each.records or b""))}
            for message in self.cluster.surfaced
            if isinstance(message, ProduceRequest)
            for topic in message.topic_data
            for each in topic.partition_data
            if each.index == number
        ]


def simulate(make: Any, script: list[Trouble], steps: list[Any], **options: Any) -> Run:
    """Runs the steps in virtual time and returns the run."""
    clock = MockClock(autojump_threshold=0)
    run = Run(make, clock, script, **options)
    trio.run(run.play, steps, clock=clock)
    return run


@pytest.mark.parametrize("turn", range(8))
def test_a_client_that_asked_in_tls_ended_the_scripted_broker(rig_class, turn):
    """A connection that breaks before its first answer is followed by one that asks whether this is TLS."""
    steps = [("send", 0, 1), *[("sleep", 0, 0)] * turn, ("drop", 1, 0)]
    for _ in range(5):  # trio's tasks take turns by chance
        simulate(rig_class, [], steps, seed=0).check()


def test_two_old_requests_that_surface_at_once_wrote_a_record_twice(rig_class):
    """A batch that was given up and its successor, between the successor's 45 and its new epoch.

    The successor's records stand twice, as docs/decisions/idempotence.md says; nothing else does.
    """
    too_large, slow, fine = Trouble(code=10), Trouble(delay_ms=2500), Trouble()
    script = [too_large, too_large, fine, slow, too_large, slow, fine, slow]
    run = simulate(rig_class, script, [("send", 0, 3)])
    assert [value[:6] for value in run.cluster.logs[TopicPartition("t", 0)].values if value] == [
        b"000001",
        b"000002",
        b"000003",
        b"000003",
    ]
    assert len(run.surfaced(0)) > 1
    run.check()


@given(script=st.lists(troubles, max_size=25), steps=st.lists(actions, max_size=25), seed=st.integers(0, 99))
@settings(
    max_examples=examples(120),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_exactly_once_and_in_order(rig_class, script, steps, seed):
    """With idempotence: no acknowledged record is lost, repeated or out of place."""
    simulate(rig_class, script, steps, seed=seed).check()


@given(script=st.lists(troubles, max_size=15), steps=st.lists(actions, max_size=15))
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_nothing_is_lost_without_idempotence(rig_class, script, steps):
    """Without: repeats are possible, losses are not."""
    simulate(rig_class, script, steps, enable_idempotence=False).check(repeats_allowed=True)


@given(script=st.lists(troubles, max_size=20), steps=st.lists(actions, max_size=25), seed=st.integers(0, 99))
@settings(
    max_examples=examples(80),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_exactly_once_while_estimates_are_wrong(rig_class, script, steps, seed):
    """Batches that outgrow their requests are split or put back unsent, among all troubles."""
    options = {"compression": GZIP, "max_request_size": 450, "dense": True}
    simulate(rig_class, script, steps, seed=seed, **options).check()


def test_wrong_estimates_split_batches(rig_class):
    """What the run above is about does happen in it; nothing fails of it."""
    steps = [("send", number % PARTITIONS, 6) for number in range(30)]
    options = {"compression": GZIP, "max_request_size": 450, "dense": True, "linger_ms": 5}
    run = simulate(rig_class, [], steps, **options)
    run.check()
    assert run.rig.sender.statistics().splits > 5
    assert all(future.outcome.error_of(future.index) is None for future in run.rig.futures)


def test_long_calm_run(rig_class):
    """Hundreds of records with five batches in flight, none refused: all there, no epoch raised."""
    steps = [("send", number % PARTITIONS, 6) for number in range(60)]
    run = simulate(rig_class, [Trouble(delay_ms=20)] * 40, steps)
    run.check()
    assert all(future.outcome.error_of(future.index) is None for future in run.rig.futures)
    assert sum(len(log.records) for log in run.cluster.logs.values()) == 360


@pytest.mark.parametrize("seed", range(4))
def test_storm(rig_class, seed):
    """Every request meets some trouble, for long; what is acknowledged is there once, in order."""
    script = [
        trouble
        for _ in range(30)
        for trouble in (
            Trouble(then="late", delay_ms=150),
            Trouble(code=19),
            Trouble(then="hang_up"),
            Trouble(code=87, for_good=True),
            Trouble(delay_ms=10),
            Trouble(code=2),
            Trouble(delay_ms=10),
            Trouble(code=7, write=True),
        )
    ]
    steps = []
    for number in range(80):
        steps += [("send", number % PARTITIONS, 3), ("sleep", (number * 7 + seed) % 40, 0)]
        if number % 11 == seed:
            steps.append(("move", number % PARTITIONS, 1 + number % 2))
    run = simulate(rig_class, script, steps, seed=seed)
    run.check()
    errors = {type(future.outcome.error_of(future.index)) for future in run.rig.futures}
    assert NetworkExceptionError not in errors  # retried until delivered or late
