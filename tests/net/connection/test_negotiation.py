"""ApiVersions: which versions both sides speak, and brokers that do not know ours."""

from __future__ import annotations

import pytest
from support.clients.scripted_broker import ScriptedBroker, connected
from trio.testing import MockClock

from splashdam.model.broker_errors import InvalidRequestError, UnsupportedVersionError
from splashdam.model.errors import IllegalStateError, ProtocolError
from splashdam.net.cluster.cluster_connections import open_plain_nursery
from splashdam.net.connection.connection import Connection
from splashdam.wire.fields import Versions
from splashdam.wire.header import encode_response
from splashdam.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from splashdam.wire.messages.metadata import MetadataRequest, MetadataResponse
from splashdam.wire.messages.produce import ProduceRequest

OFFER = [
    ApiVersion(api_key=0, min_version=0, max_version=9),
    ApiVersion(api_key=3, min_version=2, max_version=99),
    ApiVersion(api_key=22, min_version=6, max_version=7),
]
UNSUPPORTED = 35


async def negotiate(connection: Connection, broker: ScriptedBroker, *answers: bytes) -> list[int]:
    """Negotiates while the broker gives these answers; returns the versions it was asked in."""
    versions: list[int] = []

    async def serve() -> None:
        for answer in answers:
            frame = await broker.receive_frame()
            versions.append(int.from_bytes(frame[2:4], "big"))
            correlation_id = bytes(frame[4:8])
            await broker.send((len(answer) + 4).to_bytes(4, "big"), correlation_id, answer)

    async with open_plain_nursery() as nursery:
        nursery.start_soon(serve)
        await connection.negotiate("splashdam", "1.0")
    return versions


def body(response: ApiVersionsResponse, version: int) -> bytes:
    """An answer without size and correlation id."""
    return b"".join(bytes(part) for part in encode_response(response, version=version, correlation_id=0))[8:]


async def test_the_newest_version_is_tried_first(autojump_clock: MockClock) -> None:
    """Its answer fills the table of versions and the finalized features."""
    features = [FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=0)]
    response = ApiVersionsResponse(api_keys=OFFER, finalized_features=features, finalized_features_epoch=3)
    async with connected(autojump_clock) as (connection, broker):
        assert await negotiate(connection, broker, body(response, 4)) == [4]
        assert connection.api_versions[0] == Versions(0, 9)
        assert connection.finalized_features == {"transaction.version": 2}
        assert connection.version_for(ProduceRequest) == 9
        assert connection.version_for(MetadataRequest) == 13


async def test_negotiating_again_counts(autojump_clock: MockClock) -> None:
    """Versions that were chosen before are chosen anew."""
    older = ApiVersion(api_key=0, min_version=0, max_version=5)
    async with connected(autojump_clock) as (connection, broker):
        for offer, version in ((OFFER, 9), ([older], 5)):
            await negotiate(connection, broker, body(ApiVersionsResponse(api_keys=offer), 4))
            assert connection.version_for(ProduceRequest) == version


async def test_a_broker_that_offers_nothing_was_an_internal_error(autojump_clock: MockClock) -> None:
    """The error told the user to call ``negotiate``, which had been done."""
    async with connected(autojump_clock) as (connection, broker):
        await negotiate(connection, broker, body(ApiVersionsResponse(), 4))
        with pytest.raises(UnsupportedVersionError, match=r"does not offer Metadata.*; it offers nothing"):
            connection.version_for(MetadataRequest)


async def test_features_without_an_epoch_do_not_count(autojump_clock: MockClock) -> None:
    """The schema says that they are valid only with one."""
    features = [FinalizedFeatureKey(name="transaction.version", max_version_level=2)]
    response = ApiVersionsResponse(api_keys=OFFER, finalized_features=features)
    async with connected(autojump_clock) as (connection, broker):
        await negotiate(connection, broker, body(response, 4))
        assert connection.finalized_features == {}


async def test_an_older_broker_names_its_version(autojump_clock: MockClock) -> None:
    """The refusal is in version 0 and lists the range of ApiVersions, of which the best is taken."""
    listed = [ApiVersion(api_key=17, max_version=1), ApiVersion(api_key=18, min_version=0, max_version=3)]
    refusal = ApiVersionsResponse(error_code=UNSUPPORTED, api_keys=listed)
    async with connected(autojump_clock) as (connection, broker):
        answers = [body(refusal, 0), body(ApiVersionsResponse(api_keys=OFFER), 3)]
        assert await negotiate(connection, broker, *answers) == [4, 3]
        assert connection.version_for(ProduceRequest) == 9


@pytest.mark.parametrize(
    "rest",
    [b"\0\0\0\0", b"\0\0\0\0" + b"\0\0\0\0", b"\1\0\x12\0\0\0\2\0\0\0\0", b""],
    ids=["plain", "with a throttle time", "as librdkafka's mock", "code only"],
)
async def test_a_refusal_that_names_nothing(autojump_clock: MockClock, rest: bytes) -> None:
    """Version 0 is tried then, whatever stands behind the error code."""
    refusal = UNSUPPORTED.to_bytes(2, "big") + rest
    async with connected(autojump_clock) as (connection, broker):
        answer = body(ApiVersionsResponse(api_keys=OFFER), 0)
        assert await negotiate(connection, broker, refusal, answer) == [4, 0]
        assert connection.version_for(ProduceRequest) == 9


async def test_a_broker_that_refuses_version_0(autojump_clock: MockClock) -> None:
    """There is nothing left to try."""
    refusal = body(ApiVersionsResponse(error_code=UNSUPPORTED), 0)
    async with connected(autojump_clock) as (connection, broker):
        with pytest.raises(UnsupportedVersionError, match="rejected ApiVersionsRequest v0"):
            await negotiate(connection, broker, refusal, refusal)


async def test_another_error(autojump_clock: MockClock) -> None:
    """It is raised as what it is."""
    answer = body(ApiVersionsResponse(error_code=42), 4)
    async with connected(autojump_clock) as (connection, broker):
        with pytest.raises(InvalidRequestError, match="the broker rejected ApiVersionsRequest v4"):
            await negotiate(connection, broker, answer)


async def test_an_answer_that_is_too_short(autojump_clock: MockClock) -> None:
    """The response is too short for an error code."""
    async with connected(autojump_clock) as (connection, broker):
        with pytest.raises(ProtocolError, match="ApiVersionsResponse v4: error_code at byte 4"):
            await negotiate(connection, broker, b"\0")


async def test_versions_without_overlap(autojump_clock: MockClock) -> None:
    """Both ranges are named, or what the broker offers instead."""
    async with connected(autojump_clock) as (connection, broker):
        await negotiate(connection, broker, body(ApiVersionsResponse(api_keys=OFFER), 4))
        from splashdam.wire.messages.init_producer_id import InitProducerIdRequest

        with pytest.raises(
            UnsupportedVersionError, match="the broker supports InitProducerIdRequest v6-7, splashdam v0-5"
        ):
            connection.version_for(InitProducerIdRequest)
        with pytest.raises(
            UnsupportedVersionError, match=r"does not offer ApiVersionsRequest; .* API keys 0, 3, 22"
        ):
            await connection.submit(ApiVersionsRequest())


async def test_versions_before_negotiation(autojump_clock: MockClock) -> None:
    """Without a table there is no choice."""
    async with connected(autojump_clock) as (connection, _):
        with pytest.raises(IllegalStateError, match=r"call negotiate\(\) before MetadataRequest"):
            await connection.submit(MetadataRequest())


async def test_the_negotiated_version_is_used(autojump_clock: MockClock) -> None:
    """It is used if a call names no version."""
    offer = [ApiVersion(api_key=3, min_version=0, max_version=8)]
    async with connected(autojump_clock) as (connection, broker):
        await negotiate(connection, broker, body(ApiVersionsResponse(api_keys=offer), 4))
        pending = await connection.submit(MetadataRequest(topics=None))
        header, _ = await broker.receive()
        assert header.api_version == 8
        await broker.answer(header, MetadataResponse(cluster_id="c"))
        assert (await pending.wait()).cluster_id == "c"


async def test_no_newer_version_than_the_caller_wants(autojump_clock: MockClock) -> None:
    """A version older than the broker speaks is refused before anything is sent."""
    async with connected(autojump_clock) as (connection, broker):
        await negotiate(connection, broker, body(ApiVersionsResponse(api_keys=OFFER), 4))
        assert connection.version_for(ProduceRequest, 8) == 8
        assert connection.version_for(ProduceRequest, 10) == connection.version_for(ProduceRequest) == 9
        with pytest.raises(UnsupportedVersionError, match=r"v2-99, splashdam v0-1"):
            connection.version_for(MetadataRequest, 1)
