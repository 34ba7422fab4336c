"""Record batches as producers send them: what is refused, and what is recognised."""

from __future__ import annotations

from typing import Any, NamedTuple

from splashdam.record.sealing import build_batch
from splashdam.testing.contract.behaviour import Run, behaviour, expect
from splashdam.testing.contract.behaviours.produce import NOON_MS
from splashdam.testing.contract.conversation import Conversation, leader_of, retried
from splashdam.testing.contract.vocabulary import SPEAK
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest
from splashdam.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

CORRUPT_MESSAGE = 2
INVALID_REQUIRED_ACKS = 21
INVALID_RECORD = 87
OUT_OF_ORDER_SEQUENCE = 45
INVALID_PRODUCER_EPOCH = 47

_MAGIC_AT = 16
_LAST_SEQUENCE = 2**31 - 1
_VERSION = 9


class Answer(NamedTuple):
    """What Produce says of a batch."""

    error: int
    base_offset: int


def batch_of(*values: bytes, **fields: Any) -> bytes:
    """A batch with these values; fields as `build_batch` has them."""
    return build_batch([(NOON_MS, b"key", value, None) for value in values], **fields)


def request_with(
    topic: str, records: bytes | None, *, acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    """A Produce request for partition 0."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=10_000, topic_data=[data])


def produced(
    talk: Conversation,
    topic: str,
    records: bytes | None,
    *,
    acks: int = -1,
    transactional_id: str | None = None,
    version: int = _VERSION,
) -> Answer:
    """Sends one batch to partition 0."""
    request = request_with(topic, records, acks=acks, transactional_id=transactional_id)
    (answer,) = talk.ask(request, version).responses[0].partition_responses
    return Answer(answer.error_code, answer.base_offset)


def new_producer_id(talk: Conversation) -> int:
    """One that nobody has used."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    answer = retried(lambda: talk.ask(request, 3), lambda each: each.error_code)
    expect((answer.error_code, answer.producer_epoch), (0, 0), "error code and epoch")
    return answer.producer_id


@behaviour(SPEAK)
def damaged_bytes_are_refused(run: Run) -> None:
    """CORRUPT_MESSAGE where the checksum is wrong, and nothing is written."""
    topic = run.topic()
    damaged = bytearray(batch_of(b"value"))
    damaged[-1] ^= 1
    with leader_of(run, topic) as talk:
        expect(produced(talk, topic, bytes(damaged)).error, CORRUPT_MESSAGE, "error code")
    expect(run.helper.offsets(topic, "latest"), 0, "log end offset")


@behaviour(SPEAK)
def a_partition_gets_one_batch_at_a_time(run: Run) -> None:
    """Two of them, or another magic than 2, are INVALID_RECORD."""
    topic = run.topic()
    one = batch_of(b"value")
    old = bytearray(one)
    old[_MAGIC_AT] = 1
    with leader_of(run, topic) as talk:
        expect(produced(talk, topic, one + one).error, INVALID_RECORD, "error code of two batches")
        expect(produced(talk, topic, bytes(old)).error, INVALID_RECORD, "error code of magic 1")
    expect(run.helper.offsets(topic, "latest"), 0, "log end offset")


@behaviour(SPEAK)
def acks_are_none_one_or_all(run: Run) -> None:
    """Anything else is INVALID_REQUIRED_ACKS, and nothing is written."""
    topic = run.topic()
    with leader_of(run, topic) as talk:
        expect(produced(talk, topic, batch_of(b"value"), acks=7).error, INVALID_REQUIRED_ACKS, "error code")
    expect(run.helper.offsets(topic, "latest"), 0, "log end offset")


@behaviour(SPEAK)
def acks_0_are_not_answered(run: Run) -> None:
    """Not a byte; the next answer belongs to the next request."""
    topic = run.topic()
    with leader_of(run, topic) as talk:
        talk.send_bytes(talk.frame(request_with(topic, batch_of(b"unanswered"), acks=0), _VERSION))
        expect(produced(talk, topic, batch_of(b"answered")), (0, 1), "error code and offset")


@behaviour(SPEAK)
def a_batch_that_comes_again_has_its_first_offset(run: Run) -> None:
    """An idempotent producer may send its last five batches again: they are not written twice."""
    topic = run.topic()
    with leader_of(run, topic) as talk:
        who = new_producer_id(talk)
        batches = [
            batch_of(b"a", b"b", producer_id=who, producer_epoch=0, base_sequence=2 * number)
            for number in range(5)
        ]
        first = [produced(talk, topic, each) for each in batches]
        again = [produced(talk, topic, each) for each in batches]
    expect(first, [(0, 2 * number) for number in range(5)], "error codes and offsets")
    expect(again, first, "the second time")
    expect(run.helper.offsets(topic, "latest"), 10, "log end offset")


@behaviour(SPEAK)
def sequences_have_no_gap(run: Run) -> None:
    """One that leaves numbers out, and one that is older than the last five, are out of order."""
    topic = run.topic()
    with leader_of(run, topic) as talk:
        who = new_producer_id(talk)

        def send(sequence: int) -> int:
            records = batch_of(b"v", producer_id=who, producer_epoch=0, base_sequence=sequence)
            return produced(talk, topic, records).error

        expect([send(number) for number in range(6)], [0] * 6, "error codes")
        expect(send(7), OUT_OF_ORDER_SEQUENCE, "error code of a gap")
        expect(send(0), OUT_OF_ORDER_SEQUENCE, "error code of what is long past")
    expect(run.helper.offsets(topic, "latest"), 6, "log end offset")


@behaviour(SPEAK)
def a_new_epoch_begins_at_0_and_ends_the_old_one(run: Run) -> None:
    """INVALID_PRODUCER_EPOCH for what comes late from the old one."""
    topic = run.topic()
    with leader_of(run, topic) as talk:
        who = new_producer_id(talk)

        def send(epoch: int, sequence: int) -> int:
            records = batch_of(b"v", producer_id=who, producer_epoch=epoch, base_sequence=sequence)
            return produced(talk, topic, records).error

        expect(send(0, 0), 0, "error code")
        expect(send(1, 5), OUT_OF_ORDER_SEQUENCE, "error code of a new epoch that begins at 5")
        expect(send(1, 0), 0, "error code of a new epoch")
        expect(send(0, 1), INVALID_PRODUCER_EPOCH, "error code of the old epoch")


@behaviour(SPEAK)
def sequences_begin_anew_after_the_largest(run: Run) -> None:
    """A producer that the partition does not know may begin anywhere; behind 2^31-1 comes 0."""
    topic = run.topic()
    with leader_of(run, topic) as talk:
        who = new_producer_id(talk)

        def send(sequence: int, *values: bytes) -> int:
            records = batch_of(*values, producer_id=who, producer_epoch=0, base_sequence=sequence)
            return produced(talk, topic, records).error

        expect(send(_LAST_SEQUENCE - 1, b"a"), 0, "error code of a producer that is not known")
        expect(send(_LAST_SEQUENCE, b"b", b"c"), 0, "error code of a batch across the end")
        expect(send(1, b"d"), 0, "error code of the next")
    expect(run.helper.offsets(topic, "latest"), 4, "log end offset")
