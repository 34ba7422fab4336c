"""Hostile clients: how many there are, how long they may take, and how much memory they get."""

from __future__ import annotations

import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from support.broker.broker_talk import MIB, Talk, batch, produce, produce_request
from support.broker.quota_talk import alter
from support.running.examples import examples
from support.security.security_kit import MemoryCluster
from trio.testing import MockClock, wait_all_tasks_blocked

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.configs.broker_settings import parse_overrides
from splashdam.embedded_broker.execution.answers import Address
from splashdam.embedded_broker.serving import socket_server
from splashdam.embedded_broker.serving.limited_log import LimitedLog
from splashdam.embedded_broker.serving.receiving import BusyPolling, FrameReceiver
from splashdam.embedded_broker.serving.request_memory import RequestMemory, network_of
from splashdam.embedded_broker.topics.parking import FetchParking
from splashdam.model.errors import ProtocolError
from splashdam.net.memory import memory_stream_pair
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock
from splashdam.wire.codec import decode, encode
from splashdam.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from splashdam.wire.messages.api_versions import ApiVersionsRequest

HERE = Address("broker", 9092)
VERSIONS = ApiVersionsRequest()


@asynccontextmanager
async def limited(clock: MockClock, **options: Any) -> AsyncIterator[tuple[Broker, Any]]:
    """A broker with settings, and what makes connections to it that come from an address."""
    virtual = VirtualClock(clock)
    async with (
        open_broker("/data", port=None, clock=virtual, files=MemoryFiles(), **options) as broker,
        trio.open_nursery() as nursery,
    ):

        def come(host: str = "10.0.0.1") -> Talk:
            ours, theirs = memory_stream_pair()
            nursery.start_soon(partial(broker.server.serve, theirs, HERE, client_address=Address(host, 1)))
            return Talk(ours)

        yield broker, come
        nursery.cancel_scope.cancel()


async def test_connections_of_all_and_of_one_address(autojump_clock: MockClock) -> None:
    """A connection beyond the limit is closed; when another one leaves there is room."""
    overrides = "10.0.0.9:0, [::1]:2"
    assert parse_overrides(overrides) == {"10.0.0.9": 0, "::1": 2}
    async with limited(
        autojump_clock,
        max_connections=3,
        max_connections_per_ip=2,
        max_connections_per_ip_overrides=overrides,
    ) as (broker, come):
        first, second = come(), come()
        assert (await first.ask(VERSIONS, 0)).api_keys
        assert (await second.ask(VERSIONS, 0)).api_keys
        assert await come().is_closed()
        assert await come("10.0.0.9").is_closed()
        assert (await come("::1").ask(VERSIONS, 0)).api_keys
        assert await come("::1").is_closed()  # that would be four
        await first.stream.aclose()
        await wait_all_tasks_blocked()
        assert (await come("10.0.0.2").ask(VERSIONS, 0)).api_keys
        assert len(broker.server) == 3


async def test_each_refused_connection_wrote_a_line(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A stranger could fill the disk: now one line a second for each cause, and how many were left out."""
    async with limited(autojump_clock, max_connections=1, max_connections_per_ip_overrides="10.0.0.9:0") as (
        _,
        come,
    ):
        for _ in range(5):
            assert await come("10.0.0.9").is_closed()
        first = come()
        await first.ask(VERSIONS, 0)
        for _ in range(5):
            assert await come().is_closed()
        await trio.sleep(1)
        assert await come().is_closed()
        await first.stream.aclose()
        await wait_all_tasks_blocked()
        assert await come("10.0.0.9").is_closed()
    assert [record.getMessage() for record in caplog.records if "closed" in record.msg] == [
        "closed 10.0.0.9:1: 10.0.0.9 has 0 connections (max.connections.per.ip)",
        "closed 10.0.0.1:1: there are 1 connections (max.connections, or half of the open files allowed)",
        "closed 10.0.0.1:1: there are 1 connections (max.connections, or half of the open files allowed)"
        " (and 4 more like it before)",
        "closed 10.0.0.9:1: 10.0.0.9 has 0 connections (max.connections.per.ip) (and 4 more like it before)",
    ]


async def test_each_client_that_spoke_no_kafka_wrote_a_line(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It could fill the disk by connecting again and again, as those that are refused could."""
    async with limited(autojump_clock) as (_, come):
        for _ in range(5):
            client = come()
            await client.stream.send_all(b"\xff\xff\xff\xff")
            assert await client.is_closed()
        await trio.sleep(1)
        client = come()
        await client.stream.send_all(b"GET / HTTP/1.1")
        assert await client.is_closed()
    lines = [record.getMessage() for record in caplog.records if "closed" in record.msg]
    assert len(lines) == 2
    assert lines[0].endswith(": frame size -1 is negative")
    assert lines[1].endswith("(and 4 more like it before)")


async def test_a_line_that_nobody_sees_left_out_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Both were of one kind, and the logger takes warnings alone."""
    limited_log = LimitedLog(logging.getLogger("limited"))
    with caplog.at_level(logging.WARNING, "limited"):
        limited_log.write(logging.INFO, "closed %s", "a")
        limited_log.write(logging.WARNING, "closed %s", "b")
    assert [record.getMessage() for record in caplog.records] == ["closed b"]


async def test_half_of_the_files_are_for_logs(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers cannot take the descriptors that the log needs, whatever max.connections says."""
    monkeypatch.setattr(socket_server.resource, "getrlimit", lambda _: (4, 4))
    async with limited(autojump_clock) as (_, come):
        kept = [come(), come()]
        assert (await kept[1].ask(VERSIONS, 0)).api_keys
        assert await come().is_closed()


async def test_connections_that_come_too_fast_wait(autojump_clock: MockClock) -> None:
    """max.connection.creation.rate: no connection is lost, each has its turn."""
    async with limited(autojump_clock, max_connection_creation_rate=10) as (_, come):
        talks = [come() for _ in range(30)]
        start = trio.current_time()
        for talk in talks:
            assert (await talk.ask(VERSIONS, 0)).api_keys
        assert trio.current_time() - start == pytest.approx(2, abs=0.2)


async def test_an_address_beyond_its_rate_is_closed_late(autojump_clock: MockClock) -> None:
    """connection_creation_rate: it waits a second at most and is not served; others are."""
    async with limited(autojump_clock) as (_, come):
        assert await alter(come(), {"ip": "10.0.0.1"}, connection_creation_rate=1) == 0
        for _ in range(10):
            assert (await come().ask(VERSIONS, 0)).api_keys
        start = trio.current_time()
        assert await come().is_closed()
        assert 0 < trio.current_time() - start <= 1
        assert (await come("10.0.0.2").ask(VERSIONS, 0)).api_keys


async def test_strangers_that_repeat_api_versions(autojump_clock: MockClock) -> None:
    """A client that never says who it is stays 30 s, however busy it is."""
    cluster = MemoryCluster(autojump_clock)
    async with cluster.broker():
        talk = Talk(await cluster.network.connect("broker", 9092))
        start = trio.current_time()
        with suppress(EOFError, trio.BrokenResourceError):
            while trio.current_time() < start + 100:
                await talk.stream.send_all(struct.pack(">ihhihx", 11, 18, 99, 1, -1))  # of a version to come
                await talk.frame()
                await trio.sleep(1)
        assert trio.current_time() - start == pytest.approx(30, abs=1.1)


async def test_a_flood_of_strangers(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest gives way to the newest."""
    monkeypatch.setattr(socket_server, "MOST_STRANGERS", 5)
    cluster = MemoryCluster(autojump_clock)
    async with cluster.broker():
        talks = []
        for _ in range(8):
            talks.append(Talk(await cluster.network.connect("broker", 9092)))
            await wait_all_tasks_blocked()
        for talk in talks[:3]:
            assert await talk.is_closed()
        for talk in talks[3:]:
            assert (await talk.ask(VERSIONS, 0)).api_keys


async def test_requests_share_memory_and_none_waits_for_ever(autojump_clock: MockClock) -> None:
    """Twenty requests of 1 MiB in a purse of 2: all are answered, and at most one is beyond it."""
    async with limited(autojump_clock, queued_max_request_bytes=2 * MIB) as (broker, come):
        broker.topics.create("t")
        held = []

        async def one() -> None:
            talk = come()
            assert (await produce(talk, "t", batch(bytes(1_000_000)))).error_code == 0
            held.append(broker.request_memory.held_bytes)
            await talk.stream.aclose()

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)
        await wait_all_tasks_blocked()
        assert max(held) <= 4 * MIB
        assert broker.request_memory.held_bytes == 0


async def test_a_large_request_that_trickles(autojump_clock: MockClock) -> None:
    """A client that holds memory for which others wait must send 16 KiB a second, after half a minute."""
    async with limited(autojump_clock, queued_max_request_bytes=MIB) as (broker, come):
        broker.topics.create("t")
        slow = come()
        await slow.stream.send_all(struct.pack(">i", 50 * MIB) + bytes(MIB))
        start = trio.current_time()
        with suppress(trio.BrokenResourceError):
            while trio.current_time() < start + 300:
                await slow.stream.send_all(b"x")
                await trio.sleep(5)
        assert 60 < trio.current_time() - start < 120
        assert broker.request_memory.held_bytes == 0


async def test_a_large_request_that_stops(autojump_clock: MockClock) -> None:
    """Likewise, without another byte; meanwhile others with small requests are served."""
    async with limited(autojump_clock, queued_max_request_bytes=MIB) as (broker, come):
        broker.topics.create("t")
        stopped, other = come(), come()
        await stopped.stream.send_all(struct.pack(">i", 50 * MIB) + bytes(MIB))
        await wait_all_tasks_blocked()
        assert (await produce(other, "t", batch(b"a"))).error_code == 0
        start = trio.current_time()
        assert (await produce(other, "t", batch(bytes(900_000)))).error_code == 0
        assert trio.current_time() - start < 120
        assert await stopped.is_closed()


@pytest.mark.parametrize(
    ("limit_bytes", "strangers", "sent_bytes", "most_seconds"),
    [
        (-1, 1000, 0, 0.1),  # a claim holds nothing
        (-1, 1000, 300_000, 7),
        (8 * MIB, 100, 100_000, 7),
        (8 * MIB, 100, 1_500_000, 7),
    ],
)
async def test_claims_from_the_same_address_kept_a_good_client_waiting_for_a_minute(
    autojump_clock: MockClock,
    limit_bytes: int,
    strangers: int,
    sent_bytes: int,
    most_seconds: float,
) -> None:
    """It needs less than they claim, so it is served first; a silent connection gives way at once."""
    async with limited(autojump_clock, queued_max_request_bytes=limit_bytes) as (broker, come):
        broker.topics.create("t")
        async with trio.open_nursery() as nursery:
            claim = struct.pack(">i", 100_000_000) + bytes(sent_bytes)
            for _ in range(strangers):
                nursery.start_soon(send_what_is_taken, come(), claim)
            await wait_all_tasks_blocked()
            start = trio.current_time()
            assert (await produce(come(), "t", batch(bytes(500_000)))).error_code == 0
            assert trio.current_time() - start < most_seconds
            nursery.cancel_scope.cancel()


def test_an_ipv6_network_has_one_share_of_request_memory() -> None:
    """A /64 is one party; an IPv4 address stays itself, however it is written."""
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1:2:3") == "2001:db8::/64"
    assert network_of("2001:db8:0:1::1") != network_of("2001:db8::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") == "10.0.0.1"
    assert network_of("fe80::1%eth0") == "fe80::/64"
    assert network_of("somewhere") == "somewhere"


async def test_addresses_of_one_ipv6_network_share_as_one(autojump_clock: MockClock) -> None:
    """Forty addresses keep sending; a client of another network gets its half after 5 s."""
    async with limited(autojump_clock, queued_max_request_bytes=4 * MIB) as (broker, come):
        broker.topics.create("t")
        sent = bytes(16 * 1024)

        async def keep_sending(talk: Talk) -> None:
            while True:
                await send_what_is_taken(talk, sent)
                await trio.sleep(0.5)

        async with trio.open_nursery() as nursery:
            for number in range(40):
                talk = come(f"2001:db8::{number:x}")
                await send_what_is_taken(talk, struct.pack(">i", 400_000) + bytes(70_000))
                nursery.start_soon(keep_sending, talk)
            await wait_all_tasks_blocked()
            start = trio.current_time()
            assert (await produce(come("10.0.0.1"), "t", batch(bytes(1_000_000)))).error_code == 0
            assert trio.current_time() - start < 10
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("hosts", [["10.0.0.9"], ["10.0.0.1"]], ids=["from elsewhere", "from the same host"])
@pytest.mark.parametrize("sent_bytes", [100_000, 1_500_000])
async def test_silent_strangers_kept_a_good_client_waiting_for_ten_minutes(
    autojump_clock: MockClock, hosts: list[str], sent_bytes: int
) -> None:
    """Each claimed 100 MB and had half a minute and more to itself; now the silent give way together."""
    async with limited(autojump_clock, queued_max_request_bytes=32 * MIB) as (broker, come):
        broker.topics.create("t")
        async with trio.open_nursery() as nursery:
            for number in range(100):
                stranger = come(hosts[number % len(hosts)])
                claim = struct.pack(">i", 100 * 1000 * 1000) + bytes(sent_bytes)
                nursery.start_soon(send_what_is_taken, stranger, claim)
            await wait_all_tasks_blocked()
            start = trio.current_time()
            assert (await produce(come("10.0.0.1"), "t", batch(bytes(500_000)))).error_code == 0
            assert trio.current_time() - start < 12
            nursery.cancel_scope.cancel()


async def test_the_limit_of_a_large_request_covers_all_its_pieces(
    autojump_clock: MockClock,
) -> None:
    """Each piece of a large request comes out of the same time: new memory is no new allowance."""
    async with limited(autojump_clock) as (_, come):
        slow = come()
        await slow.stream.send_all(struct.pack(">i", 50 * MIB) + bytes(70_000))
        start = trio.current_time()
        with suppress(trio.BrokenResourceError):
            while trio.current_time() < start + 300:
                await slow.stream.send_all(bytes(8 * 1024))  # one second's half: new pieces do not help
                await trio.sleep(1)
        assert trio.current_time() - start < 90


async def test_a_client_that_sends_fast_enough_keeps_its_memory(autojump_clock: MockClock) -> None:
    """Others wait, and yet a large request that keeps coming is answered."""
    async with limited(autojump_clock, queued_max_request_bytes=MIB) as (broker, come):
        broker.topics.create("t")
        slow = come("10.0.0.9")

        async def send_slowly() -> None:
            frame = slow._frame_of(produce_request("t", batch(bytes(1_000_000))), 9, True)
            for start in range(0, len(frame), 64 * 1024):
                await slow.stream.send_all(frame[start : start + 64 * 1024])
                await trio.sleep(1)
            answer = await slow.answer()
            assert answer.responses[0].partition_responses[0].error_code == 0

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_slowly)
            await trio.sleep(10)
            assert (await produce(come(), "t", batch(bytes(900_000)))).error_code == 0


class Receiving:
    """A connection that receives a large request."""

    def __init__(self, party: object = None) -> None:
        self.party = party
        self.request_bytes = 10
        self.credit_until = float("inf")
        self.given_up: list[str] = []

    def give_up(self, why: str) -> None:
        self.given_up.append(why)


async def test_a_client_was_punished_for_the_slowness_of_the_broker(autojump_clock: MockClock) -> None:
    """A whole request that is being answered is not silent, and its end is the end of what was said of it."""
    memory = RequestMemory(MIB)
    ours, theirs = memory_stream_pair()
    receiver = FrameReceiver(theirs, 100 * MIB, BusyPolling(FetchParking(), own_loop=False), memory)
    frame = struct.pack(">i", 900_000) + bytes(900_000)
    oldest, other = Receiving("elsewhere"), Receiving("other")

    async def wait() -> None:
        await memory.grow(other, 300_000)
        memory.done(other, 0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.send_all, frame)
        while not await receiver.receive():
            pass
        await memory.grow(oldest, 1)
        nursery.start_soon(wait)
        await trio.sleep(20)  # the broker answers
        memory.done(oldest, 0)
        assert memory.held_bytes >= 900_000
        nursery.start_soon(ours.send_all, frame)
        while not await receiver.receive():
            pass
        assert trio.current_time() == pytest.approx(20, abs=1)


async def test_a_pause_between_two_requests_of_megabytes_ended_the_connection(
    autojump_clock: MockClock,
) -> None:
    """The second was measured from the end of the first on."""
    async with limited(autojump_clock) as (broker, come):
        broker.topics.create("t")
        talk = come()
        for _ in range(2):
            records = batch(*[bytes(900_000)] * 4)
            assert (await produce(talk, "t", records)).error_code in (0, 10)
            await trio.sleep(100)


async def test_a_party_with_many_connections_has_one_share(autojump_clock: MockClock) -> None:
    """It sends, and holds all memory; a client of another party gets its half after 5 s."""
    memory = RequestMemory(100)
    many = [Receiving("many") for _ in range(10)]
    one = Receiving("one")
    for each in many:
        await memory.grow(each, 10)

    async def send() -> None:
        while True:
            for each in many:
                each.credit_until = trio.current_time() + 5
                if each.given_up:
                    memory.done(each, 0)
            await trio.sleep(0.5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        start = trio.current_time()
        await memory.grow(one, 30)
        assert 5 <= trio.current_time() - start <= 8
        assert sum(bool(each.given_up) for each in many) == 3
        assert memory.held_bytes == 100
        nursery.cancel_scope.cancel()


async def test_holders_are_not_scanned_without_waiters(autojump_clock: MockClock) -> None:
    """A silent one harms nobody then; and nothing is kept of parties that are gone."""
    memory = RequestMemory(100)
    silent = Receiving("silent")
    await memory.grow(silent, 60)
    await trio.sleep(1000)
    assert not silent.given_up
    memory.done(silent, 0)
    assert not memory._shares
    assert not memory._waiting


async def send_what_is_taken(talk: Talk, data: bytes) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await talk.stream.send_all(data)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 60)), max_size=20))
def test_the_purse_comes_to_an_end(requests: list[tuple[int, int]]) -> None:
    """In any order of growth all requests complete, and only one is beyond the limit."""
    memory, limit = RequestMemory(50), 50

    async def grow(who: Receiving, sizes: list[int]) -> None:
        for size in sizes:
            await memory.grow(who, size)
            assert memory.held_bytes <= limit + 60
            await trio.sleep(1)
        memory.done(who, 0)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for who in range(5):
                sizes = sorted(size for each, size in requests if each == who)
                nursery.start_soon(grow, Receiving(party=who % 2), sizes)
        assert memory.held_bytes == 0

    trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("nested", [False, True])
async def test_a_million_partitions_in_one_request(talk: Talk, broker: Broker, nested: bool) -> None:
    """AddPartitionsToTxn of so many held up everybody for 4.5 s; now that connection ends, unread."""
    count = 1000 if nested else 1
    topics = [AddPartitionsToTxnTopic(name="t", partitions=list(range(1_000_000 // count)))] * count
    await talk.send(AddPartitionsToTxnRequest(v3_and_below_topics=topics), 3)
    assert await talk.is_closed()
    with pytest.raises(ProtocolError, match="more than 50000 elements in one request; split it"):
        decode(
            AddPartitionsToTxnRequest,
            b"".join(encode(AddPartitionsToTxnRequest(v3_and_below_topics=topics), 3)),
            3,
        )
