"""Bulk sending when something goes wrong: what is queued, what is not, and what the caller is told."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from support.clients.local_cluster import LocalCluster
from support.running.alone import alone
from support.scripted.cluster import Trouble
from trio.testing import MockClock

from splashdam.client.bulk import sending as bulk_sending
from splashdam.client.partitioning.partitioners import hashed_partition
from splashdam.client.reports import BulkDelivery
from splashdam.model.broker_errors import (
    ErrorCode,
    InvalidRecordError,
    MessageTooLargeError,
    TopicAuthorizationFailedError,
)
from splashdam.model.errors import (
    BufferExhaustedError,
    BulkSendError,
    IllegalStateError,
    KafkaTimeoutError,
)
from splashdam.model.values import TopicPartition
from splashdam.record.bulk_locations import BulkLocations
from splashdam.wire.messages.produce import ProduceRequest

VALUES = [b"%03d" % number + bytes(97) for number in range(300)]
KEYS = [b"%d" % (number % 50) for number in range(300)]
MANY = 20_000
"""So many that what a delivery has once does not count. More are slow: memory is traced meanwhile."""


@pytest.mark.parametrize("keys", [None, KEYS], ids=["without keys", "with keys"])
async def test_a_topic_that_the_cluster_refuses(cluster: Any, keys: Any, autojump_clock: Any) -> None:
    """As with ``send``: a delivery that has failed, here with all its records."""
    cluster.scripted.topic_errors["secret"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with cluster.producer() as producer:
        delivery = await producer.send_many("secret", VALUES, keys=keys)
        assert delivery.done()
        assert delivery.report().failed == 300
        assert [failed.number for failed in delivery.failed] == list(range(300))
        assert delivery[299].failed()
        with pytest.raises(TopicAuthorizationFailedError, match="'secret'") as caught:
            await delivery
    assert caught.value.__notes__ == [
        "record 0 of 300; 300 of them failed, see `failed` of the delivery",
    ]


async def test_a_topic_that_does_not_appear(cluster: Any, autojump_clock: Any) -> None:
    """After ``max_block_ms``, once, with the reason that ``send`` gives."""
    async with cluster.producer(max_block_ms=2_000) as producer:
        started = trio.current_time()
        with pytest.raises(BulkSendError, match="record 0: topic 'nowhere' did not appear") as caught:
            await producer.send_many("nowhere", VALUES)
        assert trio.current_time() - started == pytest.approx(2, abs=0.01)
    assert isinstance(caught.value.__cause__, KafkaTimeoutError)
    assert caught.value.index == 0
    assert caught.value.delivery is not None
    assert list(caught.value.delivery) == []


@pytest.mark.parametrize(
    ("wrong", "cause", "problem"),
    [
        ("text", TypeError, "record 200: the value must be bytes-like or None"),
        (bytes(3_000), MessageTooLargeError, "max_request_size is 2000"),
        (None, ValueError, "record 200: Need at least one: key or value"),
    ],
)
@pytest.mark.parametrize("keyed", [False, True])
async def test_a_record_that_cannot_be_sent(  # noqa: PLR0917 (pytest's arguments)
    cluster: Any, wrong: Any, cause: type[Exception], problem: str, keyed: bool, autojump_clock: Any
) -> None:
    """Those before it are delivered, it and the others are not; the next call is unharmed."""
    values = [*VALUES[:200], wrong, *VALUES[200:]]
    keys = [*KEYS[:200], None, *KEYS[200:]] if keyed else None
    async with cluster.producer(max_request_size=2_000, batch_size=1_500) as producer:
        with pytest.raises(BulkSendError, match=problem) as caught:
            await producer.send_many("two", values, keys=keys)
        error = caught.value
        assert type(error.__cause__) is cause
        assert error.index == 200
        assert isinstance(error.delivery, BulkDelivery)
        assert (await error.delivery).delivered == len(error.delivery) == 200
        assert await (await producer.send_many("two", VALUES[200:]))
    sent = sorted(cluster.values("two", 0) + cluster.values("two", 1))
    assert sent == VALUES


async def test_full_memory_ends_it_in_the_middle(cluster: Any, autojump_clock: Any) -> None:
    """After ``max_block_ms`` at one record; what was queued is delivered in the end."""
    cluster.scripted.produce_script.append(Trouble(delay_ms=5_000))
    async with cluster.producer(buffer_memory=20_000, batch_size=4_000, max_block_ms=1_000) as producer:
        with pytest.raises(
            BulkSendError, match="buffer_memory of 20000 bytes was full for 1000 ms"
        ) as caught:
            await producer.send_many("one", VALUES)
        error = caught.value
        assert isinstance(error.__cause__, BufferExhaustedError)
        assert error.retriable
        assert error.delivery is not None
        assert 0 < error.index == len(error.delivery) < 300
        assert await error.delivery
        assert await (await producer.send_many("one", VALUES[error.index :]))
    assert cluster.values("one") == VALUES


@pytest.mark.parametrize("keys", [None, KEYS], ids=["without keys", "with keys"])
async def test_one_of_several_batches_fails(cluster: Any, keys: Any, autojump_clock: Any) -> None:
    """Exactly its records are named; the others are delivered."""
    cluster.scripted.produce_script += [Trouble(), Trouble(), Trouble(code=ErrorCode.INVALID_RECORD)]
    async with cluster.producer(batch_size=2_000) as producer:
        delivery = await producer.send_many("two", VALUES, keys=keys)
        with pytest.raises(InvalidRecordError) as caught:
            await delivery
        report = delivery.report()
        numbers = [failed.number for failed in delivery.failed]
    assert 0 < report.failed == len(numbers) < 300
    assert report.delivered == 300 - report.failed
    assert not report
    assert [type(error) for error in report.errors] == [InvalidRecordError]
    assert caught.value.__notes__[-1].startswith(f"record {numbers[0]} of 300")
    sent = {*cluster.values("two", 0), *cluster.values("two", 1)}
    assert {VALUES[number] for number in range(300)} - sent == {VALUES[number] for number in numbers}
    assert [number for number, future in enumerate(delivery) if future.failed()] == numbers
    assert [number for number in range(300) if delivery[number].failed()] == numbers


async def test_the_broker_names_one_record(cluster: Any, autojump_clock: Any) -> None:
    """It has an error of its own, the others of the batch that of the batch."""
    cluster.scripted.produce_script.append(
        Trouble(code=ErrorCode.INVALID_RECORD, record_errors={2: "no key"})
    )
    async with cluster.producer() as producer:
        delivery = await producer.send_many("one", VALUES[:5])
        with pytest.raises(InvalidRecordError):
            await delivery
    failed = delivery.failed
    assert [record.number for record in failed] == list(range(5))
    assert ["no key" in str(record.error) for record in failed] == [False, False, True, False, False]


@pytest.mark.parametrize("keys", [None, KEYS], ids=["without keys", "with keys"])
async def test_batches_that_are_split(cluster: Any, keys: Any, autojump_clock: Any) -> None:
    """A batch that the broker finds too large travels on in parts; each record finds its own offset."""
    for log in cluster.scripted.logs.values():
        log.max_batch_bytes = 1_000
    async with cluster.producer(batch_size=4_000) as producer:
        delivery = await producer.send_many("two", VALUES, keys=keys)
        waiting = repr(delivery)
        assert await delivery
        logs = [cluster.values("two", number) for number in range(2)]
        for number, future in enumerate(delivery):
            metadata = future.value
            assert logs[metadata.partition][metadata.offset] == VALUES[number]
            if keys is not None:
                assert metadata.partition == hashed_partition(keys[number], 2)
        assert delivery.report().base_offsets.keys() <= {0, 1}
        assert delivery.failed == []
    assert waiting == "<BulkDelivery of 300 records, pending>"
    assert sum(map(len, logs)) == 300


async def test_closing_half_way(cluster: Any, autojump_clock: Any) -> None:
    """The waiting ``send_many`` raises; ``close`` delivers the queued records."""
    cluster.scripted.produce_script.append(Trouble(delay_ms=5_000))
    errors: list[BulkSendError] = []
    async with cluster.producer(buffer_memory=20_000, batch_size=4_000) as producer:

        async def send() -> None:
            with pytest.raises(BulkSendError, match="the producer is closed") as caught:
                await producer.send_many("one", VALUES)
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            await producer.close()
    (error,) = errors
    assert isinstance(error.__cause__, IllegalStateError)
    assert error.delivery is not None
    assert error.delivery.report().delivered == error.index
    assert cluster.values("one") == VALUES[: error.index]


async def test_an_interrupt_half_way(cluster: Any, autojump_clock: Any) -> None:
    """It is raised unchanged; the queued records stay queued, and the producer remains usable."""

    def serialize(value: int) -> bytes:
        if value == 50:
            raise KeyboardInterrupt
        return b"%d" % value

    async with cluster.producer(value_serializer=serialize) as producer:
        with pytest.raises(KeyboardInterrupt):
            await producer.send_many("one", range(100))
        assert await (await producer.send_many("one", range(51, 60)))
    assert cluster.values("one") == [b"%d" % number for number in range(60) if number != 50]


@pytest.mark.parametrize(("has_keys", "limit_bytes"), [(True, 4), (False, 1)], ids=["keys", "no keys"])
def test_what_a_delivery_keeps_per_record(has_keys: bool, limit_bytes: int) -> None:
    """Two bytes with keys, next to nothing without."""
    assert 0 < alone(kept_bytes, has_keys) / MANY < limit_bytes


def kept_bytes(has_keys: bool) -> int:
    """What is freed with the delivery."""

    async def main() -> int:
        keys = [b"%d" % (number % 100) for number in range(MANY)] if has_keys else None
        async with trio.open_nursery() as nursery:
            await nursery.start(cluster.scripted.run)
            async with cluster.producer(batch_size=20_000) as producer:
                await producer.prepare("six")
                tracemalloc.start()
                try:
                    delivery = await producer.send_many("six", [b"v"] * MANY, keys=keys)
                    assert await delivery
                    with_it, _ = tracemalloc.get_traced_memory()
                    del delivery
                    without_it, _ = tracemalloc.get_traced_memory()
                finally:
                    tracemalloc.stop()
            nursery.cancel_scope.cancel()
        return with_it - without_it

    clock = MockClock(autojump_threshold=0)
    cluster = LocalCluster(clock)
    return trio.run(main, clock=clock)


async def test_many_wait_for_one_delivery(cluster: Any, autojump_clock: Any) -> None:
    """Threads that wait for the delivery and for single records of it all wake."""
    cluster.scripted.trouble_for = lambda message: Trouble(
        delay_ms=1_000 if isinstance(message, ProduceRequest) else 0
    )
    woken: list[int] = []
    async with cluster.producer(batch_size=1_000) as producer, trio.open_nursery() as nursery:
        delivery = await producer.send_many("two", VALUES)

        async def wait(number: int) -> None:
            await (delivery if number % 2 else delivery[number])
            woken.append(number)

        for number in range(20):
            nursery.start_soon(wait, number)
    assert sorted(woken) == list(range(20))


class Outcome:
    """A batch that has somebody else ask in the middle of being asked."""

    def __init__(self, done: bool) -> None:
        self.topic_partition = TopicPartition("t", 0)
        self.is_done = done
        self.ask: Callable[[], bool] | None = None

    def done(self) -> bool:
        ask, self.ask = self.ask, None
        if ask is not None:
            assert not ask()
        return self.is_done


def test_two_threads_that_ask_whether_it_is_done() -> None:
    """Neither makes the other skip a batch that is not done."""
    locations = BulkLocations(spread=False)
    first, second = Outcome(done=True), Outcome(done=False)
    stand_ins: list[Any] = [first, second]  # they have what BulkDelivery calls
    for outcome in stand_ins:
        locations.add(outcome, 0)
    delivery = BulkDelivery(locations)
    first.ask = delivery.done
    assert not delivery.done()
    second.is_done = True
    assert delivery.done()


class Interrupted:
    """A kernel behind whose third call a signal handler raises."""

    def __init__(self, records: Any) -> None:
        self._records = records
        self._calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def __len__(self) -> int:
        return len(self._records)

    def _call(self, name: str, *arguments: Any) -> int:
        end: int = getattr(self._records, name)(*arguments)
        self._calls += 1
        if self._calls == 3:
            raise TimeoutError("SIGALRM")
        return end

    def append(self, *arguments: Any) -> int:
        return self._call("append", *arguments)

    def spread(self, *arguments: Any) -> int:
        return self._call("spread", *arguments)


@pytest.mark.parametrize("keys", [None, KEYS], ids=["without keys", "with keys"])
async def test_a_signal_handler_that_raises_behind_the_kernel(
    cluster: Any, autojump_clock: Any, monkeypatch: pytest.MonkeyPatch, keys: Any
) -> None:
    """The records that the kernel has appended are counted.

    A caller that continues at ``index`` sends none twice.
    """
    async with cluster.producer(linger_ms=1, batch_size=4_000) as producer:
        await producer.prepare("one")
        with monkeypatch.context() as patched:
            make = bulk_sending.BulkRecords
            patched.setattr(bulk_sending, "BulkRecords", lambda *given: Interrupted(make(*given)))
            with pytest.raises(BulkSendError, match="SIGALRM") as caught:
                await producer.send_many("one", VALUES, keys=keys)
        index, first = caught.value.index, caught.value.delivery
        assert 0 < index == len(first) < len(VALUES)
        rest = await producer.send_many("one", VALUES[index:], keys=keys and keys[index:])
        await first
        await rest
        assert first.report().delivered == index
        assert [future.done() for future in first] == [True] * index
    assert cluster.values("one") == VALUES
