"""The blocking producer and the garbage collector: one that nobody closed, and what sending leaves behind."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import Any

import pytest

from splashdam.client.producer import KafkaProducer
from splashdam.model.errors import KafkaTimeoutError
from splashdam.testing.scripted_broker import Trouble
from splashdam.wire.messages.produce import ProduceRequest


def test_a_collected_producer_delivers_and_ends(tcp_cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody closed it: what was sent arrives, its thread ends, nothing is logged or raised."""
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address, linger_ms=60_000)
    thread = producer._thread
    future = producer.send("one", b"v")
    gone = weakref.ref(producer)
    gc.disable()
    try:
        del producer
        assert gone() is None
    finally:
        gc.enable()
    thread.join(30)
    assert not thread.is_alive()
    assert future.succeeded()
    assert not caplog.records


def test_a_collected_producer_gives_up(tcp_cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    """After ``exit_timeout_ms``, with one warning that counts what was lost."""
    tcp_cluster.scripted.trouble_for = lambda message: Trouble(
        then="silence" if isinstance(message, ProduceRequest) else "answer"
    )
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address, exit_timeout_ms=100)
    thread = producer._thread
    future = producer.send("one", b"v")
    del producer
    with caplog.at_level(logging.WARNING, "splashdam.client"):
        thread.join(30)
    assert not thread.is_alive()
    assert future.failed()
    assert [
        record.getMessage() for record in caplog.records if "1 batches were not delivered" in record.message
    ]
    assert len(caplog.records) == 1


def test_sending_leaves_no_cycles(tcp_cluster: Any) -> None:
    """Futures, batches and callbacks go without the cycle collector once they are done."""
    with KafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
        producer.send("one", b"v").get(timeout=30)
        gc.collect()
        gc.disable()
        try:
            kept: list[Any] = []
            for _ in range(50):
                producer.send("one", b"v").add_both(lambda result, _kept=kept: None)
                producer.send("one", b"v").get(timeout=30)
            with pytest.raises(KafkaTimeoutError):
                producer.send("one", b"v").get(timeout=-1)
            producer.flush()
            producer.send("one", b"v").get(timeout=30)
            del kept
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            ours = [each for each in gc.garbage if type(each).__module__.startswith("splashdam.client")]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert ours == []
