"""Signals that wait until a step is done."""

from __future__ import annotations

import os
import signal

import pytest

from splashdam.cli.exiting import exit_status, interrupts_wait, signals_interrupt


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_step_is_finished_first(number: signal.Signals, status: int) -> None:
    """A JVM that was starting at Ctrl-C stayed for ever: the signal takes effect behind the block, once."""
    done = []

    def step() -> None:
        os.kill(os.getpid(), number)
        done.append("step")

    with signals_interrupt(), pytest.raises(KeyboardInterrupt) as raised, interrupts_wait():
        step()
    assert done == ["step"]
    assert exit_status(raised.value) == status


def test_handlers_are_put_back() -> None:
    """And a block without a signal ends as it does."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interrupts_wait():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_failure_goes_before_a_signal() -> None:
    """The step's own error has precedence."""

    def failing() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise ValueError("step")

    with signals_interrupt(), pytest.raises(ValueError, match="step"), interrupts_wait():
        failing()
