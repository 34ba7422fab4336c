"""Writing what a socket takes within a bounded time, by both twins."""

from __future__ import annotations

import importlib
import os
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from splashdam.net.connection import streams
from splashdam.net.connection.streams import MOST_PARTS, rest_of

WriteWithin = Callable[[int, Sequence[Any], float], int]
LONG_MS = 60_000.0
PARTS = [b"", b"a" * 100, memoryview(bytearray(b"b" * 3_000_000)), b"", bytearray(b"c" * 70_000), b""]
WHOLE = b"".join(PARTS)


@pytest.fixture(params=["python", "c"])
def write_within(request: pytest.FixtureRequest) -> WriteWithin:
    """One twin after the other."""
    if request.param == "python":
        return streams.write_within_py
    try:
        compiled: WriteWithin = importlib.import_module("splashdam.net.connection._writing_c").write_within
    except ImportError:
        pytest.skip("the compiled twin is not built")
    return compiled


def everything(theirs: socket.socket) -> bytes:
    """What arrives up to the end."""
    return b"".join(iter(lambda: theirs.recv(100_000), b""))


def test_somebody_reads(write_within: WriteWithin, ends: tuple[socket.socket, socket.socket]) -> None:
    """All parts arrive in order, however often there is no room and then some again."""
    ours, theirs = ends
    arrived: list[bytes] = []
    reader = threading.Thread(target=lambda: arrived.append(everything(theirs)))
    reader.start()
    rest: Sequence[Any] = PARTS
    while rest:  # the reader may not have its turn within a millisecond
        rest = rest_of(rest, write_within(ours.fileno(), rest, LONG_MS))
    ours.shutdown(socket.SHUT_WR)
    reader.join()
    assert arrived == [WHOLE]


@pytest.mark.parametrize("patience_ms", [0.0, LONG_MS])
def test_nobody_reads(
    write_within: WriteWithin, ends: tuple[socket.socket, socket.socket], patience_ms: float
) -> None:
    """What there is room for is taken, and nobody waits for a peer that makes none; then nothing is."""
    ours, theirs = ends
    taken = write_within(ours.fileno(), PARTS, patience_ms)
    assert 0 < taken < len(WHOLE)
    assert write_within(ours.fileno(), [b"x" * 500_000], patience_ms) == 0
    ours.shutdown(socket.SHUT_WR)
    assert everything(theirs) == WHOLE[:taken]


def test_the_peer_has_gone(write_within: WriteWithin, ends: tuple[socket.socket, socket.socket]) -> None:
    """Nothing is taken and nothing is raised, before the first byte and behind it."""
    ours, theirs = ends
    assert write_within(ours.fileno(), PARTS, 0.0) > 0
    theirs.close()
    assert write_within(ours.fileno(), PARTS, LONG_MS) == 0
    assert write_within(-1, PARTS, LONG_MS) == 0


def test_many_parts(write_within: WriteWithin, ends: tuple[socket.socket, socket.socket]) -> None:
    """So many as the system takes at once, none without parts."""
    ours, _ = ends
    assert write_within(ours.fileno(), [b"xy"] * (MOST_PARTS + 1), 0.0) == 2 * MOST_PARTS
    assert write_within(ours.fileno(), [], LONG_MS) == 0
    assert write_within(ours.fileno(), [b"", b""], LONG_MS) == 0


def test_memory_can_change_again(
    write_within: WriteWithin, ends: tuple[socket.socket, socket.socket]
) -> None:
    """No view of a part is kept, also where a later one is refused."""
    ours, _ = ends
    part = bytearray(b"abc")
    assert write_within(ours.fileno(), [part], 0.0) == 3
    with pytest.raises(TypeError):
        write_within(ours.fileno(), [part, "no bytes"], 0.0)
    part.extend(b"d")


def test_both_take_equally_many_parts() -> None:
    """The number stands in both twins."""
    source = os.path.join(Path(__file__).parents[3], "net/connection/_writing_c.pyx")
    with open(source, encoding="utf-8") as file:
        assert f"MOST_PARTS = {MOST_PARTS} " in file.read()
