"""What a test leaves behind is its error: threads, child processes, open files and sockets.

Before and after each test the process is looked at, which costs some hundred microseconds. Fixtures that
several tests share may hold what they opened until they end; then all that has come since they began has to
be gone. What ends by itself within `_ENDING_SECONDS` has not been left behind. Files and children are seen on
Linux alone.
"""

from __future__ import annotations

import gc
import os
import select
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
from trio._core import _thread_cache

_ENDING_SECONDS = 10
_ENDING_TURNS = 10_000
_OPEN = "/proc/self/fd"
_TASKS = "/proc/self/task"


class Belongings(NamedTuple):
    """What a process has at some moment."""

    threads: frozenset[threading.Thread]
    children: frozenset[int]
    files: frozenset[tuple[str, str]]

    def without(self, other: Belongings) -> Belongings:
        """What the other did not have."""
        return Belongings(
            self.threads - other.threads, self.children - other.children, self.files - other.files
        )

    def with_all_of(self, other: Belongings) -> Belongings:
        """The two together."""
        return Belongings(
            self.threads | other.threads, self.children | other.children, self.files | other.files
        )

    def described(self) -> list[str]:
        """One text for each."""
        return [
            *sorted(f"thread {thread.name}" for thread in self.threads),
            *sorted(f"child process {child}: {_command(child)}" for child in self.children),
            *sorted(f"descriptor {number}: {target}" for number, target in self.files),
        ]


_NOTHING = Belongings(frozenset(), frozenset(), frozenset())
_kept = _NOTHING


def belongings() -> Belongings:
    """What this process has now, but for what is kept."""
    # A thread that trio has no work for waits some seconds for more; a dummy is a foreign library's.
    idle = {worker._thread for worker in list(_thread_cache.THREAD_CACHE._idle_workers)}
    threads = {thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}
    return Belongings(frozenset(threads - idle), frozenset(_children()), frozenset(_files())).without(_kept)


@contextmanager
def kept() -> Iterator[None]:
    """Whatever a block opens belongs to the whole session."""
    global _kept  # noqa: PLW0603 (one for the session, as the process is)
    before = belongings()
    yield
    _kept = _kept.with_all_of(belongings().without(before))


def _children() -> Iterator[int]:
    """Also those that have ended and that nobody has waited for."""
    with suppress(FileNotFoundError):  # not on this system
        for task in os.listdir(_TASKS):
            # The thread may have just ended.
            with suppress(OSError), open(f"{_TASKS}/{task}/children", "rb") as listed:
                yield from map(int, listed.read().split())


def _files() -> Iterator[tuple[str, str]]:
    found: dict[str, str] = {}
    with suppress(FileNotFoundError):  # not on this system
        for number in os.listdir(_OPEN):
            with suppress(OSError):  # the listing's own
                found[number] = os.readlink(f"{_OPEN}/{number}")
    # A client of librdkafka's that is destroyed may leave the pipes by which its threads woke each other.
    ends = Counter(found.values()) if "confluent_kafka" in sys.modules else {}
    # With an object store, moto's: pyarrow keeps connections to it, each with a descriptor that wakes it.
    wakes = ("anon_inode:[eventfd]", "anon_inode:[eventpoll]") if "moto" in sys.modules else ()
    return (
        (each, to)
        for each, to in found.items()
        if to not in wakes and not (to.startswith("pipe:") and ends.get(to, 0) > 1)
    )


def _command(child: int) -> str:
    with suppress(OSError):
        return (
            Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ").strip() or "has ended, unwaited for"
        )
    return "has ended"


def complaints(before: Belongings) -> list[str]:
    """What is new and does not end by itself, and what warns when it is collected."""
    left = belongings().without(before)
    warned = _collected()
    for thread in left.threads:
        thread.join(_ENDING_SECONDS)
    for child in left.children:
        with suppress(OSError):
            _wait_for(child)
    left = belongings().without(before)
    # pyarrow's threads close the files of a table a moment after it is read.
    until = time.monotonic() + _ENDING_SECONDS
    while left.files and time.monotonic() < until:
        time.sleep(0.01)
        left = belongings().without(before)
    return [*left.described(), *warned]


_UNCLOSED_SOCKETS = ("ResourceWarning: unclosed <socket.socket", "ResourceWarning: unclosed <ssl.SSLSocket")


def _collected() -> list[str]:
    """Collects garbage, and says what cannot be raised there: else it would fail a later test."""
    found: list[str] = []
    hook = sys.unraisablehook
    sys.unraisablehook = lambda error: found.append(f"{error.exc_type.__name__}: {error.exc_value}")
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook
    # kafka-python leaves a socket to the collector where it is closed in the middle of a TLS handshake; the
    # log records of a test, which hold its errors, stay until now.
    return [each for each in found if "kafka" not in sys.modules or not each.startswith(_UNCLOSED_SOCKETS)]


def _wait_for(child: int) -> None:
    process = os.pidfd_open(child)
    try:
        select.select([process], [], [], _ENDING_SECONDS)
    finally:
        os.close(process)


def _end_run(error: BaseException) -> None:
    """Cancels the run of trio's that a time limit has broken out of while it waited.

    To trio it still goes on, so that none can begin after it, and all later tests with a loop would fail.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is not trio.run.__code__ or "gen" not in frame.f_locals:
            continue
        run, runner = frame.f_locals["gen"], frame.f_locals["runner"]
        with suppress(StopIteration):  # it has ended
            for _ in range(_ENDING_TURNS if run.gi_frame is not None else 0):
                if runner.main_task is not None:
                    runner.main_task.parent_nursery.cancel_scope.cancel()
                run.send(runner.io_manager.get_events(0))


class Leftovers:
    """The look at the process around each test."""

    def __init__(self) -> None:
        self._before: Belongings | None = None
        self._holding: set[Any] = set()
        self._failed = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        """Nothing has been opened for the test yet."""
        if self._before is None:
            self._before = belongings()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[object]:
        """Notes shared fixtures that hold something."""
        if fixturedef.scope == "function":
            return (yield)
        before = belongings()
        try:
            return (yield)
        finally:
            if belongings().without(before) != _NOTHING:
                self._holding.add(fixturedef)

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """A fixture has ended."""
        self._holding.discard(fixturedef)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A test that fails may leave objects, which its traceback holds, but no run of trio."""
        report = yield
        if call.excinfo is not None:
            _end_run(call.excinfo.value)
        self._failed = report.failed or (self._failed and report.when != "setup")
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        """All that was opened for the test is closed, unless others share it."""
        yield
        if self._holding or self._before is None:
            return
        now = belongings()
        if self._failed or now.without(self._before) == _NOTHING:
            self._before = now
            return
        left = complaints(self._before)
        self._before = belongings()
        if left:
            pytest.fail(f"left behind: {', '.join(left)}", pytrace=False)


def pytest_configure(config: pytest.Config) -> None:
    """For every test."""
    config.pluginmanager.register(Leftovers(), "looks-for-leftovers")
