"""Server-sent events: what a page shows while it comes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from splashdam.net.http import HttpAnswer, Send

Tell: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Sends an event: its name and its data; raises trio's ``BrokenResourceError`` once the page is closed."""


def event(name: str, data: str) -> bytes:
    """Return the bytes of an event."""
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return f"event: {name}\n{lines}\n".encode()


def event_stream(tells: Callable[[Tell], Awaitable[None]]) -> HttpAnswer:
    """Return an answer whose events a function tells; it ends when the function returns.

    The function has to tell something every few seconds: that is how it learns that the page is closed.
    """

    async def stream(send: Send) -> None:
        await tells(lambda name, data: send(event(name, data)))

    return HttpAnswer(headers=[("Content-Type", "text/event-stream; charset=utf-8")], stream=stream)
