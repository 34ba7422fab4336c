"""What fails a transaction, what does not, and what is left behind for the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from support.scripted.cluster import Trouble
from trio.testing import MockClock

from splashdam.client.producer import KafkaProducer
from splashdam.model.broker_errors import (
    InvalidProducerEpochError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    UnknownProducerIdError,
    UnsupportedVersionError,
)
from splashdam.model.errors import IllegalStateError, KafkaTimeoutError, TransactionFailedError
from splashdam.model.transactions import ConsumerGroupMetadata
from splashdam.model.values import TopicPartition
from splashdam.sender.transactions.manager import TransactionState
from splashdam.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from splashdam.wire.messages.end_txn import EndTxnRequest
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest
from splashdam.wire.messages.produce import ProduceRequest
from splashdam.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

ONE = TopicPartition("one", 0)


def starts_at(cluster: Any, monkeypatch: pytest.MonkeyPatch, log_start_offset: int) -> None:
    """The broker says that its logs start there."""
    usual = cluster.scripted.respond

    def respond(broker: Any, message: Any, version: int, trouble: Any) -> Any:
        response = usual(broker, message, version, trouble)
        if isinstance(message, ProduceRequest):
            for topic in response.responses:
                for each in topic.partition_responses:
                    each.log_start_offset = log_start_offset
        return response

    monkeypatch.setattr(cluster.scripted, "respond", respond)


@pytest.mark.parametrize("code", [2, 3, 6, 7, 19, 56])
async def test_retriable_errors_do_not_fail_it(
    autojump_clock: MockClock, cluster: Any, transactional: Any, code: int
) -> None:
    """The batch is repeated with its numbers, and committed."""
    async with transactional() as producer:
        await producer.init_transactions()
        cluster.scripted.produce_script.extend([Trouble(code=code)] * 2)
        async with producer.transaction():
            await producer.send("one", b"x")
    assert cluster.scripted.coordinator.committed[ONE] == [b"x"]


async def test_an_answer_that_is_lost_does_not_fail_it(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """A lost response, to Produce or of a coordinator, does not fail the transaction."""
    async with transactional() as producer:
        await producer.init_transactions()
        script = cluster.scripted.coordinator.script
        for kind in (AddPartitionsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest):
            script[kind].append(Trouble(then="hang_up"))
        cluster.scripted.produce_script.append(Trouble(then="hang_up"))
        async with producer.transaction():
            await producer.send("one", b"x")
            await producer.send_offsets_to_transaction({("in", 0): 1}, "g")
    assert cluster.scripted.coordinator.committed[ONE] == [b"x"]
    assert cluster.scripted.coordinator.transactions["x"].ended == [True]


async def test_a_gap_fails_it(autojump_clock: MockClock, cluster: Any, transactional: Any) -> None:
    """45 for the lowest batch: a plain idempotent producer would go on under a new epoch."""
    async with transactional(linger_ms=0) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("one", b"before")
        await producer.begin_transaction()
        cluster.scripted.produce_script.append(Trouble(code=45))
        with pytest.raises(OutOfOrderSequenceNumberError):
            await (await producer.send("one", b"x"))
        with pytest.raises(TransactionFailedError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("one", b"after")
    assert cluster.scripted.coordinator.committed[ONE] == [b"before", b"after"]


async def test_behind_a_refused_batch_nothing_is_written(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """Those on the wire are refused for their numbers, and the abort does not wait for them for ever."""
    async with transactional(linger_ms=0, batch_size=0) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("one", b"before")
        await producer.begin_transaction()
        cluster.scripted.produce_script.append(Trouble(code=87, delay_ms=50))
        futures = [await producer.send("one", b"%d" % number) for number in range(4)]
        await trio.sleep(0.2)
        with pytest.raises(TransactionFailedError, match="InvalidRecord"):
            await producer.commit_transaction()
        start_ms = cluster.clock.now_ms()
        await producer.abort_transaction()
        assert cluster.clock.now_ms() - start_ms < 500
        assert all(future.failed() for future in futures)
        async with producer.transaction():
            await producer.send("one", b"after")
    assert cluster.values("one") == [b"before", b"after"]


@pytest.mark.parametrize(
    ("log_start_offset", "fails"),
    [(-1, False), (0, True), (5, False)],
    ids=["unknown", "nothing deleted", "all deleted"],
)
async def test_a_forgotten_producer(
    autojump_clock: MockClock,
    cluster: Any,
    transactional: Any,
    monkeypatch: pytest.MonkeyPatch,
    *,
    log_start_offset: int,
    fails: bool,
) -> None:
    """59: retention took all its records, so it may begin at 0 again; otherwise something is wrong."""
    async with transactional(linger_ms=0) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send("one", b"before"))
        starts_at(cluster, monkeypatch, log_start_offset)
        cluster.scripted.produce_script.append(Trouble(code=59))
        if log_start_offset > 0:
            cluster.scripted.logs[ONE].forget_producers()
        future = await producer.send("one", b"x")
        if fails:
            with pytest.raises(UnknownProducerIdError):
                await future
            await producer.abort_transaction()
        else:
            await future
            await producer.commit_transaction()
    ended = cluster.scripted.coordinator.transactions["x"].ended
    assert ended == [not fails]
    numbers = [header.base_sequence for header in cluster.scripted.logs[ONE].headers]
    assert numbers == ([0] if fails else [0, 0] if log_start_offset > 0 else [0, 1])


async def test_an_expired_batch_fails_it(autojump_clock: MockClock, cluster: Any, transactional: Any) -> None:
    """The abort waits for the late answer, so that nothing is written behind the marker."""
    async with transactional(
        linger_ms=0, request_timeout_ms=1000, delivery_timeout_ms=1000, max_block_ms=10_000
    ) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send("one", b"x"))
        cluster.scripted.produce_script.append(Trouble(delay_ms=999.5, then="silence"))
        with pytest.raises(KafkaTimeoutError):
            await (await producer.send("one", b"y"))
        with pytest.raises(TransactionFailedError, match="delivery_timeout_ms"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("one", b"z")
    ends = [each for each in cluster.scripted.received if isinstance(each.message, EndTxnRequest)]
    assert [end.message.committed for end in ends] == [False, True]
    assert cluster.scripted.coordinator.committed[ONE] == [b"z"]


async def test_a_partition_that_is_being_added_holds_up_no_other(
    autojump_clock: MockClock, cluster: Any, transactional: Any, level: int
) -> None:
    """Other partitions of the same node are sent while the coordinator takes its time."""
    async with transactional(linger_ms=0) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send("two", b"a", partition=0))
        trouble = Trouble(code=51)
        cluster.scripted.coordinator.script[AddPartitionsToTxnRequest].extend([trouble] * 5)
        held = await producer.send("two", b"b", partition=1)
        start_ms = cluster.clock.now_ms()
        await (await producer.send("two", b"c", partition=0))
        assert cluster.clock.now_ms() == start_ms
        assert level == 2 or not held.is_done
        await producer.commit_transaction()
        assert held.succeeded()


async def test_a_fatal_produce_error_ends_the_producer(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """90 in an answer to Produce: fenced, as by a coordinator."""
    async with transactional(linger_ms=0) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        cluster.scripted.produce_script.append(Trouble(code=90))
        with pytest.raises(ProducerFencedError):
            await (await producer.send("one", b"x"))
        for call in (producer.commit_transaction, producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(ProducerFencedError):
                await call()


async def test_a_fatal_produce_error_ended_the_producer_after_its_records_failed(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """A commit between the two was told that the transaction can be aborted."""
    async with transactional(linger_ms=0) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        cluster.scripted.produce_script.append(Trouble(code=90))
        states = []
        future = await producer.send("one", b"x")
        future.add_errback(lambda _: states.append(producer._core.sender.transactions.state))
        with pytest.raises(ProducerFencedError):
            await future
        assert states == [TransactionState.FATAL_ERROR]


async def test_47_in_a_produce_answer_only_fails_the_transaction(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """Since Kafka 2.7 only a coordinator's response means that the producer is fenced."""
    async with transactional(linger_ms=0) as producer:
        await producer.init_transactions()
        cluster.scripted.produce_script.append(Trouble(code=47))
        with pytest.raises(TransactionFailedError):
            async with producer.transaction():
                await producer.send("one", b"x")
        async with producer.transaction():
            await producer.send("one", b"y")
    assert cluster.scripted.coordinator.committed[ONE] == [b"y"]


async def test_the_remedy_of_47_did_not_say_what_to_do_without_a_transaction(
    autojump_clock: MockClock, cluster: Any
) -> None:
    """There was nothing to abort; as in Java, the next record is sent with a new epoch."""
    async with cluster.producer(linger_ms=0) as producer:
        await (await producer.send("one", b"x", partition=0))
        cluster.scripted.produce_script.append(Trouble(code=47))
        with pytest.raises(InvalidProducerEpochError, match="Without transactions, send the record again"):
            await (await producer.send("one", b"y", partition=0))
        assert (await (await producer.send("one", b"y", partition=0))).offset == 1


def test_the_remedy_of_47_was_to_abort_where_that_raises(tmp_path: Path) -> None:
    """It says what to do then: a newer producer has taken over, as in Java."""
    options: dict[str, Any] = {"bootstrap_servers": f"embedded:{tmp_path}", "transactional_id": "x"}
    with KafkaProducer(**options) as old, KafkaProducer(**options) as new:
        old.init_transactions()
        old.begin_transaction()
        new.init_transactions()
        with pytest.raises(InvalidProducerEpochError, match="if that raises ProducerFencedError"):
            old.send("t", b"v").get(60)
        with pytest.raises(ProducerFencedError, match="What to do: make a new producer"):
            old.abort_transaction()


async def test_brokers_before_2_5_give_no_new_epoch(
    autojump_clock: MockClock, cluster: Any, transactional: Any, level: int
) -> None:
    """Numbers that were certainly not used are taken back after the abort."""
    cluster.scripted.spoken[InitProducerIdRequest] = (0, 2)
    cluster.scripted.features["transaction.version"] = 0
    async with transactional(linger_ms=0) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("one", b"a")
        cluster.scripted.produce_script.append(Trouble(code=87))
        with pytest.raises(TransactionFailedError):
            async with producer.transaction():
                await producer.send("one", b"bad")
        async with producer.transaction():
            await producer.send("one", b"b")
    numbers = [(each.producer_epoch, each.base_sequence) for each in cluster.scripted.logs[ONE].headers]
    assert numbers == [(0, 0), (0, 1)]


async def test_brokers_before_2_5_do_not_know_members(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """The way out is named: the group alone."""
    cluster.scripted.spoken[TxnOffsetCommitRequest] = (0, 2)
    cluster.scripted.features["transaction.version"] = 0
    async with transactional() as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        with pytest.raises(TransactionFailedError, match="give the group's name alone") as caught:
            await producer.send_offsets_to_transaction({("in", 0): 1}, ConsumerGroupMetadata("g", 3, "me"))
        assert isinstance(caught.value.__cause__, UnsupportedVersionError)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_offsets_to_transaction({("in", 0): 1}, "g")


async def test_a_broker_without_transactions(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """It is said at once, by init_transactions."""
    del cluster.scripted.spoken[InitProducerIdRequest]
    async with transactional() as producer:
        with pytest.raises(UnsupportedVersionError, match="InitProducerId"):
            await producer.init_transactions()


async def test_a_timeout_says_what_it_waited_for(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """The coordinator's last answer, or why no broker could be reached."""
    async with transactional(max_block_ms=2000) as producer:
        cluster.scripted.id_script.extend([Trouble(code=51)] * 50)
        with pytest.raises(KafkaTimeoutError, match=r"INITIALIZING: call it again.*\[51 ConcurrentTrans"):
            await producer.init_transactions()
        cluster.network.refuse("node-1", 9092)
        cluster.network.drop("node-1", 9092)
        with pytest.raises(KafkaTimeoutError, match=r"INITIALIZING: .*(refused|closed|broke)"):
            await producer.init_transactions()
        cluster.network.refuse("node-1", 9092, refusing=False)
        cluster.scripted.id_script.clear()
        await producer.init_transactions()


async def test_a_request_that_cannot_be_made_fails_waiting_records_at_once(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """It is found out late in a turn of the sender: without another turn they lingered on in a lost cause."""
    cluster.scripted.spoken[TxnOffsetCommitRequest] = (0, 2)
    cluster.scripted.features["transaction.version"] = 0
    async with transactional(linger_ms=60_000) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({("in", 0): 1}, "g")
        future = await producer.send("one", b"x")
        await trio.sleep(1)  # its partition is in the transaction, and nothing is under way
        start_ms = cluster.clock.now_ms()
        with pytest.raises(TransactionFailedError):
            await producer.send_offsets_to_transaction({("in", 0): 1}, ConsumerGroupMetadata("g", 3, "me"))
        with pytest.raises(UnsupportedVersionError):
            await future
        assert cluster.clock.now_ms() - start_ms < 1000


async def test_an_illegal_call_says_what_to_do_instead(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """The message does not name the state table's event: 'cannot BEGIN' helped nobody."""
    async with transactional() as producer:
        for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(
                IllegalStateError, match=rf"{call.__name__}\(\) .*: call init_transactions\(\)"
            ):
                await call()
        await producer.init_transactions()
        with pytest.raises(IllegalStateError, match=r"abort_transaction\(\) .*: call begin_transaction\(\)"):
            await producer.abort_transaction()
        async with producer.transaction():
            with pytest.raises(IllegalStateError, match=r"begin_transaction\(\) .*: commit or abort"):
                await producer.begin_transaction()
