"""Watches how long the steps of a trio loop take, in CPU time of its thread: no busy machine changes that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import trio

from splashdam.storage.files.disk import DirectoryEntry
from splashdam.storage.files.memory import MemoryFiles

T = TypeVar("T")


class LoopWatch(trio.abc.Instrument):
    """An instrument that remembers the longest step of any task.

    Attributes:
        longest_seconds: of CPU time of the loop's thread, between two moments at which others may run.
        longest_task: who took it.
        total_seconds: of all steps that count, with what was done beside the loop within them.
        beside_seconds: what was done inline only because files are in memory: it is not counted.
        uncounted_task: whose steps are not the broker's: who asks it in the same loop.
    """

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        self.longest_task = ""
        self.total_seconds = 0.0
        self.beside_seconds = 0.0
        self.uncounted_task: trio.lowlevel.Task | None = None
        self._began = self._began_in_all = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task is about to go on."""
        self._began_in_all = time.thread_time()
        self._began = self._began_in_all - self.beside_seconds

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task waits for something, or gives the others their turn."""
        if task is self.uncounted_task:
            return
        now = time.thread_time()
        self.total_seconds += now - self._began_in_all
        seconds = now - self.beside_seconds - self._began
        if seconds > self.longest_seconds:
            self.longest_seconds, self.longest_task = seconds, task.name

    def forget(self) -> None:
        """What was before does not count."""
        self.longest_seconds, self.longest_task, self.total_seconds = 0.0, "", 0.0


class Passes(trio.abc.Instrument):
    """Counts the passes of the scheduler."""

    def __init__(self) -> None:
        self.count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


class StepCount(trio.abc.Instrument):
    """An instrument that counts the steps of all tasks: what happens at one count happens in one turn."""

    def __init__(self) -> None:
        self.steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task is about to go on."""
        self.steps += 1


class _EachStep(trio.abc.Instrument):
    """Begins a number for each step, unless the last one is still zero."""

    def __init__(self, counts: list[int]) -> None:
        self._counts = counts

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task is about to go on."""
        if self._counts[-1]:
            self._counts.append(0)


@contextmanager
def counts_of_steps() -> Iterator[list[int]]:
    """Counts something in each step of the tasks: what happens adds to the last number of the list.

    Steps in which nothing happens have no number.
    """
    counts = [0]
    instrument = _EachStep(counts)
    trio.lowlevel.add_instrument(instrument)
    try:
        yield counts
    finally:
        trio.lowlevel.remove_instrument(instrument)


class UncountedFiles(MemoryFiles):
    """Files in memory; what a disk's would do in a thread does not count as the loop's.

    Args:
        watch: who counts.
    """

    def __init__(self, watch: LoopWatch) -> None:
        super().__init__()
        self._watch = watch

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """As ``Files.list_directory``; in memory it looks at every file there is."""
        with self._uncounted():
            return super().list_directory(path)

    async def run(self, work: Callable[[], T]) -> T:
        """As ``Files.run``."""
        await trio.lowlevel.checkpoint()
        with self._uncounted():
            return work()

    @contextmanager
    def _uncounted(self) -> Iterator[None]:
        began = time.thread_time(), self._watch.beside_seconds
        try:
            yield
        finally:  # what is called within has counted itself
            self._watch.beside_seconds = began[1] + time.thread_time() - began[0]
