"""The short decision for one queued batch decides what a whole decision would, or leaves it to that one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio._core._run
from support.running.patches import guard
from support.scripted.cluster import Trouble
from trio.testing import MockClock

from splashdam.sender.sender import Sender
from splashdam.sender.shipping import Shipping
from splashdam.testing.clock import VirtualClock

TROUBLES = [Trouble(), Trouble(), Trouble(code=6), Trouble(code=19), Trouble(delay_ms=700), Trouble(code=87)]
SLEEPS_S = [0.0, 0.001, 0.004, 0.3, 20.0, 130.0, 400.0, 700.0]


async def test_records_awaited_one_by_one(make_rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the producer is known, none of them needs a whole decision."""
    rig = make_rig()
    async with rig.running():
        await rig.send_and_wait(b"the first asks for metadata and a producer id")
        with monkeypatch.context() as patch:
            patch.setattr(Shipping, "ready", guard("a whole decision"))
            offsets = [await rig.send_and_wait(b"x") for _ in range(5)]
    assert offsets == [1, 2, 3, 4, 5]


def story(
    rig_class: Callable[..., Any], seed: int, patch: pytest.MonkeyPatch, *, whole: bool
) -> tuple[list[Any], int]:
    """What a cluster sees of a producer, and when; and how many decisions were short."""
    short = 0
    decide = Sender._decide_shortly

    def decide_shortly(sender: Sender, now_ms: float) -> Any:
        nonlocal short
        made = None if whole else decide(sender, now_ms)
        short += made is not None
        return made

    patch.setattr(Sender, "_decide_shortly", decide_shortly)
    # Tasks that are due in the same pass of the loop run in the same order in both runs.
    patch.setattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
    trio._core._run._r.seed(seed)
    clock = MockClock(autojump_threshold=0)
    drawn = random.Random(seed)
    rig = rig_class(
        VirtualClock(clock), seed, cluster={"topics": {"t": 2}, "nodes": 2}, linger_ms=drawn.choice([0, 5])
    )

    async def main() -> None:
        async with rig.running():
            for _ in range(40):
                if drawn.random() < 0.3:
                    rig.cluster.produce_script.append(drawn.choice(TROUBLES))
                future = rig.send(b"x" * drawn.randrange(1, 5_000), partition=drawn.randrange(2))
                if drawn.random() < 0.7:
                    await rig.outcome(future)
                await trio.sleep(drawn.choice(SLEEPS_S))

    trio.run(main, clock=clock)
    rig.wakeup.close()
    return [(each.node_id, each.header.api_key, each.at_ms) for each in rig.cluster.received], short


@pytest.mark.parametrize("seed", range(6))
def test_nobody_can_tell_them_apart(
    seed: int, rig_class: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retries, new metadata, idle connections, timeouts: the same requests at the same times."""
    with monkeypatch.context() as patch:
        shown, short = story(rig_class, seed, patch, whole=False)
    with monkeypatch.context() as patch:
        assert story(rig_class, seed, patch, whole=True) == (shown, 0)
    assert short > 10
