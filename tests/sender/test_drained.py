"""When the sender tells that it has taken what there was: before it writes it, and after answers."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from splashdam.model.values import Buffer
from splashdam.net.connection import connection, streams


async def test_before_the_write_and_after_the_answer(make_rig, autojump_clock, monkeypatch):
    """Callers that wait for the sender go on while the request is written. Memory that an answer gave
    back counts at once, or the application could run that much further ahead."""
    events: list[str] = []

    def send_now(stream: trio.abc.SendStream, parts: Sequence[Buffer], patience_ms: float = 0.0) -> int:
        events.append("write")
        return streams.send_now(stream, parts, patience_ms)

    monkeypatch.setattr(connection, "send_now", send_now)
    rig = make_rig(on_drained=lambda: events.append(f"drained, {rig.accumulator.free_bytes}"))
    async with rig.running():
        await rig.send_and_wait(b"x")
        events.clear()
        future = rig.send(b"y")
        reserved = rig.accumulator.free_bytes
        await rig.outcome(future)
        await trio.sleep(0.001)
        assert events == [f"drained, {reserved}", "write", f"drained, {rig.accumulator.buffer_memory}"]
