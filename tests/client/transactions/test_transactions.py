"""Transactions of the trio producer and a scripted coordinator, in both protocols (KIP-890 and before)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from support.scripted.cluster import Trouble
from trio.testing import MockClock

from splashdam.model.broker_errors import (
    InvalidRecordError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
)
from splashdam.model.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    TransactionAbortedError,
    TransactionFailedError,
)
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.end_txn import EndTxnRequest
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest
from splashdam.wire.messages.produce import ProduceRequest
from splashdam.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

ONE = TopicPartition("one", 0)


def names(cluster: Any, first: int = 0) -> list[str]:
    """The requests, without those that are not about transactions."""
    received = cluster.scripted.received[first:]
    kinds = [type(each.message).__name__.removesuffix("Request") for each in received]
    return [name for name in kinds if name not in ("ApiVersions", "Metadata")]


def version_of(cluster: Any, kind: type) -> int:
    """In which version the last request of a kind came."""
    return int(
        [each for each in cluster.scripted.received if isinstance(each.message, kind)][-1].header.api_version
    )


async def test_requests_come_in_order(
    autojump_clock: MockClock, cluster: Any, transactional: Any, level: int
) -> None:
    """Coordinator, id, partitions, records, end; with KIP-890 partitions and group need no request."""
    async with transactional() as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("one", b"a")
            await producer.send_offsets_to_transaction({("in", 3): 7}, "g")
        assert cluster.scripted.coordinator.committed[ONE] == [b"a"]
        assert cluster.scripted.coordinator.offsets == {("g", TopicPartition("in", 3)): 7}
    adds = ["AddOffsetsToTxn", "FindCoordinator", "TxnOffsetCommit"]
    seen = names(cluster)
    assert seen[:2] == ["FindCoordinator", "InitProducerId"]
    assert seen[-1] == "EndTxn"
    if level == 1:
        assert seen.index("AddPartitionsToTxn") < seen.index("Produce")
        assert [name for name in seen[2:] if name in adds] == adds
    else:
        assert sorted(seen[2:-1]) == ["FindCoordinator", "Produce", "TxnOffsetCommit"]
    newest = (11, 4, 4) if level == 1 else (12, 5, 5)
    kinds = (ProduceRequest, TxnOffsetCommitRequest, EndTxnRequest)
    assert tuple(version_of(cluster, kind) for kind in kinds) == newest


async def test_batches_carry_the_transaction(
    autojump_clock: MockClock, cluster: Any, transactional: Any, level: int
) -> None:
    """The attribute, the identity, and numbers that go on (or begin anew with KIP-890's epochs)."""
    async with transactional() as producer:
        await producer.init_transactions()
        for number in range(3):
            async with producer.transaction():
                await producer.send("one", b"%d" % number)
    headers = cluster.scripted.logs[ONE].headers
    assert all(header.is_transactional for header in headers)
    numbers = [(header.producer_epoch, header.base_sequence) for header in headers]
    assert numbers == ([(0, 0), (0, 1), (0, 2)] if level == 1 else [(0, 0), (1, 0), (2, 0)])
    assert all(each.transactional_id == "x" for each in cluster.scripted.requests(ProduceRequest))


async def test_an_exception_aborts(autojump_clock: MockClock, cluster: Any, transactional: Any) -> None:
    """The exception is raised unchanged; nothing is committed, and the next transaction works."""
    async with transactional(linger_ms=0) as producer:
        await producer.init_transactions()

        async def fails() -> None:
            async with producer.transaction():
                await (await producer.send("one", b"lost"))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fails()
        async with producer.transaction():
            await producer.send("one", b"kept")
    coordinator = cluster.scripted.coordinator
    assert coordinator.transactions["x"].ended == [False, True]
    assert coordinator.committed[ONE] == [b"kept"]


async def test_undrained_records_fail_on_abort(
    autojump_clock: MockClock, cluster: Any, transactional: Any, level: int
) -> None:
    """Nobody waits for them: they are not in the log."""
    async with transactional(linger_ms=60_000) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        future = await producer.send("one", b"x")
        await trio.sleep(1)
        await producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            await future
    assert cluster.values("one") == []
    assert len(cluster.scripted.requests(EndTxnRequest)) == (1 if level == 1 else 0)  # added while it lingers


async def test_empty_transactions_cost_no_request(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """If nothing was added, the coordinator is not asked to end the transaction."""
    async with transactional() as producer:
        await producer.init_transactions()
        before = len(cluster.scripted.received)
        for _ in range(3):
            async with producer.transaction():
                pass
        await producer.begin_transaction()
        await producer.abort_transaction()
    assert names(cluster, before) == []


async def test_commit_sends_what_lingers(autojump_clock: MockClock, cluster: Any, transactional: Any) -> None:
    """As a flush does, and it waits for the answers."""
    async with transactional(linger_ms=60_000) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        future = await producer.send("one", b"x")
        start_ms = cluster.clock.now_ms()
        await producer.commit_transaction()
        assert future.succeeded()
        assert cluster.clock.now_ms() == start_ms


async def test_records_need_a_transaction(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """Before, between and after; nothing is queued, on no path."""
    async with transactional() as producer:
        for words in ("init_transactions", "begin_transaction", "begin_transaction"):
            with pytest.raises(IllegalStateError, match=words):
                await producer.send("one", b"x")
            with pytest.raises(IllegalStateError, match=words):
                producer.send_nowait("one", b"x")
            with pytest.raises(IllegalStateError, match=words):
                await producer.send_many("one", [b"x"])
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("one", b"in")
        assert producer.metrics()["producer-metrics"]["batches-incomplete"] == 0
    assert cluster.values("one") == [b"in"] * 3


async def test_records_take_the_fast_path_inside_a_transaction(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """The flag is set once for all records: the fast path takes them, and not outside."""
    async with transactional(linger_ms=1000) as producer:
        await producer.init_transactions()
        path = producer._path
        for _ in range(2):
            assert path.closed
            async with producer.transaction():
                await producer.send("one", b"first")
                assert not path.closed
                assert path.try_send("one", b"second") is not None
            assert path.try_send("one", b"late") is None


async def test_illegal_calls_change_nothing(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """Each says what state the producer is in; the transaction goes on."""
    async with transactional() as producer:
        for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(IllegalStateError, match="UNINITIALIZED"):
                await call()
        await producer.init_transactions()
        await producer.init_transactions()  # does nothing
        with pytest.raises(IllegalStateError, match="READY"):
            await producer.commit_transaction()
        with pytest.raises(IllegalStateError, match="READY"):
            await producer.send_offsets_to_transaction({("in", 0): 1}, "g")
        async with producer.transaction():
            with pytest.raises(IllegalStateError, match="IN_TRANSACTION"):
                await producer.begin_transaction()
            with pytest.raises(IllegalStateError, match="IN_TRANSACTION"):
                await producer.init_transactions()
            await producer.send("one", b"x")
    assert cluster.scripted.coordinator.committed[ONE] == [b"x"]


async def test_plain_producers_have_no_transactions(autojump_clock: MockClock, cluster: Any) -> None:
    """The option is named."""
    async with cluster.producer() as producer:
        with pytest.raises(IllegalStateError, match="transactional_id"):
            await producer.init_transactions()


async def test_a_refused_record_fails_the_transaction(
    autojump_clock: MockClock, cluster: Any, transactional: Any, level: int
) -> None:
    """Its cause is told by every call until the abort; then a new epoch, and all is well."""
    async with transactional(linger_ms=0) as producer:
        await producer.init_transactions()
        cluster.scripted.produce_script.append(Trouble(code=87))
        await producer.begin_transaction()
        future = await producer.send("one", b"bad")
        with pytest.raises(InvalidRecordError):
            await future
        for call in (
            producer.commit_transaction,
            lambda: producer.send("one", b"y"),
            lambda: producer.send_offsets_to_transaction({("in", 0): 1}, "g"),
            producer.begin_transaction,
        ):
            with pytest.raises((TransactionFailedError, IllegalStateError)):
                await call()
        with pytest.raises(TransactionFailedError) as caught:
            await producer.commit_transaction()
        assert isinstance(caught.value.__cause__, InvalidRecordError)
        assert caught.value.abortable
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("one", b"good")
    coordinator = cluster.scripted.coordinator
    assert coordinator.committed[ONE] == [b"good"]
    assert coordinator.transactions["x"].ended == [False, True]
    assert [header.base_sequence for header in cluster.scripted.logs[ONE].headers] == [0]
    bumps = [each for each in cluster.scripted.requests(InitProducerIdRequest) if each.producer_id >= 0]
    assert len(bumps) == (1 if level == 1 else 0)  # with KIP-890 EndTxn brings the epoch


async def test_a_failed_commit_aborts_the_block(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """The block raises why, and the producer is ready for the next one."""
    async with transactional() as producer:
        await producer.init_transactions()
        cluster.scripted.produce_script.append(Trouble(code=29))
        with pytest.raises(TransactionFailedError) as caught:
            async with producer.transaction():
                await producer.send("one", b"bad")
        assert isinstance(caught.value.__cause__, TopicAuthorizationFailedError)
        async with producer.transaction():
            await producer.send("one", b"good")
    assert cluster.scripted.coordinator.committed[ONE] == [b"good"]


async def test_a_newer_producer_fences(autojump_clock: MockClock, cluster: Any, transactional: Any) -> None:
    """The older one's transaction is aborted, its calls fail for good, and it can still be closed."""
    async with transactional() as old, transactional() as new:
        await old.init_transactions()
        await old.begin_transaction()
        await (await old.send("one", b"old"))
        await new.init_transactions()
        async with new.transaction():
            await new.send("two", b"new", partition=0)
        for call in (
            old.commit_transaction,
            old.begin_transaction,
            old.abort_transaction,
            old.init_transactions,
        ):
            with pytest.raises(ProducerFencedError, match="'x'"):
                await call()
        with pytest.raises(ProducerFencedError):
            await old.send("one", b"later")
    assert cluster.scripted.coordinator.transactions["x"].ended == [False, True]
    assert not cluster.scripted.coordinator.committed[ONE]


async def test_close_aborts_what_is_open(autojump_clock: MockClock, cluster: Any, transactional: Any) -> None:
    """What was sent is delivered, and not committed."""
    async with transactional(linger_ms=0) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        future = await producer.send("one", b"x")
    assert future.succeeded()
    assert cluster.scripted.coordinator.transactions["x"].ended == [False]


async def test_close_does_not_wait_for_ever_for_the_abort(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """The coordinator is away: close ends by ``delivery_timeout_ms``."""
    async with transactional(linger_ms=0, delivery_timeout_ms=40_000) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send("one", b"x"))
        cluster.scripted.coordinator.script[EndTxnRequest].extend([Trouble(code=14)] * 1000)
        start_ms = cluster.clock.now_ms()
    assert 39_000 < cluster.clock.now_ms() - start_ms < 41_000


async def test_a_call_ends_by_max_block_ms_and_goes_on_when_repeated(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """Other calls raise until then; the repeated one hears how it ended."""
    async with transactional(max_block_ms=1000) as producer:
        cluster.scripted.id_script.append(Trouble(delay_ms=1500))
        with pytest.raises(KafkaTimeoutError, match=r"init_transactions\(\) has not ended within 1000 ms"):
            await producer.init_transactions()
        with pytest.raises(IllegalStateError, match=r"init_transactions\(\) has not ended"):
            await producer.begin_transaction()
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("one", b"x")
        cluster.scripted.coordinator.script[EndTxnRequest].append(Trouble(delay_ms=1500))
        with pytest.raises(KafkaTimeoutError, match="COMMITTING"):
            await producer.commit_transaction()
        for call in (producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(IllegalStateError, match=r"commit_transaction\(\) has not ended"):
                await call()
        await trio.sleep(5)
        await producer.commit_transaction()  # it has ended meanwhile
        async with producer.transaction():
            pass
    assert cluster.scripted.coordinator.transactions["x"].ended == [True]


async def test_cancelled_calls_go_on(autojump_clock: MockClock, cluster: Any, transactional: Any) -> None:
    """Cancelling the wait does not stop the commit; a cancelled block is aborted unattended."""
    async with transactional() as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("one", b"x")
        cluster.scripted.coordinator.script[EndTxnRequest].append(Trouble(delay_ms=500))
        with trio.move_on_after(0.1):
            await producer.commit_transaction()
        await producer.commit_transaction()
        with trio.move_on_after(1):
            async with producer.transaction():
                await producer.send("one", b"y")
                await trio.sleep_forever()
        await trio.sleep(1)
        async with producer.transaction():
            await producer.send("one", b"z")
    assert cluster.scripted.coordinator.transactions["x"].ended == [True, False, True]
    assert cluster.scripted.coordinator.committed[ONE] == [b"x", b"z"]


async def test_a_cancelled_commit_locked_the_producer(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """Every later block said that commit_transaction() has not ended; no block can call it again."""
    async with transactional() as producer:
        await producer.init_transactions()
        cluster.scripted.coordinator.script[EndTxnRequest].append(Trouble(delay_ms=500))
        with trio.move_on_after(0.1) as scope:
            async with producer.transaction():
                await producer.send("one", b"x")
        assert scope.cancelled_caught
        for value in (b"y", b"z"):
            async with producer.transaction():
                await producer.send("one", value)
    assert cluster.scripted.coordinator.committed[ONE] == [b"x", b"y", b"z"]


async def test_a_record_that_waits_for_memory_does_not_outlive_its_transaction(
    cluster: Any, transactional: Any
) -> None:
    """It is not queued, least of all in the next transaction."""
    async with transactional(buffer_memory=20_000, batch_size=8_000, linger_ms=60_000) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        cluster.scripted.produce_script.append(Trouble(delay_ms=1000))
        await producer.send("one", b"." * 15_000)
        errors: list[BaseException] = []

        async def wait_in_vain() -> None:
            try:
                await producer.send("one", b"." * 15_000)
            except IllegalStateError as error:
                errors.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_in_vain)
            await trio.sleep(0.1)
            await producer.commit_transaction()
        assert "it is not queued" in str(errors[0])
        async with producer.transaction():
            await producer.send("one", b"next")
    assert [len(value) for value in cluster.values("one")] == [15_000, 4]


async def test_records_sent_from_callbacks_are_committed(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """Late records belong to the transaction in which they were sent; commit waits for them."""
    async with transactional(linger_ms=0) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        future = await producer.send("one", b"first")
        future.add_callback(lambda _metadata: producer.send_nowait("one", b"second"))
        await future
        await producer.commit_transaction()
    assert cluster.scripted.coordinator.committed[ONE] == [b"first", b"second"]
