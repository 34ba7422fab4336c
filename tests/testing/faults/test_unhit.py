"""A fault that has happened to nobody is told: the test that set it has not tested what it says."""

from __future__ import annotations

from support.broker.broker_talk import Talk

from splashdam.testing.faults.faults import Faults
from splashdam.wire.messages.api_versions import ApiVersionsRequest


async def test_faults_that_happen_are_not_unhit(faults: Faults, talk: Talk) -> None:
    """Whether they are over or stay."""
    faults.api_versions(throttle_ms=5, times=1)
    faults.any_request(throttle_ms=5)
    await talk.ask(ApiVersionsRequest(), 2)
    assert faults.unhit == []


async def test_faults_that_never_happened(some_faults: Faults, talk: Talk) -> None:
    """Removed, cleared or still there: each is told, and says which it is."""
    with some_faults.produce(topic="t", error="NOT_LEADER_OR_FOLLOWER"):
        pass
    some_faults.any_request(client_id="nobody", delay_ms=1)
    some_faults.refuse_connections(broker=7)
    some_faults.clear()
    some_faults.fetch(delay_ms=1)
    await talk.ask(ApiVersionsRequest(), 2)
    assert [repr(each) for each in some_faults.unhit] == [
        "<fault produce(topic='t'), 0 hits>",
        "<fault any_request(client_id='nobody'), 0 hits>",
        "<refused connections of broker 7, 0 hits>",
        "<fault fetch(), 0 hits>",
    ]
