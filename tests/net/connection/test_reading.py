"""Looking out for bytes that are about to come, by both twins."""

from __future__ import annotations

import importlib.util
import os
import socket
import threading
from collections.abc import Callable

import pytest

from splashdam.net.connection import streams
from splashdam.net.connection.streams import Eagerness

ReadSoon = Callable[[int, memoryview, float], int | None]
LONG_US = 60_000_000.0


@pytest.fixture(params=["python", "c"])
def read_soon(request: pytest.FixtureRequest) -> ReadSoon:
    """One twin after the other."""
    if request.param == "python":
        return streams.read_soon_py
    try:
        compiled: ReadSoon = importlib.import_module("splashdam.net.connection._writing_c").read_soon
    except ImportError:
        pytest.skip("the compiled twin is not built")
    return compiled


def test_what_is_there(read_soon: ReadSoon, ends: tuple[socket.socket, socket.socket]) -> None:
    """It is taken without any patience, as far as there is room."""
    ours, theirs = ends
    theirs.sendall(b"abcdef")
    into = bytearray(b"....")
    assert read_soon(ours.fileno(), memoryview(into)[1:], 0.0) == 3
    assert into == b".abc"
    into.extend(b"no view of it is kept")
    assert read_soon(ours.fileno(), memoryview(into), 0.0) == 3
    assert read_soon(ours.fileno(), memoryview(into), 0.0) is None
    assert read_soon(ours.fileno(), memoryview(into), 50.0) is None


def test_what_comes(read_soon: ReadSoon, ends: tuple[socket.socket, socket.socket]) -> None:
    """Another thread of this process can write meanwhile."""
    ours, theirs = ends
    into = memoryview(bytearray(10))
    writer = threading.Thread(target=theirs.sendall, args=(b"late",))
    writer.start()
    assert read_soon(ours.fileno(), into, LONG_US) == 4
    writer.join()
    assert into[:4] == b"late"


def test_what_comes_before_a_sleep_is_handed_over_a_moment_later(
    read_soon: Callable[..., int | None], ends: tuple[socket.socket, socket.socket]
) -> None:
    """The end and errors are not: an hour of grace would not end."""
    ours, theirs = ends
    into = memoryview(bytearray(10))
    theirs.sendall(b"here")
    assert read_soon(ours.fileno(), into, LONG_US, LONG_US, 100.0) == 4
    theirs.close()
    assert read_soon(ours.fileno(), into, LONG_US, LONG_US, 3.6e9) == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        read_soon(-1, into, LONG_US, LONG_US, 3.6e9)


def test_the_end_and_errors(read_soon: ReadSoon, ends: tuple[socket.socket, socket.socket]) -> None:
    """The end is 0 bytes; what the system refuses is raised; memory must be writable."""
    ours, theirs = ends
    theirs.close()
    assert read_soon(ours.fileno(), memoryview(bytearray(10)), LONG_US) == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        read_soon(-1, memoryview(bytearray(10)), LONG_US)
    with pytest.raises((TypeError, BufferError)):
        read_soon(ours.fileno(), memoryview(b"constant"), LONG_US)


def test_each_miss_doubles_the_pause() -> None:
    """Up to 63 occasions; a hit ends it."""
    eagerness = Eagerness()
    pauses = []
    for _ in range(8):
        assert eagerness.is_due()
        eagerness.note(False)
        pause = 0
        while not eagerness.is_due():
            pause += 1
        pauses.append(pause)
    assert pauses == [1, 3, 7, 15, 31, 63, 63, 63]
    eagerness.note(True)
    assert eagerness.is_due()


def test_the_compiled_twin_was_there_and_not_used() -> None:
    """Both functions for sockets come from it where it is built; the import of this one was lost."""
    if (
        os.environ.get("SPLASHDAM_PURE")
        or importlib.util.find_spec("splashdam.net.connection._writing_c") is None
    ):
        pytest.skip("the compiled twin is not used")
    assert streams.read_soon is not streams.read_soon_py
    assert streams.write_within is not streams.write_within_py
