"""Random logs: batches of every codec, from idempotent and other producers, at times that jump about."""

from __future__ import annotations

import random
from collections.abc import Iterator

from splashdam.record.batch import Codec
from splashdam.record.compression import Compression
from splashdam.record.reader import Record, read_records
from splashdam.record.sealing import build_batch
from splashdam.storage.log import Log
from splashdam.storage.transaction_marker import TransactionMarker
from support.storage.logs import NOW_MS


def random_batches(seed: int, count: int) -> Iterator[bytes]:
    """As producers send them: up to 40 records each; three producers number theirs, a fourth does not."""
    chance = random.Random(seed)
    sequences = {1: 0, 2: 0, 1000: 0}
    now_ms = NOW_MS
    for _ in range(count):
        now_ms += chance.choice((0, 1, 40, 5_000))
        records = [_random_record(chance, now_ms) for _ in range(chance.randint(1, 40))]
        compression = Compression(chance.choice(list(Codec)))
        producer_id = chance.choice((-1, *sequences))
        if producer_id < 0:
            yield build_batch(records, compression)
            continue
        sequence = sequences[producer_id]
        sequences[producer_id] += len(records)
        yield build_batch(
            records, compression, producer_id=producer_id, producer_epoch=3, base_sequence=sequence
        )


def _random_record(chance: random.Random, now_ms: int):  # type: ignore[no-untyped-def]  # as build_batch takes it
    key = chance.choice((None, b"", chance.randbytes(chance.randint(1, 12))))
    value = None if chance.random() < 0.05 else chance.randbytes(chance.randint(0, 300))
    headers = [("h", chance.choice((None, b"", b"1")))] if chance.random() < 0.3 else None
    return now_ms - chance.randint(0, 3_000), key, value, headers


def append_random(log: Log, seed: int, count: int) -> list[Record]:
    """Appends random batches; returns the records as a reader is to find them."""
    expected = []
    for batch in random_batches(seed, count):
        appended = log.append_as_leader(batch, now_ms=NOW_MS)
        expected += [
            record._replace(offset=record.offset + appended.base_offset) for record in read_records(batch)
        ]
    return expected


def append_transactions(log: Log, seed: int, count: int) -> tuple[list[Record], list[Record]]:
    """Transactions of three producers, at times several open at once; plain batches between them.

    Returns:
        All records as a reader is to find them, and those that are committed or plain and come before the
        first transaction that is still open.
    """
    chance = random.Random(seed)
    sequences = dict.fromkeys((7, 8, 9), 0)
    opened: dict[int, list[Record]] = {}
    everything: list[Record] = []
    hidden: list[Record] = []
    for step in range(count):
        producer_id = chance.choice((-1, *sequences))
        if producer_id in opened and chance.random() < 0.4:
            is_commit = chance.random() < 0.5
            records = opened.pop(producer_id)
            hidden += [] if is_commit else records
            log.append_marker(TransactionMarker(producer_id, 0, is_commit, 4), now_ms=NOW_MS + step)
            continue
        records = [_random_record(chance, NOW_MS + step) for _ in range(chance.randint(1, 9))]
        batch = build_batch(records)
        if producer_id >= 0:
            batch = build_batch(
                records,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[producer_id],
                transactional=True,
            )
        appended = log.append_as_leader(batch, now_ms=NOW_MS)
        found = [each._replace(offset=each.offset + appended.base_offset) for each in read_records(batch)]
        everything += found
        if producer_id >= 0:
            sequences[producer_id] += len(records)
            opened.setdefault(producer_id, []).extend(found)
    stable = log.last_stable_offset
    kept = [each for each in everything if each not in hidden and each.offset < stable]
    return everything, kept
