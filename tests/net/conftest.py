"""What tests of reading and of writing share."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connected pair; ours does not block."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs
