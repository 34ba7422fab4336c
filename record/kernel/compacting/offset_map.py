"""The map that compaction goes by: newest offsets by key in a fixed size of memory (``SkimpyOffsetMap``).

A key is stored as its 128-bit digest, 24 bytes per key whatever its length. The digest is MurmurHash3 (x64):
it never leaves the process, so it need not be MD5 as in Kafka, and is many times faster. Two keys with one
digest would lose records: by chance in fewer than one of 10^20 logs of a billion keys; a producer that
constructs such keys loses records of its own topic.

The compiled twin is 70 times as fast (``python -m benchmarks.twins``: 1,000 records in 0.24 ms, not 18), and
the cleaner shares its processor with the broker's loop.
"""

from __future__ import annotations

from array import array

import mmh3

from splashdam.model.errors import IllegalArgumentError
from splashdam.model.values import Buffer
from splashdam.record.damage import Field
from splashdam.record.kernel.building.varint import encode_varint
from splashdam.record.kernel.reading.walk import Walk, wrapped
from splashdam.record.record import KeptRecords

SLOT_BYTES = 24
"""Digest and offset of one key."""

_JUMPS = 8  # number of probes by double hashing; then linear probing
_UINT64 = (1 << 64) - 1


class OffsetMap:
    """Newest offsets by key, for a limited number of keys.

    Args:
        slots: number of slots, ``SLOT_BYTES`` each.
        limit: maximum number of keys; less than ``slots``, since a search in a full map takes long.

    Raises:
        IllegalArgumentError: ``limit`` is not between 1 and ``slots - 1``.
    """

    def __init__(self, slots: int, limit: int) -> None:
        if not 0 < limit < slots:
            raise IllegalArgumentError(f"limit={limit}: it is at least 1 and below slots={slots}")
        self._slots = slots
        self._limit = limit
        self._size = 0
        self._lows, self._highs = array("Q", bytes(8 * slots)), array("Q", bytes(8 * slots))
        self._offsets = array("q", b"\xff" * (8 * slots))

    def __len__(self) -> int:
        return self._size

    def put(self, key: bytes, offset: int) -> bool:
        """Set the newest offset of ``key``; return False if the map is full."""
        if self._size >= self._limit:
            return False
        slot = self._find(key)
        self._size += self._offsets[slot] < 0
        self._offsets[slot] = offset
        return True

    def get(self, key: bytes) -> int:
        """Return the newest offset of ``key``, -1 if it is unknown."""
        return self._offsets[self._find(key)]

    def put_records(self, records: Buffer, record_count: int, *, base_offset: int, first_offset: int) -> int:
        """Add the keys of a batch's records.

        Args:
            records: decompressed records of a batch.
            record_count: from the header.
            base_offset: from the header.
            first_offset: skip records before it.

        Returns:
            The offset of the first record without room, -1 if all had room.

        Raises:
            DamagedError: a record is damaged; keys before it were added.
        """
        walk = Walk(records, record_count)
        while walk.number < record_count:
            walk.begin()
            offset = walk.offset(base_offset)
            key = walk.data(Field.KEY)
            _pass_rest(walk)
            if key is not None and offset >= first_offset and not self.put(key, offset):
                return offset
        walk.check_end()
        return -1

    def keep_records(
        self,
        records: Buffer,
        record_count: int,
        *,
        base_offset: int,
        base_timestamp: int,
        append_time: int | None,
        last_offset: int,
        drops_tombstones: bool,
        has_horizon: bool,
        horizon_ms: int,
        is_marker: bool,
    ) -> KeptRecords:
        """Compact the records of a batch; the rest keeps its offsets and timestamps.

        A record is kept if it is after ``last_offset``, or if it has a key without a newer record and is not
        a tombstone to drop.

        Args:
            records: decompressed records of a batch.
            record_count: from the header.
            base_offset: from the header.
            base_timestamp: from the header.
            append_time: timestamp of all records with LogAppendTime, else None.
            last_offset: last offset that the map covers.
            drops_tombstones: whether to drop tombstones.
            has_horizon: whether ``base_timestamp`` is a delete horizon, which is then kept.
            horizon_ms: delete horizon for a batch that has none and keeps a tombstone.
            is_marker: keep all records, as if one were a tombstone.

        Raises:
            DamagedError: a record is damaged.
        """
        walk = Walk(records, record_count)
        kept: list[tuple[int, bytes]] = []  # timestamp, and all from the offset delta on
        has_tombstones = is_marker
        while walk.number < record_count:
            walk.begin()
            offset = walk.offset(base_offset)
            key = walk.data(Field.KEY)
            size, _ = walk.blob(Field.VALUE)
            start = walk.offset_delta_at
            _pass_headers(walk)
            stays = is_marker or offset > last_offset
            if not stays and key is not None and not (size < 0 and drops_tombstones):
                stays = offset >= self.get(key)
            if stays:
                has_tombstones = has_tombstones or size < 0
                timestamp = wrapped(base_timestamp + walk.timestamp_delta)
                kept.append(
                    (timestamp if append_time is None else append_time, walk.body[start : walk.position])
                )
        walk.check_end()
        largest = max((timestamp for timestamp, _ in kept), default=-1)
        gets_horizon = has_tombstones and not has_horizon
        if len(kept) == record_count and not gets_horizon:
            return KeptRecords(len(kept), base_timestamp, largest, False, None)
        base = horizon_ms if gets_horizon else base_timestamp
        if kept and not gets_horizon and not has_horizon:
            base = kept[0][0]
        return KeptRecords(
            len(kept), base, largest, gets_horizon, b"".join(_encoded(base, *each) for each in kept)
        )

    def _find(self, key: bytes) -> int:
        """Return the slot of ``key``, or the free one for it."""
        digest = mmh3.hash128(key, 0, True, signed=False)
        low, high = digest & _UINT64, digest >> 64
        place, tries = low, 0
        while True:
            slot = place % self._slots
            if self._offsets[slot] < 0:
                self._lows[slot], self._highs[slot] = low, high
                return slot
            if self._lows[slot] == low and self._highs[slot] == high:
                return slot
            tries += 1
            place = (place + high) & _UINT64 if tries < _JUMPS else slot + 1


def _pass_rest(walk: Walk) -> None:
    walk.blob(Field.VALUE)
    _pass_headers(walk)


def _pass_headers(walk: Walk) -> None:
    for _ in range(walk.header_count()):
        walk.header()
    walk.finish()


def _encoded(base_timestamp: int, timestamp: int, rest: bytes) -> bytes:
    delta = encode_varint(wrapped(timestamp - base_timestamp))
    return b"".join((encode_varint(1 + len(delta) + len(rest)), b"\0", delta, rest))
