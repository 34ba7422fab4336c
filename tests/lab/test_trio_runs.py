"""Signals that come while a trial of the laboratory runs trio's loop."""

from __future__ import annotations

import signal

import pytest
import trio

from lab.trio_runs import run_interruptible
from splashdam.cli.exiting import EndedBySignal, signals_interrupt
from splashdam.net.clock import SystemClock


def test_a_signal_within_trios_loop_was_a_broken_promise() -> None:
    """It was raised at any place, so that trio's loop ended with an internal error, or never."""
    done = []

    async def step() -> None:
        signal.raise_signal(signal.SIGTERM)
        done.append("step")

    async def work() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(step)
            await trio.sleep_forever()

    with signals_interrupt(), pytest.raises(EndedBySignal):
        run_interruptible(work, clock=SystemClock())
    assert done == ["step"]


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGHUP, EndedBySignal)]
)
def test_a_signal_was_lost_while_a_disk_failed(number: signal.Signals, kind: type[BaseException]) -> None:
    """The broker ended with the error of its disk, and all further runs were made."""

    async def work() -> None:
        signal.raise_signal(number)
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("the disk fails")

    with signals_interrupt(), pytest.raises(kind) as raised:
        run_interruptible(work, clock=SystemClock())
    assert raised.type is kind


def test_a_run_without_a_signal_has_a_result_or_its_own_error() -> None:
    """The handlers are put back."""

    async def work(fails: bool) -> int:
        if fails:
            raise OSError("the disk fails")
        return 7

    before = signal.getsignal(signal.SIGTERM)
    assert run_interruptible(work, False, clock=SystemClock()) == 7
    with pytest.raises(OSError, match="the disk fails"):
        run_interruptible(work, True, clock=SystemClock())
    assert signal.getsignal(signal.SIGTERM) == before
