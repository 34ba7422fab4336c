"""Appends that a signal handler interrupts, wherever the interpreter looks for signals: behind any call."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from types import FrameType
from typing import Any

import pytest

from splashdam.accumulator.accumulator import Exhausted
from splashdam.accumulator.memory import MemoryBudget
from splashdam.model.errors import KafkaError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import FAILED, FutureCell


class Interrupt(BaseException):
    """What the handler raises."""


def interrupted(act: Callable[[], object], at: int) -> bool:
    """Calls ``act`` and raises at an end of its call number ``at``; False: there are not so many."""
    seen = count()

    def look(_frame: FrameType, event: str, _argument: object) -> None:
        if event in {"call", "c_return"} and next(seen) == at:
            raise Interrupt

    gc.disable()  # a collection calls hypothesis, which counts them, and an interrupt there is nobody's
    sys.setprofile(look)
    try:
        act()
    except Interrupt:
        return True
    finally:
        sys.setprofile(None)
        gc.enable()
    return False


def opens(bench: Any) -> Callable[[], object]:
    return bench.append


def grows(bench: Any) -> Callable[[], object]:
    bench.append(value=bytes(900))
    return lambda: bench.append(value=bytes(900))


def grows_soon(bench: Any) -> Callable[[], object]:
    bench.append(value=bytes(900))
    lane = bench.accumulator.lane(TopicPartition("t", 0))
    return lambda: bench.accumulator.append_grown(lane, 0, None, bytes(900), None, FutureCell)


def closes(bench: Any) -> Callable[[], object]:
    bench.append(value=bytes(15_000))
    return lambda: bench.append(value=bytes(2_000))


def fills(bench: Any) -> Callable[[], object]:
    bench.append(value=bytes(16_100))
    return lambda: bench.append(value=bytes(260))


def finds_no_memory(bench: Any) -> Callable[[], object]:
    for partition in range(1, 5):
        bench.append(partition, value=bytes(14_900))
    return lambda: bench.append(value=bytes(14_900))


def comes_with_a_ticket(bench: Any) -> Callable[[], object]:
    finds_no_memory(bench)
    bench.ticket = bench.exhausted(value=bytes(15_000)).ticket
    bench.accumulator.abort_batches(KafkaError("make room"))
    return lambda: bench.append(value=bytes(100), ticket=bench.ticket)


PLACES = [opens, grows, grows_soon, closes, fills, finds_no_memory, comes_with_a_ticket]


def every_interrupt(make_bench: Callable[..., Any], prepare: Callable[[Any], Any]) -> Iterator[Any]:
    for at in count():
        bench = make_bench(batch_bytes=16_384, buffer_memory=65_536)
        bench.ticket = None
        if not interrupted(prepare(bench), at):
            return
        if bench.ticket is not None:
            bench.accumulator.cancel(bench.ticket)  # as whoever was interrupted does
        yield bench


@pytest.mark.parametrize("prepare", PLACES)
def test_interrupted_append_keeps_no_memory(make_bench, prepare):
    """The reserved memory belongs to a batch that will release it, or is free: nothing is lost."""
    benches = list(every_interrupt(make_bench, prepare))
    assert benches
    for bench in benches:
        accumulator = bench.accumulator
        charged = sum(batch.charged_bytes for batch in accumulator.incomplete)
        assert accumulator.free_bytes + charged == accumulator.buffer_memory
        assert not accumulator.waiting


@pytest.mark.parametrize("prepare", PLACES)
def test_interrupted_append_leaves_batches_that_can_be_aborted(make_bench, prepare):
    """A batch that was not published yet is open all the same; its like must not keep others pending."""
    for bench in every_interrupt(make_bench, prepare):
        answer = bench.append(1)
        outcomes = [batch.outcome for batch in bench.accumulator.abort_batches(KafkaError("closed"))]
        assert isinstance(answer, Exhausted) or answer.future.outcome in outcomes
        assert all(outcome.state == FAILED for outcome in outcomes)


def test_a_granted_waiter_wakes_although_the_release_is_interrupted():
    """Else that thread would wait for ``max_block_ms`` with the memory in its hands."""
    for at in count():
        budget, heard = MemoryBudget(10), []
        giver, taker = budget.queue(10), budget.queue(4)
        taker.on_ready = partial(heard.append, taker)
        if not interrupted(lambda: budget.cancel(giver), at):  # noqa: B023
            break
        assert bool(heard) == taker.ready
        budget.cancel(giver)
        assert taker.ready
        assert heard == [taker]
        budget.release(budget.spend(taker))
        assert budget.take(10)
    assert at > 3


@pytest.mark.parametrize("prepare", PLACES)
def test_interrupted_append_counts_every_record(make_bench, make_cluster, prepare):
    """A batch that is closed without its number would share its sequence numbers with the next."""
    for bench in every_interrupt(make_bench, prepare):
        bench.append()
        for batch in bench.drain(make_cluster(5)).get(1, ()):
            assert batch.record_count > 0
