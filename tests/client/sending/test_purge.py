"""``purge``: librdkafka's two kinds, legal sequence numbers afterwards, and nothing left behind."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from support.clients.holding import holding
from support.scripted.cluster import Trouble

from splashdam.client.producer import KafkaProducer
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.errors import IllegalStateError, PurgedError, TransactionFailedError


async def test_queued_records_fail_and_the_next_are_delivered(cluster: Any, autojump_clock: Any) -> None:
    """They were not sent, memory is whole again, callbacks run."""
    errors: list[BaseException] = []
    async with cluster.producer(linger_ms=60_000) as producer:
        for number in range(3):
            (await producer.send("one", b"%d" % number)).add_errback(errors.append)
        assert producer.purge(queued=False, in_flight=True) == 0
        assert (producer.purge(), producer.purge()) == (3, 0)
        await trio.testing.wait_all_tasks_blocked()
        assert [type(error) for error in errors] == [PurgedError] * 3
        assert "they were not sent" in str(errors[0])
        assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 32 * 1024 * 1024
        await producer.send("one", b"after")
    assert cluster.values("one") == [b"after"]


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("written", [True, False])
async def test_in_flight_records_fail_and_their_answer_is_ignored(
    cluster: Any, autojump_clock: Any, idempotent: bool, written: bool
) -> None:
    """The batches behind them are in sequence, whether the purged one was written or not."""
    code = ErrorCode.NONE if written else ErrorCode.INVALID_RECORD
    cluster.scripted.produce_script.append(Trouble(delay_ms=500, code=code))
    async with cluster.producer(linger_ms=0, enable_idempotence=idempotent) as producer:
        purged = await producer.send("one", b"purged")
        await trio.sleep(0.1)
        assert producer.purge() == 0
        assert producer.purge(in_flight=True) == 1
        with pytest.raises(PurgedError, match="they may have been written"):
            await purged
        after = [await producer.send("one", b"%d" % number) for number in range(20)]
        assert await producer.flush()
        assert all(future.succeeded() for future in after)
        assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 32 * 1024 * 1024
    values = [b"%d" % number for number in range(20)]
    assert cluster.values("one") == ([b"purged", *values] if written else values)


async def test_records_that_wait_for_a_retry(cluster: Any, autojump_clock: Any) -> None:
    """They are queued, and may have been written; the broker takes what follows."""
    cluster.scripted.produce_script.append(Trouble(code=ErrorCode.REQUEST_TIMED_OUT))
    async with cluster.producer(linger_ms=0, retry_backoff_ms=900) as producer:
        purged = await producer.send("one", b"purged")
        await trio.sleep(0.1)
        assert producer.purge() == 1
        with pytest.raises(PurgedError, match="they may have been written"):
            await purged
        assert (await (await producer.send("one", b"after"))).offset >= 0
    assert cluster.values("one")[-1] == b"after"


def test_from_a_callback_and_deferred_records(tcp_cluster: Any, undelivered: Any) -> None:
    """A record that waits to be brought in goes, too; in a callback it does not wait."""
    late: list[Any] = []

    def on_delivery(_metadata: object) -> None:
        late.append(producer.send("two", b"late", partition=7))
        late.append(producer.purge())

    with KafkaProducer(bootstrap_servers=tcp_cluster.address, linger_ms=0) as producer:
        with undelivered(producer):
            producer.send("one", b"v").add_callback(on_delivery)
        producer.flush()
        future, count = late
        assert count == 1
        assert isinstance(future.exception, PurgedError)


def test_purge_inside_a_send_is_refused(tcp_cluster: Any) -> None:
    """A signal handler that has interrupted one must not change what it is at."""
    with KafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
        with holding(producer._core.guard), pytest.raises(IllegalStateError, match=r"purge\(\) would wait"):
            producer.purge()
        assert producer.purge() == 0


async def test_in_a_transaction_only_the_abort_is_left(
    cluster: Any, autojump_clock: Any, transactional: Any
) -> None:
    """What was purged is missing, so it cannot be committed; the next transaction can."""
    async with transactional(linger_ms=60_000) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("one", b"purged")
        assert producer.purge() == 1
        with pytest.raises(TransactionFailedError, match="were purged; they were not sent"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("one", b"kept")
    assert cluster.values("one")[0] == b"kept"
