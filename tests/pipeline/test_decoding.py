"""Batches into Arrow's record batches, compared with the reader that makes one object of each record."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pipeline.pipeline_kit import WHERE, PartitionLog, Row, rows_of

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import UnsupportedCodecError
from splashdam.pipeline.schema import HEADERS, Columns, all_columns
from splashdam.record.batch import Codec
from splashdam.record.compression import Compression, compress
from splashdam.record.stored import iter_stored_headers

pa = pytest.importorskip("pyarrow", reason="needs splashdam[spark]")
decoding = pytest.importorskip("splashdam.pipeline.decoding", reason="needs splashdam[spark]")

EVERYTHING = all_columns(True)
LATEST_US = (2**63 - 1) // 1000 * 1000
BLOB = st.none() | st.binary(max_size=30)
PAIRS = st.lists(st.tuples(st.text(max_size=5), BLOB), max_size=3)
TIMES = st.integers(-(2**50), 2**50)
RECORDS = st.lists(st.tuples(TIMES, BLOB, BLOB, PAIRS), min_size=1, max_size=8)
PRODUCERS = st.sampled_from((-1, -1, 7, 8))


def message(magic: int, attributes: int, value: bytes, offset: int = 0) -> bytes:
    """An entry of format 0 or 1."""
    time = struct.pack(">q", 5000) if magic else b""
    body = struct.pack(">bb", magic, attributes) + time + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(count: int, attributes: int) -> bytes:
    """An entry of format 1 that holds several."""
    inner = b"".join(message(1, 0, b"inner", offset) for offset in range(count))
    return message(1, attributes | Codec.GZIP, compress(inner, Compression(Codec.GZIP)))


@st.composite
def logs(draw: st.DrawFn) -> PartitionLog:
    """Whatever can stand in a partition."""
    log = PartitionLog()
    log.skip(draw(st.integers(0, 5)))
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(("batch", "batch", "batch", "end", "hole", "message", "set")))
        if kind == "batch":
            append_time_ms = draw(st.none() | TIMES)
            codec, producer_id = draw(st.sampled_from(Codec)), draw(PRODUCERS)
            log.append(draw(RECORDS), codec=codec, append_time_ms=append_time_ms, producer_id=producer_id)
        elif kind == "end":
            log.end(draw(st.sampled_from((7, 8))), commit=draw(st.booleans()))
        elif kind == "hole":
            log.skip(draw(st.integers(1, 4)))
        elif kind == "set":
            count = draw(st.integers(2, 4))
            log.append_message(wrapper(count, draw(st.sampled_from((0, 8)))), count)
        else:
            magic = draw(st.integers(0, 1))
            log.append_message(message(magic, draw(st.sampled_from((0, 8))) if magic else 0, b"old"))
    return log


def decoder(
    first_offset: int = 0, end_offset: int = 2**40, columns: Columns = EVERYTHING, **options: Any
) -> Any:
    """One of the partition that all tests read."""
    options.setdefault("read_committed", True)
    return decoding.RecordDecoder(WHERE, columns, first_offset=first_offset, end_offset=end_offset, **options)


def decoded(made: Any, pieces: Iterable[tuple[bytes, list[Any]]]) -> Iterator[Any]:
    """All record batches; each has the schema that Spark expects."""
    for data, aborted in pieces:
        yield from made.feed(data, aborted)
    yield from made.finish()


@given(log=logs(), data=st.data())
def test_same_rows_as_the_reader(log: PartitionLog, data: st.DataObject) -> None:
    """Any log, range, choice of columns, isolation level and limit."""
    first = data.draw(st.integers(0, log.next_offset + 2), "first offset")
    end = data.draw(st.integers(0, log.next_offset), "end offset")
    names = data.draw(st.permutations(EVERYTHING.names).map(lambda all_: all_[: len(all_) - 3]), "columns")
    committed = data.draw(st.booleans(), "read_committed")
    limit = data.draw(st.sampled_from((1, 200, 2**23)), "limit")
    made = decoder(first, end, Columns(tuple(names)), read_committed=committed, max_batch_bytes=limit)
    batches = list(decoded(made, [(bytes(log.data), log.aborted)]))
    expected = log.expected(first, end, read_committed=committed)
    assert rows_of(batches) == [{name: row[name] for name in names} for row in expected]
    assert all(batch.num_rows and batch.schema.equals(made._make._schema) for batch in batches)
    if log.data and first < end:
        assert made.position >= max([first, *(row["offset"] + 1 for row in expected)])


def test_schema_of_every_batch() -> None:
    """Trap 7: each batch, of one type of timestamp or of several, has the schema that Spark wants."""
    types = pytest.importorskip("pyspark.sql.types", reason="needs splashdam[spark]")
    from pyspark.sql.pandas.types import to_arrow_schema

    header = types.StructType().add("key", "string").add("value", "binary")
    spark = types.StructType()
    for name, kind in (("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "integer")):
        spark.add(name, kind)
    spark.add("offset", "long").add("timestamp", "timestamp").add("timestampType", "integer")
    spark.add(HEADERS, types.ArrayType(header))
    log = PartitionLog()
    for number in range(6):
        log.append(
            [(5, None, b"v" * 40, [("h", None)] * (number % 2))], append_time_ms=9 if number % 3 else None
        )
    for limit in (100, 2**23):
        batches = list(decoded(decoder(max_batch_bytes=limit), [(bytes(log.data), [])]))
        assert all(batch.schema.equals(to_arrow_schema(spark, timezone="UTC")) for batch in batches)
        assert [batch.validate(full=True) for batch in batches]
        assert rows_of(batches) == log.rows


def test_batches_are_capped() -> None:
    """Trap 13: no record batch is larger than the limit, but for a single record that is."""
    log = PartitionLog()
    for size in (100, 1, 5000, 1, 30_000, 100, 0):
        log.append([(0, None, bytes(size), [])] * (40 if size < 5000 else 1))
    batches = list(decoded(decoder(max_batch_bytes=8192), [(bytes(log.data), [])]))
    assert rows_of(batches) == log.rows
    assert [batch.num_rows for batch in batches if batch.nbytes > 8192] == [1]
    assert sum(batch.nbytes for batch in batches) / len(batches) > 2000


@pytest.mark.parametrize("codec", Codec)
def test_topics_name_counts(codec: Codec) -> None:
    """Trap 13: records of nothing in a topic with a long name, which is in each row, packed or not."""
    from splashdam.model.values import TopicPartition

    log = PartitionLog()
    log.append([(0, None, None, [])] * 2000, codec=codec)
    made = decoding.RecordDecoder(
        TopicPartition("t" * 249, 0),
        EVERYTHING,
        first_offset=0,
        end_offset=2000,
        read_committed=False,
        max_batch_bytes=65536,
    )
    batches = list(decoded(made, [(bytes(log.data), [])]))
    assert [row["offset"] for row in rows_of(batches)] == list(range(2000))
    assert 8192 < max(batch.nbytes for batch in batches) <= 65536


def test_fed_in_pieces() -> None:
    """Rows wait for the next piece; each piece has its own list of aborted transactions."""
    log = PartitionLog()
    pieces: list[tuple[bytes, list[Any]]] = []
    for number in range(4):
        start, known = len(log.data), len(log.aborted)
        log.append([(0, b"k", b"v", [])], producer_id=7)
        log.end(7, commit=number % 2 == 0)
        pieces.append((bytes(log.data[start:]), log.aborted[known:]))
    made = decoder(0, log.next_offset)
    (batch,) = decoded(made, pieces)
    assert [row["offset"] for row in rows_of([batch])] == [0, 4]
    assert made.position == log.next_offset


STEPS = st.tuples(st.sampled_from((7, 8)), st.sampled_from(("write", "abort", "commit")), st.booleans())


@given(steps=st.lists(STEPS, min_size=4, max_size=12))
def test_a_transaction_that_spans_pieces_drops_no_later_commit(steps: list[tuple[int, str, bool]]) -> None:
    """Its producer's next ones may be committed; each piece has the list that a broker sends for it."""
    log = PartitionLog()
    cuts = [0]
    for producer_id, step, is_cut in steps:
        if step == "write":
            log.append([(0, b"k", b"v", [])], producer_id=producer_id)
        else:
            log.end(producer_id, commit=step == "commit")
        cuts += [log.next_offset] if is_cut else []
    cuts.append(log.next_offset)
    ends = {header.base_offset: at for at, header in iter_stored_headers(bytes(log.data))}
    ends[log.next_offset] = len(log.data)
    pieces = [
        (bytes(log.data[ends[first] : ends[end]]), log.aborted_within(first, end))
        for first, end in pairwise(cuts)
    ]
    made = decoder(0, log.next_offset)
    assert rows_of(decoded(made, pieces)) == log.expected(0, log.next_offset, read_committed=True)
    assert made.position == log.next_offset


def test_ranges_without_records_end() -> None:
    """Markers, aborted records and holes move the position to the range's end."""
    log = PartitionLog()
    log.append([(0, None, b"no", [])] * 3, producer_id=7)
    log.end(7, commit=False)
    log.skip(10)
    log.append([(0, None, b"far", [])] * 5)
    for first, end in ((0, 4), (1, 3), (3, 4), (4, 9), (4, 14)):
        made = decoder(first, end)
        assert list(decoded(made, [(bytes(log.data), log.aborted)])) == []
        assert made.position == end
    made = decoder(5, 5)
    assert list(decoded(made, [(bytes(log.data), [])])) == []


def test_timestamps_beyond_microseconds() -> None:
    """They become the last or first that there is; the others in the batch are not touched."""
    log = PartitionLog()
    log.append([(2**63 - 1, None, None, []), (-(2**63), None, None, []), (-1, None, None, [])])
    rows: list[Row] = rows_of(decoded(decoder(), [(bytes(log.data), [])]))
    assert [row["timestamp"] for row in rows] == [LATEST_US, -LATEST_US, -1000]


def test_damage_names_the_place() -> None:
    """A wrong checksum, or damage behind a right one."""
    log = PartitionLog()
    log.append([(0, None, b"good", [])])
    log.append([(0, None, b"bad", [])])
    log.data[-2] ^= 1
    with pytest.raises(CorruptMessageError, match=r"flights-3: the batch at offset 1 fails its checksum"):
        list(decoded(decoder(), [(bytes(log.data), [])]))
    made = decoder(0, 1)
    assert (
        len(rows_of(decoded(made, [(bytes(log.data), [])]))) == 1
    )  # what is behind the range is not looked at


def test_unknown_codec_names_the_partition() -> None:
    """Which none of the codecs is."""
    from crc32c import crc32c

    log = PartitionLog()
    log.append([(0, None, b"v", [])])
    log.data[22] |= 7
    log.data[17:21] = crc32c(bytes(log.data[21:])).to_bytes(4, "big")
    with pytest.raises(UnsupportedCodecError, match=r"flights-3: .* codec 7"):
        list(decoded(decoder(), [(bytes(log.data), [])]))
