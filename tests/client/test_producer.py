"""The blocking producer over real sockets: results, limits in time and memory, callbacks, closing."""

from __future__ import annotations

import asyncio
import inspect
import logging
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from support.clients.preparing import prepare
from support.scripted.cluster import Trouble

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.client.asyncio_producer import AsyncioKafkaProducer
from splashdam.client.partitioning.partitioners import hashed_partition
from splashdam.client.producer import KafkaProducer
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.errors import (
    BufferExhaustedError,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    WouldBlock,
)
from splashdam.record.kernel import NowaitSends, Sends
from splashdam.wire.messages.produce import ProduceRequest

ENDS = pytest.mark.timeout(60)
"""For calls with a limit of a second at most: without it they would wait for minutes. How late they are on a
busy machine is not asserted."""


class Watch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started


def test_send_and_get(tcp_cluster: Any) -> None:
    """A record's whole way through a socket."""
    with KafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
        metadata = producer.send("two", b"v", key=b"k").get(timeout=300)
        assert metadata.partition == hashed_partition(b"k", 2)
        assert metadata.offset == 0
        futures = [producer.send("one", b"%d" % number) for number in range(1_000)]
        assert producer.flush()
        assert [future.value.offset for future in futures if future.value] == list(range(1_000))
        assert producer.partitions_for("two") == {0, 1}
        assert producer.bootstrap_connected()
        assert producer.metrics()["producer-metrics"]["record-send-total"] == 1_001
    assert tcp_cluster.values("one") == [b"%d" % number for number in range(1_000)]


def test_the_kernels_methods_carry_the_producers_texts() -> None:
    """What `send` and `send_nowait` of the producer say stands at the methods that are called."""
    assert "BufferExhaustedError" in (inspect.getdoc(KafkaProducer.send) or "")
    assert "WouldBlock" in (inspect.getdoc(KafkaProducer.send_nowait) or "")
    assert KafkaProducer.send is Sends.send


@pytest.mark.parametrize("producer", [KafkaProducer, AsyncKafkaProducer, AsyncioKafkaProducer])
def test_send_nowait_was_inherited_without_the_fast_path(producer: type[Any]) -> None:
    """The class decorator looks at the class that it decorates: a call took a hundred times as long."""
    assert producer.send_nowait is NowaitSends.send_nowait
    assert producer._own_send_nowait is not NowaitSends.send_nowait


def test_the_surface_is_kafka_pythons() -> None:
    """Its methods are there, with its arguments in its order."""
    theirs = pytest.importorskip("kafka").KafkaProducer
    for name in ("send", "flush", "partitions_for", "bootstrap_connected"):
        ours = list(inspect.signature(getattr(KafkaProducer, name)).parameters)
        assert ours == list(inspect.signature(getattr(theirs, name)).parameters), name


@ENDS
def test_the_constructor_connects_to_nobody(closed_port: str) -> None:
    """It returns at once; the error comes with the first record that has to wait."""
    watch = Watch()
    with KafkaProducer(bootstrap_servers=closed_port, max_block_ms=50) as producer:
        assert not producer.bootstrap_connected()
        with pytest.raises(KafkaTimeoutError, match=r"'one'.*within 50 ms: "):
            producer.send("one", b"v")
        assert watch.seconds >= 0.05


def test_from_properties(tcp_cluster: Any, tmp_path: Path) -> None:
    """A file of Kafka's, with options on top."""
    path = tmp_path / "producer.properties"
    path.write_text(f"bootstrap.servers={tcp_cluster.address}\nlinger.ms=1\nacks=all\n", encoding="utf-8")
    with KafkaProducer.from_properties(path, client_id="from-file") as producer:
        assert producer.config["linger_ms"] == 1
        assert producer.config["client_id"] == "from-file"
        assert producer.send("one", b"v").get(timeout=300).offset == 0
    with pytest.raises(KafkaConfigurationError, match=r"Did you mean 'linger\.ms'"):
        KafkaProducer.from_properties({"lingr.ms": "1"})


def test_the_configuration_travels_and_the_producer_does_not(tcp_cluster: Any) -> None:
    """Pickling says where to create the producer instead."""
    with KafkaProducer(bootstrap_servers=tcp_cluster.address, acks="all") as producer:
        with pytest.raises(TypeError, match="create the producer in the worker"):
            pickle.dumps(producer)
        config = pickle.loads(pickle.dumps(producer.config))
    assert config["acks"] == -1
    with KafkaProducer(**config) as worker:
        assert worker.send("one", b"v").get(timeout=300).offset == 0


@ENDS
@pytest.mark.parametrize("timeout", [0, 0.3])
def test_flush_and_close_return_whatever_the_peer_does(silent_peer: str, timeout: float) -> None:
    """A peer that takes the connection and never answers: both end within their limit."""
    producer = KafkaProducer(bootstrap_servers=silent_peer, max_block_ms=100)
    with pytest.raises(
        KafkaTimeoutError, match=f"'one'.*100 ms: .*{silent_peer.split(':')[1]}|is not answered"
    ):
        producer.send("one", b"v")
    producer.flush(timeout)
    producer.close(timeout)


@ENDS
@pytest.mark.parametrize("timeout", [0, 0.3])
def test_flush_and_close_return_when_answers_stop(tcp_cluster: Any, timeout: float) -> None:
    """Records in flight are pending for flush, and fail with close."""
    tcp_cluster.scripted.trouble_for = lambda message: Trouble(
        then="silence" if isinstance(message, ProduceRequest) else "answer"
    )
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address, linger_ms=0)
    future = producer.send("one", b"v")
    report = producer.flush(timeout)
    assert report.pending == 1
    assert not future.is_done
    producer.close(timeout)
    with pytest.raises(KafkaError, match=f"closed with timeout={timeout}"):
        future.get(timeout=0)


def test_close_0_fails_what_lingers(tcp_cluster: Any) -> None:
    """At once, closed at the first call, and quiet at the second."""
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address, linger_ms=60_000)
    future = producer.send("one", b"v")
    producer.close(timeout=0)
    assert future.failed()
    producer.close(timeout=0)
    producer.close()
    assert producer.flush().pending == 0
    for call in (lambda: producer.send("one", b"v"), lambda: producer.partitions_for("one")):
        with pytest.raises(IllegalStateError, match="the producer is closed"):
            call()
    for call in (producer.flush, producer.close):
        with pytest.raises(ValueError, match="must not be negative"):
            call(timeout=-1)


def test_close_delivers(tcp_cluster: Any) -> None:
    """Without a limit it waits for what lingers, and its thread ends."""
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address, linger_ms=60_000)
    future = producer.send("one", b"v")
    producer.close()
    assert future.succeeded()
    assert not producer._loop.thread.is_alive()


@ENDS
def test_memory_is_bounded_while_the_broker_is_away(tcp_cluster: Any) -> None:
    """The sum of what waits stays within ``buffer_memory``; then send blocks, and says why."""
    tcp_cluster.scripted.trouble_for = lambda message: Trouble(
        then="silence" if isinstance(message, ProduceRequest) else "answer"
    )
    options = {"buffer_memory": 300_000, "batch_size": 16_384, "max_block_ms": 300, "linger_ms": 0}
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address, **options)
    prepare(producer, "six")
    futures: list[Any] = []
    watches: list[Watch] = []

    def send_on() -> None:
        while True:
            watches.append(Watch())
            futures.append(producer.send("six", bytes(1_000)))

    with pytest.raises(BufferExhaustedError, match="buffer_memory of 300000 bytes was full for 300 ms"):
        send_on()
    assert watches[-1].seconds >= 0.3
    assert 200 < len(futures) < 300
    assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] >= 0
    with pytest.raises(WouldBlock):
        producer.send_nowait("six", bytes(10_000))
    producer.close(0)
    assert all(future.failed() for future in futures)
    figures = producer.metrics()["producer-metrics"]
    assert figures["buffer-available-bytes"] == 300_000
    assert figures["waiting-threads"] == 0


@ENDS
def test_callbacks_may_send_and_close_but_not_wait(tcp_cluster: Any, undelivered: Any) -> None:
    """``send`` never waits there, not even for an unknown topic; ``get`` and ``flush`` raise at once."""
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address)
    results: list[Any] = []
    called = threading.Event()

    def callback(_metadata: Any) -> None:
        try:
            results.append(producer.send("one", b"from the callback"))
            results.append(producer.send("six", b"to a topic not known yet", partition=4))
            results.append(producer.send("six", b"and another", partition=4))
            for call in (results[0].get, producer.flush, lambda: producer.partitions_for("two")):
                with pytest.raises(IllegalStateError, match="would wait for ever here"):
                    call()
        except BaseException as error:
            results.append(error)
        called.set()

    with undelivered(producer):
        producer.send("one", b"v").add_callback(callback)
    assert called.wait(300)
    assert len(results) == 3, results
    assert [future.get(timeout=300).offset for future in results] == [1, 0, 1]
    assert results[1].value.partition == 4
    producer.close()
    assert tcp_cluster.values("six", 4) == [b"to a topic not known yet", b"and another"]


def test_a_deferred_record_for_a_topic_that_never_comes(tcp_cluster: Any, undelivered: Any) -> None:
    """Its future fails after ``max_block_ms``; the sender goes on meanwhile."""
    with KafkaProducer(bootstrap_servers=tcp_cluster.address, max_block_ms=1_000) as producer:
        late: list[Any] = []
        with undelivered(producer):
            future = producer.send("one", b"v")
            future.add_callback(lambda _metadata: late.append(producer.send("nowhere", b"v")))
        producer.flush()
        with pytest.raises(KafkaTimeoutError, match="'nowhere'"):
            late[0].get(timeout=300)
        assert producer.send("one", b"v").get(timeout=300).offset == 1


def test_close_in_a_callback_returns_at_once(tcp_cluster: Any, undelivered: Any) -> None:
    """As with ``timeout=0``, and without a join with itself."""
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address, batch_size=0)
    tcp_cluster.scripted.produce_script.append(Trouble())
    tcp_cluster.scripted.trouble_for = lambda message: Trouble(
        then="silence" if isinstance(message, ProduceRequest) else "answer"
    )
    ended = threading.Event()

    def close(_metadata: Any) -> None:
        producer.close()
        ended.set()

    with undelivered(producer):
        producer.send("one", b"v").add_callback(close)
        rest = producer.send("one", b"w")
    assert ended.wait(300)
    producer.close()
    with pytest.raises(KafkaError, match="closed in a callback"):
        rest.get(timeout=0)


def test_close_in_a_finalizer_on_the_senders_thread_loses_nothing(tcp_cluster: Any, undelivered: Any) -> None:
    """A ``__del__`` runs where the last reference goes: it closes without waiting, and the rest arrives."""

    class Service:
        def __init__(self) -> None:
            self.producer = KafkaProducer(bootstrap_servers=tcp_cluster.address, batch_size=0, linger_ms=0)
            self.threads: list[str] = []

        def __del__(self) -> None:
            threads.append(threading.current_thread().name)
            self.producer.close()

    threads: list[str] = []
    service = Service()
    name = service.producer._loop.thread.name
    with undelivered(service.producer):
        first = service.producer.send("one", b"0")
        rest = [service.producer.send("one", b"%d" % number) for number in range(1, 20)]
        first.add_callback(lambda _metadata, _service=service: None)
        del service
    assert [future.get(timeout=300).offset for future in (first, *rest)] == list(range(20))
    assert threads == [name]


@ENDS
def test_a_stuck_callback_cannot_keep_close(tcp_cluster: Any, undelivered: Any) -> None:
    """The application's own callback holds the thread: close returns in time, and what is left fails."""
    release = threading.Event()
    entered = threading.Event()
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address, linger_ms=0)

    def hang(_metadata: Any) -> None:
        entered.set()
        release.wait(300)

    with undelivered(producer):
        producer.send("one", b"v").add_callback(hang)
    assert entered.wait(300)
    rest = producer.send("one", b"w")
    producer.close(timeout=0.2)
    assert rest.failed()
    release.set()


def test_a_failed_record_fails_alone(tcp_cluster: Any) -> None:
    """The next one is delivered (a refused record never kills the producer)."""
    tcp_cluster.scripted.produce_script.append(Trouble(code=ErrorCode.INVALID_RECORD))
    with KafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
        with pytest.raises(KafkaError, match="InvalidRecordError"):
            producer.send("one", b"bad").get(timeout=300)
        assert producer.send("one", b"good").get(timeout=300).offset == 0


def test_awaited_by_asyncio_and_trio(tcp_cluster: Any) -> None:
    """The blocking producer's futures in both kinds of loop."""
    with KafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
        producer.prepare("one")

        async def under_asyncio() -> list[int]:
            metadata = await asyncio.gather(*[producer.send("one", b"v") for _ in range(10)])
            return [each.offset for each in metadata]

        async def under_trio() -> int:
            with trio.fail_after(300):
                return (await producer.send("one", b"v")).offset

        assert asyncio.run(under_asyncio()) == list(range(10))
        assert trio.run(under_trio) == 10


def test_closing_touches_no_logger(tcp_cluster: Any) -> None:
    """Neither ours nor anybody else's."""

    def levels() -> dict[str, Any]:
        return {
            name: (logger.level, logger.disabled, tuple(logger.handlers), logger.propagate)
            for name, logger in logging.root.manager.loggerDict.items()
            if isinstance(logger, logging.Logger)
        }

    KafkaProducer(bootstrap_servers=tcp_cluster.address).close()
    before = levels()
    KafkaProducer(bootstrap_servers=tcp_cluster.address).close(0)
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address)
    thread = producer._loop.thread
    del producer
    thread.join(300)
    assert levels() == before


def test_interrupting_a_blocked_send_gives_its_place_back(tcp_cluster: Any) -> None:
    """What a signal handler raises leaves the line for memory as it was."""
    import signal

    class Interrupted(Exception):
        pass

    def interrupt(_number: int, _frame: Any) -> None:
        raise Interrupted

    tcp_cluster.scripted.trouble_for = lambda message: Trouble(
        then="silence" if isinstance(message, ProduceRequest) else "answer"
    )
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address, buffer_memory=4_000, linger_ms=0)
    producer.send("one", bytes(3_000))
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Interrupted):
            producer.send("one", bytes(3_000))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert producer.metrics()["producer-metrics"]["waiting-threads"] == 0
    producer.close(0)
    assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 4_000
