"""The page of the producers: what each batch waits for, in the words of the decision."""

from __future__ import annotations

import pytest
import trio
from support.console.visitor import Visitor
from trio.testing import MockClock

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.embedded_broker.broker import Broker
from splashdam.model.broker_errors import TopicAuthorizationFailedError
from splashdam.model.errors import KafkaTimeoutError
from splashdam.model.views.inspected import PRODUCERS
from splashdam.model.views.producer import ProducerView
from splashdam.model.views.standing import Standing
from splashdam.net.memory import MemoryNetwork
from splashdam.testing.clock import VirtualClock
from splashdam.testing.faults.faults import Faults

HOSTILE = "<script>alert(1)</script>"


def producer(network: MemoryNetwork, clock: VirtualClock, **options: object) -> AsyncKafkaProducer:
    """A producer of the broker in memory."""
    return AsyncKafkaProducer(
        bootstrap_servers="broker:9092", connect=network.connect, clock=clock, **options
    )


def only(view: ProducerView) -> tuple[Standing | None, float | None]:
    """How its only partition stands."""
    (queue,) = view.queues
    return queue.standing, queue.left_ms


async def test_a_lingering_batch_says_how_long(
    broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """With what it holds, and without being touched by the look."""
    broker.topics.create("orders", 1)
    async with producer(network, clock, linger_ms=60_000, client_id="shop") as sending:
        await sending.prepare("orders")
        for _ in range(3):
            await sending.send("orders", b"a plank")
        await trio.sleep(20)
        view = sending.inspect()
        assert only(view) == (Standing.LINGERS, 40_000)
        (batch,) = view.queues[0].queued
        assert (batch.state, batch.records, batch.age_ms, batch.attempts) == ("open", 3, 20_000, 0)
        assert (view.client_id, view.state, view.queued_batches) == ("shop", "running", 1)
        assert 0 < view.reserved_bytes < view.buffer_memory_bytes
        assert view.records_sent == 0
        await sending.flush()
        after = sending.inspect()
        assert (after.records_sent, after.queues, after.reserved_bytes) == (3, (), 0)
        assert {stage.name: stage.largest_ms for stage in after.stages}["in a batch"] == 20_000


async def test_a_batch_in_flight_shows_its_sequences(
    broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """The next one waits: no other may overtake the first batch of a producer."""
    broker.topics.create("orders", 1)
    async with producer(network, clock, linger_ms=0) as sending:
        await sending.prepare("orders")
        sending.send_nowait("orders", b"first")
        while not sending.inspect().in_flight_batches:
            await trio.lowlevel.checkpoint()
        sending.send_nowait("orders", b"second")
        view = sending.inspect()
        (queue,) = view.queues
        assert only(view) == (Standing.FIRST_IN_FLIGHT, None)
        assert [(each.first_sequence, each.last_sequence) for each in queue.in_flight] == [(0, 0)]
        assert [each.records for each in queue.queued] == [1]
        assert (view.producer_id, view.producer_epoch) == (queue.in_flight[0].producer_epoch, 0)
        await sending.flush()


async def test_a_topic_without_a_cluster_says_why(
    network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """No batch is there yet; the failure is."""
    async with producer(network, clock, client_id="lost") as sending:
        with trio.move_on_after(5):
            await sending.send("orders", b"x")
        view = sending.inspect()
        assert "broker:9092" in view.failure
        assert view.queues == ()
        await sending.close(0)


async def test_the_page_shows_the_producers_of_the_process(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """The navigation has the page only while there is one."""
    assert '"/producers"' not in (await visitor.get("/")).text
    assert "No producer runs in this process" in (await visitor.get("/producers")).text
    broker.topics.create("orders", 1)
    async with producer(network, clock, linger_ms=60_000, client_id="shop") as sending:
        await sending.prepare("orders")
        await sending.send("orders", b"a plank")
        page = await visitor.get("/producers")
        assert page.status == 200
        assert "<strong>not full</strong>: it lingers for more records until linger_ms is over" in page.text
        assert "60 s left" in page.text
        assert '"/producers"' in (await visitor.get("/")).text
        live = await visitor.live("/producers")
        assert "orders" in live.text
        assert "<html" not in live.text
    assert "No producer runs" in (await visitor.get("/producers")).text
    assert PRODUCERS.snapshot() == []


async def test_a_batch_without_an_answer_is_in_flight_and_says_what_failed_before(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """The page said "no other one", and nothing of the attempt that had failed."""
    broker.topics.create("orders", 1)
    faults = Faults(broker.interception)
    faults.produce(error="NOT_ENOUGH_REPLICAS", times=1)
    faults.produce(delay_ms=20_000)
    async with producer(network, clock, linger_ms=0) as sending:
        await sending.send("orders", b"a plank")
        await trio.sleep(10)
        text = (await visitor.get("/producers")).text
    assert "<strong>in flight</strong>: the leader has not answered yet; its first record is 10 s old" in text
    assert "in flight again since attempt 1 failed: [19 NotEnoughReplicasError]" in text
    assert "in 1 partition<" in text


async def test_records_that_failed_say_why(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """A number in red was all that one saw of them."""
    broker.topics.create("orders", 1)
    Faults(broker.interception).produce(error="TOPIC_AUTHORIZATION_FAILED", times=1)
    async with producer(network, clock) as sending:
        with pytest.raises(TopicAuthorizationFailedError):
            await (await sending.send("orders", b"a plank"))
        refused = sending.inspect()
        await (await sending.send("orders", b"a plank"))
        text = (await visitor.get("/producers")).text
        assert sending.inspect().last_record_error == refused.last_record_error
    assert (refused.records_failed, refused.records_sent) == (1, 0)
    assert "[29 TopicAuthorizationFailedError] orders-0" in str(refused.last_record_error)
    assert "The last records that failed: [29 TopicAuthorizationFailedError] orders-0" in text


async def test_a_cluster_that_answers_with_an_error_is_not_said_to_be_silent(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """The words before the failure of the metadata fit an answer, a quota and a refused connection."""
    broker.topics.create("orders", 1)
    Faults(broker.interception).metadata(error="LEADER_NOT_AVAILABLE", topic="orders")
    async with producer(network, clock, max_block_ms=5_000) as sending:
        with pytest.raises(KafkaTimeoutError):
            await sending.send("orders", b"a plank")
        text = (await visitor.get("/producers")).text
    assert "The cluster does not answer" not in text
    assert "<strong>In the way:</strong> [5 LeaderNotAvailableError]" in text


async def test_producers_of_one_name_have_their_own_summaries(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """Those of the last one stood under each."""
    broker.topics.create("orders", 3)
    Faults(broker.interception).produce(error="NOT_ENOUGH_REPLICAS", partition=2)
    slow = {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000, "linger_ms": 60_000}
    async with (
        producer(network, clock, client_id="shop", **slow) as lingers,
        producer(network, clock, client_id="shop", **slow) as fails,
    ):
        for sending in (lingers, fails):
            await sending.prepare("orders")
        with trio.move_on_after(5):
            await fails.send("orders", b"a plank", partition=2)
            await fails.flush()
        for sending, partitions in ((lingers, (0, 1)), (fails, (0,))):
            for partition in partitions:
                await sending.send("orders", b"a plank", partition=partition)
        text = (await visitor.get("/producers")).text
        await lingers.close(0)
        await fails.close(0)
    assert text.count("backs off") == 1


async def test_a_long_name_is_cut(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """One of three thousand letters filled the page."""
    async with producer(network, clock, client_id="c" * 3_000):
        page = await visitor.get("/producers")
    assert "<bdi>" + "c" * 120 + "…</bdi>" in page.text


async def test_a_producer_cannot_write_into_the_page(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """Its name is foreign text."""
    async with producer(network, clock, client_id=HOSTILE, linger_ms=60_000):
        page = await visitor.get("/producers")
    assert HOSTILE not in page.text
    assert "&lt;script&gt;" in page.text


@pytest.mark.parametrize("standing", Standing)
def test_each_standing_reads_as_a_sentence(standing: Standing) -> None:
    """A word of what is, and what comes of it; only those that go say so."""
    assert standing.goes == standing.value.endswith("goes with the next request")
