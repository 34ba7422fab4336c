"""The page of a log: its segments, what is in them, and what retention and cleaner will do."""

from __future__ import annotations

import re

import pytest
from support.console.visitor import Visitor
from support.storage.logs import NOW_MS, batch
from trio.testing import MockClock

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.console.pages import log as log_page
from splashdam.embedded_broker.broker import Broker
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.background import Now
from splashdam.storage.manager.log_looks import LogLooks
from splashdam.testing.clock import VirtualClock

SMALL = {"log.segment.bytes": "2000", "log.index.interval.bytes": "200", "log.cleaner.enable": "true"}
SLOW = {"log.retention.check.interval.ms": "100000", "log.cleaner.backoff.ms": "100000"}
QUIET = {"log.initial.task.delay.ms": "100000"}


@pytest.fixture
def settings() -> dict[str, str]:
    """Small segments, and a broker that changes nothing by itself for a while."""
    return {**SMALL, **SLOW, **QUIET}


async def fill(
    network: MemoryNetwork, clock: VirtualClock, topic: str, count: int, key: bytes = b"k"
) -> None:
    """Batches of one record."""
    async with AsyncKafkaProducer(
        bootstrap_servers="broker:9092", connect=network.connect, clock=clock, batch_size=0
    ) as sending:
        for number in range(count):
            await sending.send(topic, b"%03d" % number + b"x" * 97, key=key + b"%d" % (number % 3))
        await sending.flush()


def now_of(clock: VirtualClock) -> Now:
    """Both clocks."""
    return Now(clock.now_ms(), clock.wall_ms())


def broker_looks(broker: Broker, clock: VirtualClock) -> LogLooks:
    """What the page asks."""
    return LogLooks(broker.logs, lambda: now_of(clock))


async def test_logs_are_listed_with_what_comes_next(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """And an empty broker says how to get one."""
    assert "There is no log yet" in (await visitor.get("/log")).text
    broker.topics.create("orders", 1, {"retention.bytes": "3000"})
    await fill(network, clock, "orders", 40)
    page = await visitor.get("/log")
    assert '<a href="/log/orders/0">orders 0</a>' in page.text
    assert re.search(r"retention removes \d+ segments?", page.text)


async def test_the_first_hundred_by_name_were_called_the_largest(
    visitor: Visitor, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shown is chosen by size, not only put in the order of it."""
    monkeypatch.setattr(log_page, "_PARTITIONS", 2)
    for name, records in (("a", 1), ("b", 0), ("c", 2)):
        broker.topics.create(name)
        for _ in range(records):
            broker.logs.logs[TopicPartition(name, 0)].append_as_leader(batch(b"a plank"), now_ms=NOW_MS)
    text = (await visitor.get("/log")).text
    shown = [text.find(f'href="/log/{name}/0"') for name in "cab"]
    assert 0 < shown[0] < shown[1]
    assert shown[2] < 0
    assert "2 of 3 logs are shown" in text


async def test_retention_says_what_goes_and_the_broker_does_it(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """The page asks what removes: the next housekeeping removes as many."""
    broker.topics.create("orders", 1, {"retention.bytes": "3000"})
    await fill(network, clock, "orders", 40)
    log = broker.logs.logs[TopicPartition("orders", 0)]
    before = len(log.segments)
    page = await visitor.get("/log/orders/0")
    assert "goes at the next check</strong>: the log is above retention.bytes" in page.text
    expected = page.text.count("goes at the next check</strong>:")
    assert f"<strong>{expected} segment" in page.text
    log.delete_old_segments(wall_ms=clock.wall_ms(), now_ms=clock.now_ms())
    assert len(log.segments) == before - expected
    after = await visitor.get("/log/orders/0")
    assert "<strong>Nothing goes</strong>" in after.text


async def test_age_is_told_as_the_time_when_the_oldest_goes(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """Retention itself is asked about that time."""
    broker.topics.create("orders", 1, {"retention.ms": "3600000"})
    await fill(network, clock, "orders", 40)
    log = broker.logs.logs[TopicPartition("orders", 0)]
    looks = broker_looks(broker, clock)
    view = looks.log(TopicPartition("orders", 0))
    assert view is not None
    at_ms = view.retention.next_at_ms
    assert at_ms is not None
    assert not log.reasons_to_go(at_ms - 1)
    assert log.reasons_to_go(at_ms)[0] == "it is older than retention.ms"
    assert "is old enough at" in (await visitor.get("/log/orders/0")).text


async def test_a_forecast_is_what_the_cleaner_then_removes(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """The same decisions, without a copy."""
    where = TopicPartition("users", 0)
    broker.topics.create("users", 1, {"cleanup.policy": "compact"})
    await fill(network, clock, "users", 45)
    log = broker.logs.logs[where]
    log.flush()
    page = await visitor.get("/log/users/0")
    assert "What would it remove now?" in page.text
    looks = broker_looks(broker, clock)
    forecast = await looks.forecast(where)
    assert forecast is not None
    assert forecast.is_whole
    assert forecast.keys == 3
    assert len(forecast.removed) == forecast.records_before - forecast.records_after
    size, closed = log.size_bytes, log.segments[-1].base_offset
    shown = await visitor.get("/log/users/0?forecast=1")
    assert "k0" in shown.text.partition('id="forecast"')[2]
    cleaner = broker.logs.cleaner
    await cleaner.work(broker.logs.logs, now_of(clock))
    while cleaner.is_cleaning(log):
        await cleaner.work(broker.logs.logs, now_of(clock))
    kept = [header.base_offset for header, _ in log.batches() if header.record_count]
    gone = [each.offset for each in forecast.removed]
    assert not set(kept) & set(gone)
    assert len([each for each in kept if each < closed]) == forecast.records_after
    assert size - log.size_bytes == forecast.bytes_before - forecast.bytes_after


async def test_a_batch_is_shown_with_the_fields_of_its_format(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """Every byte belongs to a field; the segment and its index stand above."""
    broker.topics.create("orders", 1)
    await fill(network, clock, "orders", 40)
    page = await visitor.get("/log/orders/0?batch=7")
    assert page.status == 200
    assert "Batch at offset 7" in page.text
    assert "the checksum is right" in page.text
    for field in ("baseOffset", "partitionLeaderEpoch", "lastOffsetDelta", "recordCount", "record 0"):
        assert field in page.text
    assert 'title="baseOffset: 7">00 00 00 00 00 00 00 07</span>' in page.text
    contents = await broker_looks(broker, clock).batch(TopicPartition("orders", 0), 7)
    assert contents is not None
    assert sum(field.size_bytes for field in contents.fields) == len(contents.data)
    segment = await visitor.get("/log/orders/0?segment=0")
    assert "Segment 0" in segment.text
    assert "is at byte" in segment.text


@pytest.mark.parametrize(
    "path", ["/log/orders/7", "/log/nobody/0", "/log/orders/-1", "/log/orders/x", "/log/orders/99999999999"]
)
async def test_what_is_not_there(visitor: Visitor, broker: Broker, path: str) -> None:
    """A page that says so."""
    broker.topics.create("orders", 1)
    assert (await visitor.get(path)).status == 404


async def test_keys_are_text_and_not_markup(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """In a forecast, and among the bytes."""
    broker.topics.create("users", 1, {"cleanup.policy": "compact"})
    await fill(network, clock, "users", 60, key=b"<script>alert(1)</script>")
    broker.logs.logs[TopicPartition("users", 0)].flush()
    for path in ("/log/users/0?forecast=1", "/log/users/0?batch=1"):
        page = await visitor.get(path)
        assert page.status == 200
        assert "<script>alert" not in page.text
