"""Record batches: refused ones, and duplicates that are recognised."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from splashdam.model.broker_errors import ErrorCode
from splashdam.record.batch import HEADER, BatchHeader, Codec, crc_ok, parse_header, stamp_crc
from splashdam.record.compression import Compression, compress
from splashdam.record.kernel.building.varint import encode_varint
from splashdam.record.sealing import build_batch
from splashdam.testing.contract.behaviour import Run, behaviour, expect, expect_one_of
from splashdam.testing.contract.behaviours.produce import NOON_MS
from splashdam.testing.contract.raw_connection import RawConnection, leader_of, retried
from splashdam.testing.contract.vocabulary import PROTOCOL
from splashdam.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest
from splashdam.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

_MAGIC_AT = 16
_LAST_SEQUENCE = 2**31 - 1
_VERSION = 9
_FETCH_VERSION = 11
_HUGE = 2**31 - 1


class Answer(NamedTuple):
    """Produce's answer for a batch."""

    error: int
    base_offset: int


def batch_of(*values: bytes, **fields: Any) -> bytes:
    """Build a batch of these values; ``fields`` as in `build_batch`."""
    return build_batch([(NOON_MS, b"key", value, None) for value in values], **fields)


def request_with(
    topic: str, records: bytes | None, *, acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    """Build a Produce request for partition 0."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=10_000, topic_data=[data])


def produced(
    conn: RawConnection,
    topic: str,
    records: bytes | None,
    *,
    acks: int = -1,
    transactional_id: str | None = None,
    version: int = _VERSION,
) -> Answer:
    """Send a batch to partition 0 and return the answer."""
    request = request_with(topic, records, acks=acks, transactional_id=transactional_id)
    (answer,) = conn.ask(request, version).responses[0].partition_responses
    return Answer(answer.error_code, answer.base_offset)


def new_producer_id(conn: RawConnection) -> int:
    """Return a producer id that has written nothing."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    answer = retried(lambda: conn.ask(request, 3), lambda each: each.error_code)
    expect((answer.error_code, answer.producer_epoch), (0, 0), "error code and epoch")
    return answer.producer_id


@behaviour(PROTOCOL)
def damaged_bytes_are_refused(run: Run) -> None:
    """A batch with a wrong checksum is CORRUPT_MESSAGE, and nothing is written."""
    topic = run.topic()
    damaged = bytearray(batch_of(b"value"))
    damaged[-1] ^= 1
    with leader_of(run, topic) as conn:
        expect(produced(conn, topic, bytes(damaged)).error, ErrorCode.CORRUPT_MESSAGE, "error code")
    expect(run.helper.offsets(topic, "latest"), 0, "log end offset")


@behaviour(PROTOCOL)
def a_partition_gets_one_batch_at_a_time(run: Run) -> None:
    """Two batches for a partition, or a magic other than 2, are INVALID_RECORD."""
    topic = run.topic()
    one = batch_of(b"value")
    old = bytearray(one)
    old[_MAGIC_AT] = 1
    with leader_of(run, topic) as conn:
        expect(produced(conn, topic, one + one).error, ErrorCode.INVALID_RECORD, "error code of two batches")
        expect(produced(conn, topic, bytes(old)).error, ErrorCode.INVALID_RECORD, "error code of magic 1")
    expect(run.helper.offsets(topic, "latest"), 0, "log end offset")


@behaviour(PROTOCOL)
def acks_are_none_one_or_all(run: Run) -> None:
    """Any other acks is INVALID_REQUIRED_ACKS, and nothing is written."""
    topic = run.topic()
    with leader_of(run, topic) as conn:
        expect(
            produced(conn, topic, batch_of(b"value"), acks=7).error,
            ErrorCode.INVALID_REQUIRED_ACKS,
            "error code",
        )
    expect(run.helper.offsets(topic, "latest"), 0, "log end offset")


@behaviour(PROTOCOL)
def acks_0_are_not_answered(run: Run) -> None:
    """No byte is sent; the next answer belongs to the next request."""
    topic = run.topic()
    with leader_of(run, topic) as conn:
        conn.send_bytes(conn.frame(request_with(topic, batch_of(b"unanswered"), acks=0), _VERSION))
        expect(produced(conn, topic, batch_of(b"answered")), (0, 1), "error code and offset")


@behaviour(PROTOCOL)
def a_repeated_batch_gets_its_first_offset(run: Run) -> None:
    """The last five batches of an idempotent producer are recognised, and not written twice."""
    topic = run.topic()
    with leader_of(run, topic) as conn:
        who = new_producer_id(conn)
        batches = [
            batch_of(b"a", b"b", producer_id=who, producer_epoch=0, base_sequence=2 * number)
            for number in range(5)
        ]
        first = [produced(conn, topic, each) for each in batches]
        again = [produced(conn, topic, each) for each in batches]
    expect(first, [(0, 2 * number) for number in range(5)], "error codes and offsets")
    expect(again, first, "the second time")
    expect(run.helper.offsets(topic, "latest"), 10, "log end offset")


@behaviour(PROTOCOL)
def sequences_have_no_gap(run: Run) -> None:
    """A gap, and a batch older than the last five, are OUT_OF_ORDER_SEQUENCE_NUMBER."""
    topic = run.topic()
    with leader_of(run, topic) as conn:
        who = new_producer_id(conn)

        def send(sequence: int) -> int:
            records = batch_of(b"v", producer_id=who, producer_epoch=0, base_sequence=sequence)
            return produced(conn, topic, records).error

        expect([send(number) for number in range(6)], [0] * 6, "error codes")
        expect(send(7), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "error code of a gap")
        expect(send(0), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "error code of an older batch")
    expect(run.helper.offsets(topic, "latest"), 6, "log end offset")


@behaviour(PROTOCOL)
def a_new_epoch_begins_at_0_and_ends_the_old_one(run: Run) -> None:
    """A late batch of the old producer epoch is INVALID_PRODUCER_EPOCH."""
    topic = run.topic()
    with leader_of(run, topic) as conn:
        who = new_producer_id(conn)

        def send(epoch: int, sequence: int) -> int:
            records = batch_of(b"v", producer_id=who, producer_epoch=epoch, base_sequence=sequence)
            return produced(conn, topic, records).error

        expect(send(0, 0), 0, "error code")
        expect(
            send(1, 5), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "error code of a new epoch that begins at 5"
        )
        expect(send(1, 0), 0, "error code of a new epoch")
        expect(send(0, 1), ErrorCode.INVALID_PRODUCER_EPOCH, "error code of the old epoch")


@behaviour(PROTOCOL)
def sequences_wrap_around_to_0(run: Run) -> None:
    """A producer without state may begin at any sequence number; 0 follows 2^31-1."""
    topic = run.topic()
    with leader_of(run, topic) as conn:
        who = new_producer_id(conn)

        def send(sequence: int, *values: bytes) -> int:
            records = batch_of(*values, producer_id=who, producer_epoch=0, base_sequence=sequence)
            return produced(conn, topic, records).error

        expect(send(_LAST_SEQUENCE - 1, b"a"), 0, "error code of a producer that is not known")
        expect(send(_LAST_SEQUENCE, b"b", b"c"), 0, "error code of a batch across the end")
        expect(send(1, b"d"), 0, "error code of the next")
    expect(run.helper.offsets(topic, "latest"), 4, "log end offset")


def record_of(*fields: int | bytes, attributes: int = 0) -> bytes:
    """Build a record of any fields behind its attributes: numbers become varints, bytes are copied."""
    parts = [each if isinstance(each, bytes) else encode_varint(each) for each in fields]
    body = bytes([attributes]) + b"".join(parts)
    return encode_varint(len(body)) + body


def numbered(delta: int, *, time_delta: int = 0) -> bytes:
    """Build a valid record with an offset delta."""
    return record_of(time_delta, delta, 1, b"k", 1, b"v", 0)


def batch_around(records: bytes, count: int, codec: Codec = Codec.NONE, **fields: int) -> bytes:
    """Build a batch with a valid checksum around any bytes, compressed with ``codec``."""
    return batch_around_packed(compress(records, Compression(codec)), count, codec, **fields)


def batch_around_packed(packed: bytes, count: int, codec: Codec, **fields: int) -> bytes:
    """Build a batch with a valid checksum around bytes that the header calls compressed with ``codec``."""
    fields = {"attributes": int(codec), "last_offset_delta": count - 1, "record_count": count, **fields}
    sound = parse_header(batch_of(b"value"))
    header = sound._replace(batch_length=sound.batch_length - sound.size_bytes + HEADER.size + len(packed))
    made = bytearray(HEADER.pack(*header._replace(**fields)) + packed)
    stamp_crc(made, 0, len(made))
    return bytes(made)


def expect_errors(run: Run, batches: dict[str, bytes], *wanted: int) -> None:
    """Check that each batch is refused with one of these errors, and a valid batch still gets offset 0."""
    topic = run.topic()
    with leader_of(run, topic) as conn:
        for what, batch in batches.items():
            expect_one_of(produced(conn, topic, batch).error, wanted, f"error code of {what}")
        expect(produced(conn, topic, batch_of(b"sound")), (0, 0), "error code and offset of a sound one")
    expect([each.value for each in run.helper.fetch(topic, count=1)], [b"sound"], "what consumers read")


_GARBAGE = bytes.fromhex("2265b1f5917f4b2d11ad4ab9cde1b2c4cdb5ba84b0a5ce6e8a2ef2b51a07")
_TWO = numbered(0) + numbered(1)


@behaviour(PROTOCOL)
def garbage_for_records_is_refused(run: Run) -> None:
    """INVALID_RECORD under every codec, though header and checksum are valid: no reader could go on."""
    expect_errors(
        run, {f"{codec.name}": batch_around(_GARBAGE, 1, codec) for codec in Codec}, ErrorCode.INVALID_RECORD
    )


@behaviour(PROTOCOL)
def a_batch_holds_the_records_it_counts(run: Run) -> None:
    """INVALID_RECORD for more, fewer or no records, half a record, and bytes behind the last record."""
    kinds = {
        "a count that is too high": (_TWO, 3),
        "a count that is too low": (_TWO, 1),
        "a count of half a million": (_TWO, 500_000),
        "the largest count": (_TWO, _HUGE),
        "no records": (b"", 1),
        "a count of none": (_TWO, 0),
        "a cut record": (_TWO[:-2], 2),
        "a byte behind the last record": (_TWO + b"\0", 2),
    }
    batches = {
        f"{kind}, {codec.name}": batch_around(records, count, codec, last_offset_delta=max(0, count - 1))
        for kind, (records, count) in kinds.items()
        for codec in Codec
    }
    expect_errors(run, batches, ErrorCode.INVALID_RECORD)


@behaviour(PROTOCOL)
def the_last_offset_delta_is_that_of_the_count(run: Run) -> None:
    """Any other last offset delta is INVALID_RECORD, under every codec."""
    batches = {
        f"delta {delta}, {codec.name}": batch_around(_TWO, 2, codec, last_offset_delta=delta)
        for delta in (2, 0, -1, _HUGE)
        for codec in Codec
    }
    expect_errors(run, batches, ErrorCode.INVALID_RECORD)


@behaviour(PROTOCOL)
def fields_stay_within_their_record(run: Run) -> None:
    """INVALID_RECORD for lengths and counts that are negative or too large, and for a null header key."""
    kinds = {
        "a key beyond the end": record_of(0, 0, _HUGE, b"xyz"),
        "a value beyond the end": record_of(0, 0, -1, 99, b"four"),
        "a record of -1 bytes": encode_varint(-1) + bytes(20),
        "a record of no bytes": encode_varint(0) + bytes(20),
        "a record beyond the end": encode_varint(_HUGE) + bytes(20),
        "bytes that belong to no field": record_of(0, 0, -1, -1, 0, b"x"),
        "more headers than bytes": record_of(0, 0, -1, -1, _HUGE),
        "-1 headers": record_of(0, 0, -1, -1, -1),
        "a header that is not there": record_of(0, 0, -1, -1, 2, 1, b"k", -1),
        "a header without a key": record_of(0, 0, -1, -1, 1, -1, -1),
        "a header value beyond the end": record_of(0, 0, -1, -1, 1, 1, b"k", _HUGE),
        "a timestamp of more than 64 bits": record_of(b"\xff" * 10 + b"\x01", 0, -1, -1, 0),
        "an offset delta of six bytes": record_of(0, b"\x80" * 5 + b"\0", -1, -1, 0),
    }
    batches = {
        f"{kind}, {codec.name}": batch_around(record, 1, codec)
        for kind, record in kinds.items()
        for codec in Codec
    }
    expect_errors(run, batches, ErrorCode.INVALID_RECORD)


@behaviour(PROTOCOL)
def bytes_that_do_not_decompress_are_refused(run: Run) -> None:
    """The error is not retriable: INVALID_RECORD, or UNKNOWN_SERVER_ERROR, which is Kafka's."""
    batches = {}
    for codec in Codec:
        packed = compress(b"".join(map(numbered, range(500))), Compression(codec))
        if codec is not Codec.NONE:
            batches[f"garbage, {codec.name}"] = batch_around_packed(_GARBAGE, 2, codec)
            batches[f"plain bytes, {codec.name}"] = batch_around_packed(_TWO, 2, codec)
            batches[f"a cut end, {codec.name}"] = batch_around_packed(packed[:-5], 500, codec)
            batches[f"half of it, {codec.name}"] = batch_around_packed(packed[: len(packed) // 2], 500, codec)
    expect_errors(run, batches, ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR)


@behaviour(PROTOCOL)
def compressed_records_have_consecutive_deltas(run: Run) -> None:
    """Offset deltas of a compressed batch that jump, repeat or go back: an error that is not retriable."""
    deltas = ((0, 2), (0, 0), (1, 0), (5, 6), (-1, 0), (0, _HUGE))
    batches = {
        f"{each}, {codec.name}": batch_around(b"".join(map(numbered, each)), 2, codec)
        for each in deltas
        for codec in Codec
        if codec is not Codec.NONE
    }
    expect_errors(run, batches, ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR)


@behaviour(PROTOCOL)
def a_codec_that_does_not_exist_is_refused(run: Run) -> None:
    """UNSUPPORTED_COMPRESSION_TYPE, or UNKNOWN_SERVER_ERROR, which is Kafka's."""
    batches = {f"codec {number}": batch_around(_TWO, 2, attributes=number) for number in (5, 6, 7)}
    expect_errors(run, batches, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.UNKNOWN_SERVER_ERROR)


@behaviour(PROTOCOL)
def unusual_but_valid_records_are_accepted(run: Run) -> None:
    """Record attributes, overlong varints, and a base timestamp that no record has."""
    topic = run.topic()
    unusual = {
        "attributes": record_of(0, 0, 1, b"k", 1, b"v", 0, attributes=1),
        "a long number": record_of(0, b"\x80\0", 1, b"k", 1, b"v", 0),
        "a later time": numbered(0, time_delta=500),
    }
    with leader_of(run, topic) as conn:
        for what, record in unusual.items():
            for codec in Codec:
                batch = batch_around(record, 1, codec, max_timestamp=NOON_MS + (500 if "time" in what else 0))
                expect(produced(conn, topic, batch).error, 0, f"error code of {what}, {codec.name}")
    count = len(unusual) * len(Codec)
    read = run.helper.fetch(topic, count=count)
    expect([(each.offset, each.value) for each in read], [(at, b"v") for at in range(count)], "what is read")


def stored_header(conn: RawConnection, topic: str, offset: int) -> BatchHeader:
    """Fetch the batch at an offset, check its checksum, and return its header."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=1000,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )
    answer = conn.ask(request, _FETCH_VERSION).responses[0].partitions[0]
    records = answer.records
    assert isinstance(records, bytes | bytearray | memoryview)
    header = parse_header(records)
    expect(crc_ok(records, 0, header), True, "whether the checksum is right")
    return header


@behaviour(PROTOCOL)
def a_wrong_maximum_timestamp_is_corrected(run: Run) -> None:
    """The stored header has the largest timestamp of its records, whatever the producer sent."""
    topic = run.topic()
    records = numbered(0) + numbered(1, time_delta=500) + numbered(2)
    with leader_of(run, topic) as conn:
        for codec in Codec:
            for claimed in (NOON_MS, NOON_MS + 99_999, -1, -(2**63)):
                answer = produced(conn, topic, batch_around(records, 3, codec, max_timestamp=claimed))
                expect(answer.error, 0, f"error code, {codec.name}")
                header = stored_header(conn, topic, answer.base_offset)
                expect(header.max_timestamp, NOON_MS + 500, f"maximum timestamp for {claimed}, {codec.name}")


@behaviour(PROTOCOL)
def header_keys_may_be_any_bytes(run: Run) -> None:
    """A record with a header key that is not UTF-8 is stored unchanged and can be read."""
    topic = run.topic()
    record = record_of(0, 0, 1, b"k", 1, b"v", 1, 2, b"\xff\xfe", 1, b"h")
    with leader_of(run, topic) as conn:
        for number, codec in enumerate(Codec):
            sent = batch_around(record, 1, codec)
            expect(produced(conn, topic, sent), (0, number), f"error code and offset, {codec.name}")
            stored = stored_header(conn, topic, number)
            expect(stored.crc, parse_header(sent).crc, f"checksum, {codec.name}")
    read = run.helper.fetch(topic, count=len(Codec))
    expect([each.value for each in read], [b"v"] * len(Codec), "what is read")


@behaviour(PROTOCOL)
def the_topic_decides_the_timestamp_type(run: Run) -> None:
    """A producer's LogAppendTime bit is no error: a topic with CreateTime stores the batch without it."""
    topic = run.topic()
    records = numbered(0) + numbered(1, time_delta=500)
    with leader_of(run, topic) as conn:
        for codec in Codec:
            sent = batch_around(records, 2, codec, attributes=codec | 8, max_timestamp=NOON_MS + 700)
            answer = produced(conn, topic, sent)
            expect(answer.error, 0, f"error code, {codec.name}")
            header = stored_header(conn, topic, answer.base_offset)
            expect(header.attributes, int(codec), f"attributes, {codec.name}")
            # Kafka keeps the producer's maximum here; the maximum of the records is right as well.
            expect_one_of(header.max_timestamp - NOON_MS, (500, 700), f"maximum timestamp, {codec.name}")


@behaviour(PROTOCOL)
def invalid_records_are_listed_by_index(run: Run) -> None:
    """By index: records without a key on a compacted topic, and records that are too old (KIP-467)."""
    topic = run.topic(cleanup_policy="compact", message_timestamp_before_max_ms=str(10**9))
    now_ms = int(time.time() * 1000)
    old_ms = now_ms - 2 * 10**9
    good, keyless, old = (now_ms, b"k"), (now_ms, None), (old_ms, b"k")
    kinds = {
        ErrorCode.INVALID_RECORD: ([good, keyless, good, keyless], [1, 3]),
        ErrorCode.INVALID_TIMESTAMP: ([old, good, keyless, old], [0, 2, 3]),
    }
    with leader_of(run, topic) as conn:
        for error, (records, numbers) in kinds.items():
            for codec in Codec:
                made = build_batch([(ms, key, b"v", None) for ms, key in records], Compression(codec))
                (answer,) = conn.ask(request_with(topic, made), _VERSION).responses[0].partition_responses
                named = [each.batch_index for each in answer.record_errors]
                expect((answer.error_code, named), (error, numbers), f"error and numbers, {codec.name}")
    expect(run.helper.offsets(topic, "latest"), 0, "log end offset")
