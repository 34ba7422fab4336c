"""KIP-714 on the producer's side: asks and pushes when it is due, and never where nobody wants it."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from support.clients.local_cluster import LocalCluster
from support.running.alone import alone
from trio.testing import MockClock

from splashdam import AsyncKafkaProducer, KafkaProducer
from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.telemetry.client_metrics import Push
from splashdam.model.errors import IllegalStateError, KafkaTimeoutError
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock

Open = Callable[..., Any]


@pytest.fixture
def both(autojump_clock: MockClock) -> Open:
    """A broker and a producer in virtual time; ``wanted`` is what ``subscribe`` takes."""

    @asynccontextmanager
    async def open_both(
        wanted: dict[str, Any] | None, **options: Any
    ) -> AsyncIterator[tuple[Broker, AsyncKafkaProducer]]:
        clock, network = VirtualClock(autojump_clock), MemoryNetwork()
        async with open_broker(
            "/data", host="b", port=1, listen=network.listen, clock=clock, files=MemoryFiles()
        ) as broker:
            if wanted is not None:
                broker.telemetry.subscribe(**wanted)
            async with AsyncKafkaProducer(
                bootstrap_servers="b:1", connect=network.connect, clock=clock, **options
            ) as producer:
                yield broker, producer

    return open_both


def values_of(push: Push) -> dict[str, float]:
    """Name -> value, of metrics with one data point."""
    found = {}
    for resource in push.message.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                data = metric.gauge if metric.HasField("gauge") else metric.sum
                found[metric.name] = data.data_points[0].as_double
    return found


async def test_metrics_are_pushed_at_the_interval_and_at_the_end(
    both: Open, autojump_clock: MockClock
) -> None:
    """The first after half to one and a half of it; totals say what was added since the last push."""
    async with both({"interval_ms": 10_000}) as (broker, producer):
        announce, arrived = trio.open_memory_channel[Push](9)
        broker.telemetry.on_push = announce.send_nowait
        await (await producer.send("t", b"one"))
        started = trio.current_time()
        await arrived.receive()
        assert 5 <= trio.current_time() - started <= 15.1
        await (await producer.send("t", b"two"))
        await (await producer.send("t", b"three"))
        await arrived.receive()
        await (await producer.send("t", b"four"))
        assert (await producer.client_instance_id()) == broker.telemetry.pushes[0].client_instance_id
    sent = [
        values_of(push)["org.apache.kafka.producer.record.send.total"] for push in broker.telemetry.pushes
    ]
    assert sent == [1, 2, 1]
    assert [push.terminating for push in broker.telemetry.pushes] == [False, False, True]


async def test_only_what_is_wanted_is_pushed(both: Open, autojump_clock: MockClock) -> None:
    wanted = ["org.apache.kafka.producer.topic.", "org.apache.kafka.producer.batch.size.max"]
    async with both({"metrics": wanted, "interval_ms": 1_000}) as (broker, producer):
        await (await producer.send("t", b"one"))
        await trio.sleep(2)
    names = broker.telemetry.pushes[0].names()
    assert "org.apache.kafka.producer.topic.byte.total" in names
    assert all(name.startswith(tuple(wanted)) for name in names)


async def test_a_changed_subscription_is_followed(both: Open, autojump_clock: MockClock) -> None:
    async with both({"metrics": ["nothing"], "interval_ms": 1_000}) as (broker, producer):
        await (await producer.send("t", b"one"))
        await trio.sleep(5)
        assert not broker.telemetry.pushes  # what is wanted does not exist
        broker.telemetry.subscribe(metrics=["*"], interval_ms=1_000)
        await trio.sleep(5)
        assert broker.telemetry.pushes
        broker.telemetry.unsubscribe()
        await trio.sleep(5)
        pushed = len(broker.telemetry.pushes)
        await trio.sleep(1_000)
        assert len(broker.telemetry.pushes) == pushed


def test_brokers_without_the_apis_are_not_asked() -> None:
    """No module of telemetry is loaded either; measured in a process of its own."""
    assert not alone(asked_and_loaded)


def asked_and_loaded() -> tuple[set[int], set[str]] | None:
    """API keys of telemetry that a broker was asked, and the modules that were loaded for it."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(cluster.scripted.run)
            async with cluster.producer() as producer:
                await (await producer.send("one", b"value"))
                await trio.sleep(1_000)
                with pytest.raises(
                    KafkaTimeoutError, match="no broker assigned a client instance id within 3 s"
                ):
                    await producer.client_instance_id(3)
            nursery.cancel_scope.cancel()

    for name in [name for name in sys.modules if name.endswith(".telemetry")]:
        del sys.modules[name]  # this file loads the broker's
    clock = MockClock(autojump_threshold=0)
    cluster = LocalCluster(clock)
    trio.run(main, clock=clock)
    asked = {each.header.api_key for each in cluster.scripted.received} & {71, 72}
    loaded = {name for name in sys.modules if name.endswith("client.observing.telemetry")}
    return (asked, loaded) if asked or loaded else None


async def test_it_can_be_switched_off(both: Open, autojump_clock: MockClock) -> None:
    async with both({"interval_ms": 100}, enable_metrics_push=False) as (broker, producer):
        await (await producer.send("t", b"one"))
        await trio.sleep(10)
        assert not broker.telemetry.pushes
        with pytest.raises(IllegalStateError, match="enable_metrics_push=False"):
            await producer.client_instance_id()


async def test_without_the_library_it_says_so_once(
    both: Open, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Records go on as ever."""
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.metrics.v1", None)
    monkeypatch.delitem(sys.modules, "opentelemetry.proto.metrics.v1.metrics_pb2", raising=False)
    with caplog.at_level(logging.INFO, "splashdam.sender"):
        async with both({"interval_ms": 1_000}) as (broker, producer):
            await (await producer.send("t", b"one"))
            await trio.sleep(100)
            await (await producer.send("t", b"two"))
    assert not broker.telemetry.pushes
    (line,) = [record for record in caplog.records if "splashdam[telemetry]" in record.getMessage()]
    assert line.levelno == logging.INFO


async def test_an_instance_id_is_asked_for_without_a_record(both: Open, autojump_clock: MockClock) -> None:
    async with both({}) as (_, producer):
        instance_id = await producer.client_instance_id(10)
        assert instance_id.int
        assert await producer.client_instance_id(10) == instance_id


def test_a_closed_producer_has_no_id() -> None:
    producer = KafkaProducer()
    producer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        producer.client_instance_id(0)


async def test_an_interval_of_none(
    both: Open, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that names 0 ms was sent metrics 1,000 times a second; Kafka's clients take 5 min."""
    monkeypatch.setattr("splashdam.embedded_broker.telemetry.client_metrics.INTERVALS_MS", range(1))
    async with both({"interval_ms": 0}) as (broker, producer):
        await (await producer.send("t", b"one"))
        await trio.sleep(149)
        assert not broker.telemetry.pushes
        await trio.sleep(1_000)
        assert 2 <= len(broker.telemetry.pushes) <= 4
