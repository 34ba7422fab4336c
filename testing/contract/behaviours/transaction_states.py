"""Transactions between producer, coordinator and partition, request by request."""

from __future__ import annotations

from typing import NamedTuple

from splashdam.model.broker_errors import ErrorCode
from splashdam.testing.contract.behaviour import Run, behaviour, expect
from splashdam.testing.contract.behaviours.batches import batch_of, produced
from splashdam.testing.contract.behaviours.fetching import fetch_of, fetched, offset_at
from splashdam.testing.contract.behaviours.produce import values
from splashdam.testing.contract.raw_connection import (
    TRANSACTION,
    RawConnection,
    coordinator_of,
    leader_of,
    retried,
)
from splashdam.testing.contract.vocabulary import PROTOCOL
from splashdam.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from splashdam.wire.messages.end_txn import EndTxnRequest
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest

READ_COMMITTED = 1


class Producer(NamedTuple):
    """A transactional producer."""

    transactional_id: str
    producer_id: int
    epoch: int


def initialized(conn: RawConnection, transactional_id: str, timeout_ms: int = 60_000) -> tuple[int, Producer]:
    """Send InitProducerId; return the error code and the producer."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    answer = retried(lambda: conn.ask(request, 4), lambda each: each.error_code)
    return answer.error_code, Producer(transactional_id, answer.producer_id, answer.producer_epoch)


def added(conn: RawConnection, producer: Producer, topic: str) -> int:
    """Add partition 0 of a topic to the transaction; return the error code."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )

    def code(answer: AddPartitionsToTxnResponse) -> int:
        return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    return code(retried(lambda: conn.ask(request, 3), code))


def ended(conn: RawConnection, producer: Producer, *, committed: bool) -> int:
    """Send EndTxn; return the error code."""
    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=committed,
    )
    return retried(lambda: conn.ask(request, 3), lambda each: each.error_code).error_code


def written(conn: RawConnection, producer: Producer, topic: str, sequence: int = 0) -> int:
    """Produce a transactional batch; return the error code."""
    records = batch_of(
        b"v",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=True,
    )
    return produced(conn, topic, records, transactional_id=producer.transactional_id).error


@behaviour(PROTOCOL)
def an_open_transaction_holds_up_read_committed(run: Run) -> None:
    """read_committed ends at the last stable offset; an aborted transaction is listed in Fetch."""
    topic, transactional_id = run.topic(), run.name()
    with coordinator_of(run, transactional_id, TRANSACTION) as conn, leader_of(run, topic) as leader:
        _, producer = initialized(conn, transactional_id)
        expect(added(conn, producer, topic), 0, "error code of AddPartitionsToTxn")
        expect(written(leader, producer, topic), 0, "error code of Produce")
        run.helper.produce(topic, values("outside"))
        expect(offset_at(leader, topic, -1).offset, 2, "latest")
        expect(offset_at(leader, topic, -1, isolation_level=READ_COMMITTED).offset, 0, "last stable offset")
        expect(ended(conn, producer, committed=False), 0, "error code of EndTxn")
        run.eventually(lambda: expect(committed_end(leader, topic), 3, "last stable offset after the abort"))
        request = fetch_of(topic, 0)
        request.isolation_level = READ_COMMITTED
        aborted = fetched(leader, request).aborted_transactions
    named = [(each.producer_id, each.first_offset) for each in aborted]
    expect(named, [(producer.producer_id, 0)], "aborted transactions")


def committed_end(leader: RawConnection, topic: str) -> int:
    """Return the last stable offset."""
    offset: int = offset_at(leader, topic, -1, isolation_level=READ_COMMITTED).offset
    return offset


@behaviour(PROTOCOL)
def a_second_producer_fences_the_first(run: Run) -> None:
    """The first producer's transaction is aborted, and its requests are PRODUCER_FENCED."""
    topic, transactional_id = run.topic(), run.name()
    with coordinator_of(run, transactional_id, TRANSACTION) as conn, leader_of(run, topic) as leader:
        _, first = initialized(conn, transactional_id)
        expect(added(conn, first, topic), 0, "error code of AddPartitionsToTxn")
        expect(written(leader, first, topic), 0, "error code of Produce")
        error, second = initialized(conn, transactional_id)
        expect((error, second.producer_id), (0, first.producer_id), "error code and producer id")
        expect(second.epoch > first.epoch, True, "a later epoch")
        expect(
            added(conn, first, topic), ErrorCode.PRODUCER_FENCED, "error code of AddPartitionsToTxn, fenced"
        )
        expect(ended(conn, first, committed=True), ErrorCode.PRODUCER_FENCED, "error code of EndTxn, fenced")
        run.eventually(lambda: expect(committed_end(leader, topic), 2, "last stable offset"))
        fenced = written(leader, first, topic, 1)
        expect(fenced, ErrorCode.INVALID_PRODUCER_EPOCH, "error code of Produce, fenced")


@behaviour(PROTOCOL)
def a_transaction_ends_once(run: Run) -> None:
    """The same EndTxn again succeeds; the opposite, or one without a transaction, is INVALID_TXN_STATE."""
    topic, transactional_id = run.topic(), run.name()
    with coordinator_of(run, transactional_id, TRANSACTION) as conn:
        _, producer = initialized(conn, transactional_id)
        expect(
            ended(conn, producer, committed=True),
            ErrorCode.INVALID_TXN_STATE,
            "error code without a beginning",
        )
        expect(added(conn, producer, topic), 0, "error code of AddPartitionsToTxn")
        expect(ended(conn, producer, committed=True), 0, "error code")
        expect(ended(conn, producer, committed=True), 0, "error code of the same again")
        expect(
            ended(conn, producer, committed=False), ErrorCode.INVALID_TXN_STATE, "error code of the other end"
        )


@behaviour(PROTOCOL)
def a_transactional_id_belongs_to_one_producer(run: Run) -> None:
    """Another producer id, or an unknown transactional id, is INVALID_PRODUCER_ID_MAPPING."""
    topic, transactional_id = run.topic(), run.name()
    with coordinator_of(run, transactional_id, TRANSACTION) as conn:
        _, producer = initialized(conn, transactional_id)
        stranger = producer._replace(producer_id=producer.producer_id + 1_000_000)
        expect(
            added(conn, stranger, topic),
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "error code of another producer",
        )
        unknown = producer._replace(transactional_id=f"{transactional_id}-unknown")
        expect(
            added(conn, unknown, topic), ErrorCode.INVALID_PRODUCER_ID_MAPPING, "error code of an unknown id"
        )


@behaviour(PROTOCOL)
def transactional_ids_and_their_timeouts_are_checked(run: Run) -> None:
    """Empty id: INVALID_REQUEST; above transaction.max.timeout.ms: INVALID_TRANSACTION_TIMEOUT."""
    transactional_id = run.name()
    with coordinator_of(run, transactional_id, TRANSACTION) as conn:
        expect(initialized(conn, "")[0], ErrorCode.INVALID_REQUEST, "error code of the empty id")
        error, _ = initialized(conn, transactional_id, timeout_ms=2**31 - 1)
        expect(error, ErrorCode.INVALID_TRANSACTION_TIMEOUT, "error code of the time-out")


@behaviour(PROTOCOL)
def a_partition_must_be_added_to_the_transaction(run: Run) -> None:
    """A batch for a partition that was not added is INVALID_TXN_STATE; nothing is written."""
    topic, transactional_id = run.topic(), run.name()
    with coordinator_of(run, transactional_id, TRANSACTION) as conn, leader_of(run, topic) as leader:
        _, producer = initialized(conn, transactional_id)
        expect(written(leader, producer, topic), ErrorCode.INVALID_TXN_STATE, "error code")
    expect(run.helper.offsets(topic, "latest"), 0, "log end offset")
