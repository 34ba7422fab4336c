"""Measurements in a process of their own: nothing that this one does is in them."""

from __future__ import annotations

import os
import sys
import threading
import tracemalloc
import types
from pathlib import Path

import pytest
from support.running.alone import alone, descriptor_count, files_open_below, traced


def megabyte() -> int:
    return len(bytes(1 << 20))


def test_a_thread_that_allocates_meanwhile_is_not_measured() -> None:
    """As the threads of an earlier test's broker did, now and then."""
    over, begun = threading.Event(), threading.Event()

    def allocate() -> None:
        while not over.is_set():
            assert bytearray(8 << 20)
            begun.set()

    thread = threading.Thread(target=allocate)
    thread.start()
    begun.wait()
    try:
        measured = traced(megabyte)
    finally:
        over.set()
        thread.join()
    assert 1 << 20 <= measured.peak_bytes < 2 << 20
    assert measured.held_bytes < 10_000
    assert measured.result == 1 << 20
    assert not tracemalloc.is_tracing()


def fail(words: str) -> None:
    raise ValueError(words)


def test_what_fails_there_fails_the_test_here() -> None:
    """The error has the traceback; the next measurement is not affected."""
    with pytest.raises(AssertionError, match=r"(?s)in the process of its own.*in fail.*ValueError: no"):
        alone(fail, "no")
    with pytest.raises(AssertionError, match="ValueError: twice"):
        traced(fail, "twice")
    assert alone(own_pid) != os.getpid()


def own_pid() -> int:
    return os.getpid()


def prints() -> int:
    print("this is no answer")
    return os.system("echo nor is this")


def test_what_is_printed_there_is_no_answer() -> None:
    """Not by children either."""
    assert alone(prints) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
def test_open_files_are_those_of_one_directory(tmp_path: Path) -> None:
    """Others come and go with other threads."""
    (tmp_path / "a").touch()
    with open(tmp_path / "a"), open(os.devnull):
        assert files_open_below(tmp_path) == ["a"]
        assert files_open_below(tmp_path / "b") == []
    assert files_open_below(tmp_path) == []


def opens_two() -> int:
    before = descriptor_count()
    with open(os.devnull), open(os.devnull):
        return descriptor_count() - before


@pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
def test_descriptors_are_counted() -> None:
    """In the process of its own."""
    assert alone(opens_two) == 2


def test_a_file_that_cannot_be_imported_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes in was left half read, and more than a pipe holds was a BrokenPipeError."""
    module = types.ModuleType("only_here")
    module.__file__ = "/nowhere/only_here.py"
    monkeypatch.setitem(sys.modules, "only_here", module)
    exec("def size(data): return len(data)", vars(module))
    with pytest.raises(AssertionError, match="No module named 'only_here'"):
        alone(module.size, bytes(1 << 20))
    assert alone(megabyte) == 1 << 20
