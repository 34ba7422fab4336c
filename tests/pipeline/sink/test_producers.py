"""Producers are kept for the next task: not for another process, not after a failure, not for ever."""

from __future__ import annotations

import os

import attrs
import pytest

from splashdam import EmbeddedBroker
from splashdam.model.errors import IllegalStateError
from splashdam.net.steered_clock import SteeredClock
from splashdam.pipeline.sink.options import SinkOptions, sink_options
from splashdam.pipeline.sink.sending import IDLE_MS, ProducerCache


@pytest.fixture
def options(kafka_broker: EmbeddedBroker) -> SinkOptions:
    """The options of a sink for this broker."""
    return sink_options({"kafka.bootstrap.servers": kafka_broker.bootstrap_servers, "topic": "t"})


@pytest.fixture
def clock() -> SteeredClock:
    """For how long producers are idle."""
    return SteeredClock()


def test_one_for_each_set_of_options(options: SinkOptions, clock: SteeredClock) -> None:
    """Tasks of one process take turns."""
    cache = ProducerCache(clock)
    with cache.producer(options) as first:
        pass
    with cache.producer(options) as second:
        assert second is first
        second.close()


def test_a_fork_gets_a_fresh_one(options: SinkOptions, clock: SteeredClock) -> None:
    """Trap 17: a producer from before the fork has neither thread nor connections there."""
    cache = ProducerCache(clock)
    with cache.producer(options) as kept:
        kept.send("t", b"parent").get()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with cache.producer(options) as own:
                own.send("t", b"child").get()
                own.close()
            status = 0 if own is not kept else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with cache.producer(options) as still:
        assert still is kept
        assert still.send("t", b"parent").get().offset == 2
        still.close()


def test_a_failed_task_takes_its_producer_along(options: SinkOptions, clock: SteeredClock) -> None:
    """The error may be the producer's."""
    cache = ProducerCache(clock)
    with pytest.raises(ValueError, match="row 7"), cache.producer(options) as poisoned:
        raise ValueError("row 7")
    with cache.producer(options) as fresh:
        assert fresh is not poisoned
        fresh.close()


def test_idle_ones_are_closed(options: SinkOptions, clock: SteeredClock) -> None:
    """The next request for any producer closes them."""
    cache = ProducerCache(clock)
    with cache.producer(options) as idle:
        idle.send("t", b"1").get()
    clock.advance(seconds=IDLE_MS / 1000 + 1)
    other = attrs.evolve(options, properties=(*options.properties, ("linger.ms", "1")))
    with cache.producer(other) as fresh:
        with pytest.raises(IllegalStateError, match="closed"):
            idle.send("t", b"2")
        fresh.close()
