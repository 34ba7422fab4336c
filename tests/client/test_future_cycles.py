"""A failed batch goes when its futures go, whatever an application did with its error."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from splashdam.client.future import RecordFuture
from splashdam.model.errors import KafkaError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import IMPL, BatchOutcome


def raise_again(error: BaseException) -> None:
    """An errback that raises its error."""
    raise error


def raise_inside(error: BaseException) -> None:
    """An errback that raises its error and catches it."""
    with suppress(KafkaError):
        raise error


def by_get(future: RecordFuture) -> None:
    with suppress(KafkaError):
        future.get()


def by_exception(future: RecordFuture) -> None:
    error = future.exception
    assert error is not None
    with suppress(KafkaError):
        raise error


def by_errback(future: RecordFuture) -> None:
    future.add_errback(raise_again).add_errback(raise_inside)


def by_offset_of(future: RecordFuture) -> None:
    with suppress(KafkaError):
        future.outcome.offset_of(0)


class Local:
    """Stands in a frame that an error might keep."""


def use(way: Callable[[RecordFuture], None], partition: TopicPartition) -> weakref.ref[Local]:
    """One batch that fails; a weak reference to what only this frame holds."""
    local = Local()
    outcome = BatchOutcome(partition)
    outcome.fail(KafkaError("no"))
    way(RecordFuture(outcome, 0, 0))
    return weakref.ref(local)


@pytest.mark.parametrize("way", [by_get, by_exception, by_errback, by_offset_of])
def test_nothing_is_left_of_a_failed_batch(
    way: Callable[[RecordFuture], None], caplog: pytest.LogCaptureFixture
) -> None:
    """No frame, no future, no outcome survives a collection."""
    caplog.set_level(logging.CRITICAL)
    partition = TopicPartition("t", 0)
    local = use(way, partition)
    gc.collect()
    assert local() is None
    assert not outcomes_of(partition)


def outcomes_of(partition: TopicPartition) -> list[BatchOutcome]:
    """Those that still exist; by the object, as other tests' threads may make their own meanwhile."""
    found = [each for each in gc.get_objects() if type(each) is BatchOutcome]
    return [each for each in found if each.topic_partition is partition]


def test_an_outcome_that_somebody_keeps_is_found() -> None:
    """Or the test above would prove nothing."""
    partition = TopicPartition("t", 0)
    kept = BatchOutcome(partition)
    assert outcomes_of(partition) == [kept]


def test_with_the_other_twin() -> None:
    """The same with the kernel that this run does not use."""
    environment = {name: value for name, value in os.environ.items() if name != "SPLASHDAM_PURE"}
    if IMPL == "c":
        environment["SPLASHDAM_PURE"] = "1"
    test = f"{Path(__file__)}::test_nothing_is_left_of_a_failed_batch"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test],
        env=environment, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_a_waiter_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An error raised by a waiter of a batch is logged by the client."""
    import splashdam.client.running.core  # noqa: F401  # it sets the hook

    outcome = BatchOutcome(TopicPartition("t", 0))
    outcome.add_waiter(lambda: 1 // 0)
    outcome.succeed(0, -1)
    outcome.run_waiters()
    (entry,) = caplog.records
    assert (entry.name, entry.getMessage()) == ("splashdam.client", "a waiter of a batch raised")
    assert entry.exc_info is not None
    assert entry.exc_info[0] is ZeroDivisionError
