"""Runs of a broker on files in memory, in virtual time: every run is the same each time."""

from __future__ import annotations

import errno
import random
from contextlib import AbstractAsyncContextManager, suppress

import attrs
from trio.testing import MockClock

from lab.every_write.workload import Books, Clients, Workload, broker_config, look
from lab.simulator.simulation import deterministic
from lab.trio_runs import first_of, run_interruptible
from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import Fault, MemoryFiles, PowerCutError
from splashdam.testing.clock import VirtualClock

KINDS: dict[str, Fault] = {
    "EIO once": Fault(errno.EIO),
    "ENOSPC once": Fault(errno.ENOSPC),
    "a short write": Fault(errno.ENOSPC, landed_bytes=7),
    "EIO from there on": Fault(errno.EIO, times=None),
    "the end of the process": Fault(None, landed_bytes=7),
    "a power cut": Fault(None, landed_bytes=7),
}
_HOST, _PORT = "broker", 9092
_HOUSEKEEPING_MS = 1000
_HOUSEKEEPING_S = 10
_READING_S = 300
_MOST_REFUSED = 100


class Runner:
    """One run: the workload with a failure, then a new broker on the same directory.

    Args:
        files: the disk.
        most_refused: see `Clients`.
    """

    def __init__(self, files: MemoryFiles, most_refused: int = _MOST_REFUSED) -> None:
        self.files = files
        self.books = Books()
        self._most_refused = most_refused

    def work(self) -> None:
        """Run the workload until it ends, or until the failure ends the process."""
        clock = MockClock(autojump_threshold=0)
        with suppress(PowerCutError), deterministic(seed=0):
            try:
                run_interruptible(self._work, clock, clock=clock)
            except* PowerCutError:
                pass

    def look(self, *, is_power_cut: bool) -> None:
        """Open the directory with a new broker, and compare it with the books."""
        clock = MockClock(autojump_threshold=0)
        try:
            run_interruptible(self._look, clock, is_power_cut, clock=clock)
        except BaseException as error:
            if isinstance(first_of(error), KeyboardInterrupt):
                raise
            self.books.violations.append(f"the directory cannot be used: {shown(error)}")

    async def _work(self, clock: MockClock) -> None:
        network, virtual = MemoryNetwork(), VirtualClock(clock)
        async with self._broker(network, virtual):
            clients = Clients(_HOST, _PORT, network.connect, virtual, most_refused=self._most_refused)
            await Workload(clients, self.books, _HOUSEKEEPING_S).run()

    async def _look(self, clock: MockClock, is_power_cut: bool) -> None:
        network, virtual = MemoryNetwork(), VirtualClock(clock)
        async with self._broker(network, virtual) as broker:
            clients = Clients(_HOST, _PORT, network.connect, virtual)
            there = {where.topic for where in broker.logs.logs}
            await look(clients, self.books, there, is_power_cut=is_power_cut, seconds=_READING_S)

    def _broker(self, network: MemoryNetwork, clock: VirtualClock) -> AbstractAsyncContextManager[Broker]:
        return open_broker(
            "/data",
            host=_HOST,
            port=_PORT,
            listen=network.listen,
            clock=clock,
            files=self.files,
            config=broker_config(housekeeping_ms=_HOUSEKEEPING_MS),
        )


def shown(error: BaseException) -> str:
    """Return the class and the text of an error, or of the first one of a group."""
    first = first_of(error)
    return f"{type(first).__name__}: {first}"


def run_once(kind: str, operation: int) -> list[str]:
    """Run the workload with this failure at this operation, and return the violations."""
    files, fault = MemoryFiles(), attrs.evolve(KINDS[kind], after=operation)
    runner = Runner(files, most_refused=_MOST_REFUSED if fault.error_number else 1)
    files.inject(fault)
    try:
        runner.work()
    except BaseException as error:
        if isinstance(first_of(error), KeyboardInterrupt):
            raise
        if not isinstance(first_of(error), KafkaStorageError):  # a broker may refuse to start
            runner.books.violations.append(f"the broker ended with {shown(error)}")
    files.heal()
    if kind == "a power cut":
        files.crash(random.Random(operation))
    else:
        files.kill()
    runner.look(is_power_cut=kind == "a power cut")
    return runner.books.violations


def count_operations() -> int:
    """Run the workload without a failure, and return the number of its disk operations."""
    files = MemoryFiles()
    runner = Runner(files)
    runner.work()
    operations = files.operations
    runner.look(is_power_cut=False)
    assert not runner.books.refusals, runner.books.refusals
    assert not runner.books.violations, runner.books.violations
    return operations
