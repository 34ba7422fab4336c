"""Ports for programs that cannot be given a socket, and do not choose one themselves."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
