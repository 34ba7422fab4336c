"""Links between their states: closed but not yet gone, wanted but not yet begun."""

from __future__ import annotations

import trio

from splashdam.sender.broker_links import LinkState


async def test_closed_link_is_not_sent_to_while_it_ends(make_rig, autojump_clock):
    """From `close` on nothing is handed to it; the next record waits for the next connection, untried."""
    rig = make_rig()
    async with rig.running():
        await rig.send_and_wait(b"x")
        (link,) = [each for each in rig.sender._links if each.sendable]
        link.close()
        assert link.state is LinkState.READY
        assert not link.sendable
        assert not link.soon_sendable
        assert await rig.send_and_wait(b"y") == 1
        assert rig.sender.statistics().retries == 0
        assert link.sendable


async def test_link_closed_before_its_task_began(make_rig, autojump_clock):
    """It does not connect, and can be wanted again."""
    rig = make_rig()
    async with rig.running():
        link = rig.sender._links.link_to(rig.sender._links._bootstrap[0])
        async with trio.open_nursery() as nursery:
            link.want(nursery, rig.clock.now_ms())
            link.close()
            await trio.testing.wait_all_tasks_blocked()
            assert link.state is LinkState.IDLE
            link.want(nursery, rig.clock.now_ms())
            await trio.testing.wait_all_tasks_blocked()
            assert link.sendable
            nursery.cancel_scope.cancel()
