"""The map of keys that compaction goes by, and what it leaves of a batch's records."""

from __future__ import annotations

from types import ModuleType

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.batch import HEADER_BYTES, parse_header
from splashdam.record.compression import NO_COMPRESSION
from splashdam.record.damage import DamagedError
from splashdam.record.reader import read_records
from splashdam.record.sealing import build_batch, seal_records

KEYS = st.one_of(st.none(), st.binary(max_size=40))
VALUES = st.one_of(st.none(), st.binary(max_size=20))
TIMES = st.one_of(st.integers(-2, 5_000), st.sampled_from([2**62, -(2**62)]))
RECORDS = st.lists(st.tuples(TIMES, KEYS, VALUES), min_size=1, max_size=20)
BASE = 1_000


def batch_of(records: list[tuple[int, bytes | None, bytes | None]]) -> bytes:
    headers = [("h", b"1")]
    return build_batch([(time, key, value, headers) for time, key, value in records])


def kept_of(offset_map, batch: bytes, **options):  # type: ignore[no-untyped-def]  # of either twin
    header = parse_header(batch)
    chosen = {
        "base_offset": BASE,
        "base_timestamp": header.base_timestamp,
        "append_time": None,
        "last_offset": BASE + header.last_offset_delta,
        "drops_tombstones": False,
        "has_horizon": False,
        "horizon_ms": 9_999,
        "is_marker": False,
    }
    return offset_map.keep_records(batch[HEADER_BYTES:], header.record_count, **{**chosen, **options})


def rebuilt(batch: bytes, kept):  # type: ignore[no-untyped-def]  # of either twin
    header = parse_header(batch)._replace(
        base_offset=BASE, base_timestamp=kept.base_timestamp, record_count=kept.record_count
    )
    return read_records(seal_records(kept.records, header, NO_COMPRESSION))


def test_the_newest_offset_of_each_key(kernel: ModuleType) -> None:
    """Until as many keys are in as were allowed; then not even a known key moves."""
    offset_map = kernel.OffsetMap(50, 40)
    for offset in range(45):
        assert offset_map.put(b"key %d" % (offset % 42), offset) == (offset < 40)
    assert len(offset_map) == 40
    assert [offset_map.get(b"key %d" % number) for number in (0, 39, 40, 44)] == [0, 39, -1, -1]


@pytest.mark.parametrize("limit", [0, 10, 11])
def test_a_map_without_a_free_slot_is_refused(kernel: ModuleType, limit: int) -> None:
    """Looking for a key that is not there would not end."""
    with pytest.raises(IllegalArgumentError, match=f"limit={limit}"):
        kernel.OffsetMap(10, limit)


def test_keys_of_every_length_differ(kernel: ModuleType) -> None:
    """The digest takes 16 bytes at a time and what is left."""
    offset_map = kernel.OffsetMap(1_000, 900)
    keys = [bytes([first]) * length for length in range(1, 50) for first in (0, 1, 255)]
    for offset, key in enumerate([b"", *keys]):
        assert offset_map.put(key, offset)
    assert len(offset_map) == len(keys) + 1
    assert [offset_map.get(key) for key in keys] == list(range(1, len(keys) + 1))


def test_records_without_room_are_told(kernel: ModuleType) -> None:
    """Keys before ``first_offset`` take no room, and records without a key have none to note."""
    batch = batch_of([(1, b"a", b"1"), (1, b"b", b"1"), (1, None, b"1"), (1, b"c", b"1"), (1, b"d", b"1")])
    offset_map = kernel.OffsetMap(10, 2)
    found = offset_map.put_records(batch[HEADER_BYTES:], 5, base_offset=BASE, first_offset=BASE + 1)
    assert found == BASE + 4
    assert [offset_map.get(key) for key in (b"a", b"b", b"c", b"d")] == [-1, BASE + 1, BASE + 3, -1]


@given(RECORDS, RECORDS, st.tuples(st.booleans(), st.booleans(), st.booleans()), st.integers(-1, 25))
def test_both_twins_keep_the_same_and_what_a_model_keeps(
    twins: tuple[ModuleType, ModuleType],
    earlier: list[tuple[int, bytes | None, bytes | None]],
    later: list[tuple[int, bytes | None, bytes | None]],
    flags: tuple[bool, bool, bool],
    known: int,
) -> None:
    """Offsets, timestamps, keys, values and headers of what stays are as they were."""
    drops_tombstones, has_horizon, appended = flags
    first, second = batch_of(earlier), batch_of(later)
    options = {
        "drops_tombstones": drops_tombstones,
        "has_horizon": has_horizon,
        "last_offset": BASE + known,
        "append_time": 77 if appended else None,
    }
    results = []
    for twin in twins:
        offset_map = twin.OffsetMap(64, 60)
        for batch, base in ((first, BASE), (second, BASE + len(earlier))):
            found = offset_map.put_records(
                batch[HEADER_BYTES:], parse_header(batch).record_count, base_offset=base, first_offset=0
            )
            assert found == -1
        results.append((len(offset_map), kept_of(offset_map, first, **options)))
    assert results[0] == results[1]
    newest = {key: BASE + number for number, (_, key, _) in enumerate([*earlier, *later])}
    expected = [
        record._replace(timestamp_ms=77 if appended else record.timestamp_ms)
        for record in read_records(first)
        if record.offset > known
        or (
            record.key is not None
            and newest[record.key] == BASE + record.offset
            and not (record.value is None and drops_tombstones)
        )
    ]
    kept = results[0][1]
    gets_horizon = any(record.value is None for record in expected) and not has_horizon
    assert (kept.record_count, kept.gets_horizon) == (len(expected), gets_horizon)
    if kept.records is None:
        assert len(expected) == len(earlier)
        return
    assert [record._replace(offset=record.offset - BASE) for record in rebuilt(first, kept)] == expected
    if gets_horizon:
        assert kept.base_timestamp == 9_999
    elif expected and not has_horizon:
        assert kept.base_timestamp == expected[0].timestamp_ms


def test_a_marker_stays_and_gets_a_horizon(kernel: ModuleType) -> None:
    """Whatever the map says of its key."""
    batch = batch_of([(500, b"\0\0\0\1", b"x")])
    offset_map = kernel.OffsetMap(10, 5)
    offset_map.put(b"\0\0\0\1", 10**6)
    kept = kept_of(offset_map, batch, is_marker=True)
    assert (kept.record_count, kept.base_timestamp, kept.max_timestamp_ms, kept.gets_horizon) == (
        1,
        9_999,
        500,
        True,
    )
    assert [record.timestamp_ms for record in rebuilt(batch, kept)] == [500]


@given(st.binary(max_size=60), st.integers(0, 4))
def test_damaged_records_are_told_alike(
    twins: tuple[ModuleType, ModuleType], records: bytes, count: int
) -> None:
    """By both twins and both passes, with the same words."""
    said = []
    for twin in twins:
        offset_map = twin.OffsetMap(10, 9)
        for method in ("put", "keep"):
            try:
                if method == "put":
                    offset_map.put_records(records, count, base_offset=0, first_offset=0)
                else:
                    kept_of(
                        offset_map,
                        seal_records(
                            records,
                            parse_header(batch_of([(1, b"", b"")]))._replace(
                                record_count=count, last_offset_delta=10
                            ),
                            NO_COMPRESSION,
                        ),
                        base_offset=0,
                    )
                said.append((method, "sound"))
            except DamagedError as error:
                said.append((method, str(error)))
    assert said[:2] == said[2:]


def test_the_digest_is_mmh3s(kernel: ModuleType) -> None:
    """Two keys of one slot at first, told apart by the rest of the digest."""
    by_slot: dict[int, bytes] = {}
    for number in range(100):
        key = b"%d" % number
        slot = mmh3.hash128(key, 0, True, signed=False) % 2**64 % 11
        if slot in by_slot:
            offset_map = kernel.OffsetMap(11, 5)
            assert offset_map.put(by_slot[slot], 1)
            assert offset_map.put(key, 2)
            assert (offset_map.get(by_slot[slot]), offset_map.get(key)) == (1, 2)
            return
        by_slot[slot] = key
