"""Runs of ``splashdam broker`` as a process with real files, in which a system call fails.

A library that is preloaded into the process counts the calls that change its data directory
(`lab.failing_calls`). Housekeeping depends on the clock, so two runs may differ by a few calls: a run is
identified by the kind of failure and the number of the call, and reports which call failed.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
from collections.abc import Collection, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

import attrs
import trio
from click.testing import CliRunner

from lab.broker_process import Broker, BrokerDied
from lab.every_write.in_memory import shown
from lab.every_write.workload import Books, Clients, Workload, broker_config, look
from lab.failing_calls.library import WRITES, Call, Failure, calls_in, preloading
from lab.failing_calls.strace import Strace
from lab.trio_runs import first_of, run_interruptible
from splashdam.cli.broker.verify_log import verify_log
from splashdam.embedded_broker.broker import open_broker
from splashdam.net.clock import SystemClock
from splashdam.net.connect import TcpConnect
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.disk import DiskFiles

KINDS: dict[str, Failure] = {
    "EIO once": Failure("EIO", at=1),
    "ENOSPC once": Failure("ENOSPC", at=1),
    "a short write": Failure("short", at=1, match=WRITES),
    "EIO from there on": Failure("EIO", at=1, times=None),
    "ENOSPC from there on": Failure("ENOSPC", at=1, times=None),
    "the end of the process": Failure("kill", at=1),
}
_CAUSES = {"EIO": os.strerror(errno.EIO), "ENOSPC": os.strerror(errno.ENOSPC)}
_HOUSEKEEPING_MS = 100
_HOUSEKEEPING_S = 1.0
_PATIENCE_MS = 5000
_SHORT_PATIENCE_MS = 500
"""Patience of the clients if the disk keeps failing, because each refused step takes this long.

A busy machine may need longer for a step that succeeds.
"""
_LONGEST_S = 120
_READING_S = 60
_WATCH_S = 0.05
_REACHED = {
    "compaction": "*.cleaned",
    "a swap of the cleaner": "*.swap",
    "the removal of a segment": "*.deleted",
    "a rolled segment": "*/plain-0/*5.log",
    "a snapshot of producers": "*.snapshot",
    "a transaction": "*/__transaction_state-0/*.log",
    "offsets of a group": "*/__consumer_offsets-0/*.log",
    "an aborted transaction's index": "*.txnindex",
    "the removal of a topic": "*/short-lived-0.*-delete*",
    "the registry": "*/splashdam-topics.changes",
    "the end in order": "*/.kafka_cleanshutdown",
}


@attrs.define
class Run:
    """The result of a run.

    Attributes:
        violations: the promises that were broken.
        calls: the calls that the library has counted.
        failed: the first call that failed; None if the number was not reached.
    """

    violations: list[str]
    calls: list[Call]
    failed: Call | None = None


def run_once(library: Path, folder: Path, failure: Failure | None, strace: Strace | None = None) -> Run:
    """Run the workload with this failure in an empty folder, open the directory again, and compare.

    Args:
        library: see `lab.failing_calls.library.compiled`.
        folder: for the directory and the logs.
        failure: None for none.
        strace: also watches the process.
    """
    books, log = Books(), folder / "calls"
    properties = {name: str(value) for name, value in broker_config(housekeeping_ms=_HOUSEKEEPING_MS).items()}
    broker = Broker(folder / "data", folder / "broker.log", properties)
    environment = preloading(library, folder / "data", log=log, failure=failure)
    lasts = failure is not None and failure.times is None
    patience_ms = _SHORT_PATIENCE_MS if lasts else _PATIENCE_MS
    status = _first_life(broker, environment, books, patience_ms, strace)
    calls = calls_in(log)
    failed = calls[failure.at - 1] if failure is not None and len(calls) >= failure.at else None
    books.violations += broken_words(
        failure if failed or lasts else None, failed, status, broker.output(), books.refusals
    )
    books.violations += _next_life(folder / "data", books)
    return Run(books.violations, calls, failed)


def missing_parts(calls: Sequence[Call]) -> list[str]:
    """Return the parts of the workload that a run without a failure lacks: no run makes them fail."""
    paths = {path for call in calls for path in (call.path, call.new_path)}
    return [part for part, pattern in _REACHED.items() if not any(fnmatch(path, pattern) for path in paths)]


def _first_life(
    broker: Broker, environment: dict[str, str], books: Books, patience_ms: float, strace: Strace | None
) -> int | None:
    """Let the broker run under the workload; return its status, None for one that did not end on SIGTERM."""
    try:
        broker.start(environment, prefix=strace.prefix if strace else ())
    except BrokerDied:
        return broker.status
    try:
        clock = SystemClock()
        run_interruptible(_work, broker, books, patience_ms, clock, clock=clock)
        if broker.status is None:
            with suppress(subprocess.TimeoutExpired):
                broker.terminate()
        elif broker.status != -signal.SIGKILL:
            books.violations.append("the broker ended by itself while clients were at work")
        return broker.status
    finally:
        broker.kill()


async def _work(broker: Broker, books: Books, patience_ms: float, clock: SystemClock) -> None:
    clients = Clients("127.0.0.1", broker.port, TcpConnect(), clock, patience_ms=patience_ms)
    with trio.move_on_after(_LONGEST_S) as limit:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, broker, nursery.cancel_scope)
            await Workload(clients, books, _HOUSEKEEPING_S).run()
            nursery.cancel_scope.cancel()
    if limit.cancelled_caught:
        books.violations.append(f"the workload did not end within {_LONGEST_S} s")


async def _watch(broker: Broker, work: trio.CancelScope) -> None:
    """Cancel the workload when the process ends, because nothing answers the clients any more."""
    while broker.status is None:  # noqa: ASYNC110 (there is no event for it)
        await trio.sleep(_WATCH_S)
    work.cancel()


def broken_words(
    failure: Failure | None, failed: Call | None, status: int | None, output: str, refusals: Collection[str]
) -> list[str]:
    """Return what is wrong with the end of the process, its output, and the errors of its clients.

    A broker goes on after a failure, unless it cannot start; it ends with status 1 if it could not close its
    directory cleanly. After every refusal, the output or an error must name the directory and the cause.

    Args:
        failure: the planned failure; None for none.
        failed: the first call that failed; None if the number was not reached.
        status: of the process.
        output: its standard error.
        refusals: texts of the errors that clients got.
    """
    wrong = [f"a traceback: {output}"] if "Traceback" in output else []
    if failure is None or failed is None:  # a client without patience may have given up before
        if status != 0 or output or (refusals and failure is None):
            wrong.append(f"nothing failed, but: status {status}, {output!r}, {list(refusals)}")
    elif failure.kind == "kill":
        if status != -signal.SIGKILL or output:
            wrong.append(f"killed, but: status {status}, {output!r}")
    else:
        told = "\n".join([output, *refusals])
        cause = _CAUSES.get(failure.kind, "")
        if status not in (0, 1):
            wrong.append(f"the broker ended with status {status}: {output!r}")
        elif status and "Error: " not in output:
            wrong.append(f"the broker ended with status {status} and did not say why: {output!r}")
        if (status or refusals) and (cause not in told or os.path.dirname(failed.path) not in told):
            wrong.append(f"nobody told of {failed}: {cause}; but {told[-2000:]!r}")
    return wrong


def _next_life(data: Path, books: Books) -> list[str]:
    """Open the directory with a broker in this process, then verify it; return what is wrong."""
    clock = SystemClock()
    try:
        run_interruptible(_look, data, books, clock, clock=clock)
    except BaseException as error:
        if isinstance(first_of(error), KeyboardInterrupt):
            raise
        return [f"the directory cannot be used: {shown(error)}"]
    verified = CliRunner().invoke(verify_log, ["--quiet", str(data)])
    return [f"verify-log: {verified.output}"] if verified.exit_code else []


async def _look(data: Path, books: Books, clock: SystemClock) -> None:
    network = MemoryNetwork()
    async with open_broker(
        data,
        host="broker",
        port=9092,
        listen=network.listen,
        clock=clock,
        files=DiskFiles(fsync=False),
        config=broker_config(housekeeping_ms=_HOUSEKEEPING_MS),
    ) as broker:
        there = {where.topic for where in broker.logs.logs}
        clients = Clients("broker", 9092, network.connect, clock)
        await look(clients, books, there, is_power_cut=False, seconds=_READING_S)


def points_of(calls: Sequence[Call]) -> list[tuple[str, int]]:
    """Return the kinds and numbers of all runs: each call of a run without a failure; each write if short."""
    writes = sum(re.fullmatch(WRITES, call.subject) is not None for call in calls)
    return [
        (kind, number)
        for kind, failure in KINDS.items()
        for number in range(1, (writes if failure.match else len(calls)) + 1)
    ]
