"""When signals take effect: after a step, where a trio program waits, during a write that blocks."""

from __future__ import annotations

import io
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from support.running.process_kit import run_script

from splashdam.cli.cluster import top
from splashdam.cli.cluster.top import Look
from splashdam.cli.commands import splashdam
from splashdam.cli.connecting import Cluster
from splashdam.cli.entry import leave_at_once
from splashdam.cli.exiting import (
    ENDING,
    EndedBySignal,
    exit_status,
    interrupts_end_the_process,
    interrupts_wait,
    signals_interrupt,
    signals_interrupt_trio,
)
from splashdam.cli.records.reading import Output
from splashdam.console.sampling import Seen
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.fetch_client import FetchedPartition
from splashdam.net.run import run_in_trio
from splashdam.record.reader import Record


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
    """A block in which no signal came ends normally."""
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


def test_ctrl_c_during_imports_was_a_traceback() -> None:
    """The first 300 ms, and the time after the last word, end with 130 and without a word."""
    done = run_script(
        """
        import atexit, os, signal, sys
        from splashdam.cli import entry

        class Interrupting:
            def __init__(self, module):
                self.module = module

            def find_spec(self, name, path=None, target=None):
                if name == self.module:
                    os.kill(os.getpid(), signal.SIGINT)

        def run(module):
            sys.argv = ["splashdam", "tail", "t", "-b", "127.0.0.1:1"]
            if module is None:
                sys.argv = ["splashdam", "--help"]
                atexit.register(os.kill, os.getpid(), signal.SIGINT)
            sys.meta_path.insert(0, Interrupting(module))
            entry.main()

        signal.signal(signal.SIGINT, signal.default_int_handler)  # the test run may ignore it
        for module in ("click", "splashdam.cli.records.tail", "trio", None):
            child = os.fork()
            if not child:
                sys.stdout = open(os.devnull, "w")
                run(module)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert status == 130, (module, status)
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_between_two_instructions_left_a_nursery_open() -> None:
    """`splashdam tail` ended with "Nursery stack corrupted" and status 1, or hung.

    The signal comes between two instructions of a task, and takes effect where the program waits.
    """
    after = []

    async def interrupted_task() -> None:
        signal.raise_signal(signal.SIGINT)
        after.append("next instruction")
        await trio.sleep_forever()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupted_task)

    with pytest.raises(BaseExceptionGroup) as raised:
        run_in_trio(main)
    assert raised.group_contains(KeyboardInterrupt)
    assert after == ["next instruction"]


@pytest.mark.parametrize(
    ("line", "status"), [("options", 0), ("topics list -b 127.0.0.1:1 --timeout 0.1", 1)]
)
def test_a_second_ctrl_c_while_a_command_ends_was_a_traceback(line: str, status: int) -> None:
    """Once a command has ended, however it has, Ctrl-C ends the process at once."""
    before = signal.signal(signal.SIGINT, leave_at_once)  # as the entry point does
    try:
        assert CliRunner().invoke(splashdam, line.split()).exit_code == status
        assert signal.getsignal(signal.SIGINT) is leave_at_once
    finally:
        signal.signal(signal.SIGINT, before)


class BlockedOutput(io.BytesIO):
    """A full pipe: the signal comes during the write, which would go on."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__()
        self.has_gone_on = False
        self._number = number

    def write(self, _data: object) -> int:
        signal.raise_signal(self._number)
        self.has_gone_on = True
        return 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_write_that_nobody_reads_is_interrupted(number: signal.Signals, status: int) -> None:
    """A full pipe blocks the loop, so the signal cannot wait until a task waits."""
    stream = BlockedOutput(number)
    output = Output(stream=stream, render=lambda _where, _record: b"line", left=None)
    records = [Record(offset=0, timestamp_ms=0, key=None, value=b"v", headers=[])]

    async def main() -> None:
        output.write(FetchedPartition(TopicPartition("t", 0), records, 1, 1), None)

    with pytest.raises(KeyboardInterrupt) as raised, signals_interrupt_trio():
        run_in_trio(main)
    assert not stream.has_gone_on
    assert exit_status(raised.value) == status
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_top_in_a_pipe_that_nobody_reads_is_interrupted(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only SIGKILL ended it."""
    went_on = []

    async def looked(*_arguments: object) -> Look:
        return Look(seen=Seen(overview=None, failure=None, failing_since_ms=None, moments=()), groups=())

    def blocked(_fields: object) -> None:
        signal.raise_signal(number)
        went_on.append(number)

    monkeypatch.setattr(top, "_look", looked)
    monkeypatch.setattr(top, "print_json", blocked)
    monkeypatch.setattr(top, "as_fields", lambda look: look)
    nobody: Any = None
    with pytest.raises(KeyboardInterrupt), signals_interrupt_trio():
        run_in_trio(partial(top._print_looks, nobody, nobody, 0.0, once=False, as_json=True))
    assert not went_on


def test_ctrl_c_did_not_end_a_broker_that_recovers_its_logs(tmp_path: Path) -> None:
    """It took effect when gigabytes were recovered: logs survive a kill, so the process may end at once."""
    done = run_script(
        """
        import signal, sys
        from splashdam.cli.broker import broker
        from splashdam.cli.entry import main

        def recovering(*_arguments, **_settings):
            while True:
                signal.raise_signal(signal.SIGINT)

        signal.signal(signal.SIGINT, signal.default_int_handler)  # the test run may ignore it
        broker.open_broker = recovering
        sys.argv = ["splashdam", "broker", "--port", "0", "--data", sys.argv[1]]
        main()
        """,
        str(tmp_path),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_signal_at_the_end_of_a_block_kept_its_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting a handler first calls that of a signal which has just come: it raised, and nothing was set."""
    before = signal.getsignal(signal.SIGINT)
    set_handler, came = signal.signal, []

    def late(number: int, handler: Any) -> object:
        if handler is before and not came:
            came.append(number)
            raise KeyboardInterrupt
        return set_handler(number, handler)

    with pytest.raises(KeyboardInterrupt), interrupts_end_the_process():
        monkeypatch.setattr(signal, "signal", late)
    assert came
    assert signal.getsignal(signal.SIGINT) is before


def interrupted(*_arguments: object, **_named: object) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_while_a_cluster_is_asked_was_aborted_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that has printed nothing yet ends with 130 and says nothing."""
    monkeypatch.setattr(Cluster, "ask", interrupted)
    done = CliRunner().invoke(splashdam, ["topics", "list", "-b", "127.0.0.1:1"])
    assert (done.exit_code, done.output) == (130, "")


class InterruptedInput(io.BytesIO):
    """Standard input at which somebody presses Ctrl-C."""

    def read1(self, _size: int | None = -1) -> bytes:
        raise KeyboardInterrupt


def test_ctrl_c_at_a_question_was_aborted_with_1() -> None:
    """`no` is still 1."""
    line = ["topics", "delete", "t", "-b", "127.0.0.1:1"]
    assert CliRunner().invoke(splashdam, line, input="n\n").exit_code == 1
    assert CliRunner().invoke(splashdam, line, input=InterruptedInput()).exit_code == 130


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_in_a_loop_goes_the_way_of_ctrl_c(number: signal.Signals) -> None:
    """An exception raised anywhere in the loop would be an internal error of trio."""
    ended = []

    async def main() -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                os.kill(os.getpid(), number)
        finally:
            ended.append(trio.lowlevel.current_task().name)

    before = signal.getsignal(number)
    with pytest.raises(EndedBySignal) as raised, signals_interrupt_trio():
        trio.run(main)
    assert exit_status(raised.value) == 128 + number
    assert len(ended) == 1
    assert signal.getsignal(number) is before
