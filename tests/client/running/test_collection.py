"""The blocking producer and the garbage collector: one that nobody closed, and what sending leaves behind."""

from __future__ import annotations

import gc
import logging
import socket
import sys
import weakref
from typing import Any

import pytest
import trio
from support.clients.local_cluster import LocalCluster
from support.running.alone import alone, descriptor_count
from support.scripted.cluster import Trouble
from trio.testing import MockClock

from splashdam.client.producer import KafkaProducer
from splashdam.model.errors import KafkaTimeoutError
from splashdam.wire.messages.produce import ProduceRequest


def test_a_collected_producer_delivers_and_ends(tcp_cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody closed it: what was sent arrives, its thread ends, nothing is logged or raised."""
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address, linger_ms=60_000)
    thread = producer._loop.thread
    future = producer.send("one", b"v")
    gone = weakref.ref(producer)
    gc.disable()
    try:
        del producer
        assert gone() is None
    finally:
        gc.enable()
    thread.join(300)
    assert not thread.is_alive()
    assert future.succeeded()
    assert not caplog.records


def test_a_collected_producer_gives_up(tcp_cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    """After ``exit_timeout_ms``, with one warning that counts what was lost."""
    tcp_cluster.scripted.trouble_for = lambda message: Trouble(
        then="silence" if isinstance(message, ProduceRequest) else "answer"
    )
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address, exit_timeout_ms=100)
    thread = producer._loop.thread
    future = producer.send("one", b"v")
    del producer
    with caplog.at_level(logging.WARNING, "splashdam.client"):
        thread.join(300)
    assert not thread.is_alive()
    assert future.failed()
    assert [
        record.getMessage() for record in caplog.records if "1 records were not delivered" in record.message
    ]
    assert len(caplog.records) == 1


def test_sending_leaves_no_cycles(tcp_cluster: Any) -> None:
    """Futures, batches and callbacks go without the cycle collector once they are done."""
    assert alone(cycles_of_sending, tcp_cluster.address) == []


def cycles_of_sending(address: str) -> list[str]:
    """Types of ours that only the collector could free."""
    with KafkaProducer(bootstrap_servers=address) as producer:
        producer.send("one", b"v").get(timeout=300)
        gc.collect()
        gc.disable()
        try:
            kept: list[Any] = []
            for _ in range(50):
                producer.send("one", b"v").add_both(lambda result, _kept=kept: None)
                producer.send("one", b"v").get(timeout=300)
            with pytest.raises(KafkaTimeoutError):
                producer.send("one", b"v").get(timeout=-1)
            producer.flush()
            producer.send("one", b"v").get(timeout=300)
            del kept
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            return [
                str(type(each)) for each in gc.garbage if type(each).__module__.startswith("splashdam.client")
            ]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()


@pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
def test_closed_producers_leave_no_descriptors_to_the_collector() -> None:
    """Each left two or three eventfds open until a cyclic collection."""
    with socket.socket() as nobody:  # bound and not listened to
        nobody.bind(("127.0.0.1", 0))
        assert alone(descriptors_of_producers, "{}:{}".format(*nobody.getsockname())) <= 0


def descriptors_of_producers(address: str) -> int:
    """How many are left of fifty that came and went, without a collection of cycles."""
    KafkaProducer(bootstrap_servers=address).close()
    gc.collect()
    before = descriptor_count()
    gc.disable()
    try:
        for _ in range(50):
            producer = KafkaProducer(bootstrap_servers=address)
            producer.flush()
            assert producer._core._loop_calls._wakeup._ends.reader >= 0  # there is something to be closed
            producer.close()
        return descriptor_count() - before
    finally:
        gc.enable()


@pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
def test_closed_async_producers_leave_no_descriptors_to_the_collector() -> None:
    """The same in a loop that goes on, which has forgotten them before they are closed."""
    assert alone(descriptors_of_async_producers) <= 0


def descriptors_of_async_producers() -> int:
    """Likewise."""

    async def main() -> int:
        async with trio.open_nursery() as nursery:
            await nursery.start(cluster.scripted.run)
            gc.collect()
            before = descriptor_count()
            gc.disable()
            try:
                for _ in range(50):
                    async with cluster.producer() as producer:
                        await (await producer.send("one", b"v"))
                left = descriptor_count() - before
            finally:
                gc.enable()
            assert len(cluster.values("one")) == 50
            nursery.cancel_scope.cancel()
        return left

    clock = MockClock(autojump_threshold=0)
    cluster = LocalCluster(clock)
    return trio.run(main, clock=clock)
