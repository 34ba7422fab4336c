"""The sender sees every caller that waits for a topic, whenever the wait begins."""

from __future__ import annotations

from typing import Any

import trio

from splashdam.client.waiters import wait_in_trio


async def test_a_connection_refused_before_the_wait_began_is_tried_again(
    away: Any, autojump_clock: Any, nursery: Any
) -> None:
    """A thread asks for a topic, and the attempt has failed before it is seen to wait.

    The sender then slept, as nobody seemed to need an answer, and the thread waited until `max_block_ms`.
    """
    async with away.producer() as producer:
        lookup = producer._lookup("one")
        assert lookup.step() is None
        await trio.sleep(30)  # what threads do between the two calls; nobody listens, and the sender sleeps
        await nursery.start(away.scripted.run)
        with trio.fail_after(2):
            await wait_in_trio(lookup.waits_for)
        assert lookup.step().count == 1
