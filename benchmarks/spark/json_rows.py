"""JSON values, all good or one bad in a hundred, decoded as ``pipeline decode`` does, without Spark."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from spark.topics import value

SCHEMA = "id bigint NOT NULL, at string, amount bigint, note string"
"""Of the values that `topics.value` returns."""
ROWS = 10_000
"""Rows of an array that Spark passes to a Python worker (`spark.sql.execution.arrow.maxRecordsPerBatch`)."""
BAD_SHARE = 0.01

Damage = Callable[[bytes, random.Random], bytes]


def with_syntax_error(row: bytes, chance: random.Random) -> bytes:
    """Return the row with a colon or a quotation mark less, or with a comma or a brace too many."""
    where, instead = chance.choice([(b":", b""), (b'"at', b"at"), (b'"}', b'",}'), (b'"}', b'"}}')])
    return row.replace(where, instead, 1)


def with_wrong_type(row: bytes, _: random.Random) -> bytes:
    """Return the row with a text instead of an integer."""
    return row.replace(b'"amount":', b'"amount":"x","old":', 1)


def decoded_in(records: int, size: int, damage: Damage | None) -> float:
    """Decode values in memory, and return the seconds.

    Args:
        records: number of values.
        size: bytes of a good value.
        damage: makes one row in a hundred bad; None: all rows are good.
    """
    import pyarrow as pa

    from splashdam.pipeline.values.schema_files import ddl_format

    decoder = ddl_format(SCHEMA).open()
    seconds, expected, found = 0.0, 0, 0
    for rows, bad in _arrays(records, size, damage):
        array = pa.array(rows, pa.binary())
        began = time.perf_counter()
        reasons = decoder.decode(array).reasons
        seconds += time.perf_counter() - began
        expected += bad
        found += len(reasons) - reasons.null_count
    if found != expected:
        raise SystemExit(f"found {found:,} bad rows, expected {expected:,}")
    return seconds


def _arrays(records: int, size: int, damage: Damage | None) -> Iterator[tuple[list[bytes], int]]:
    chance = random.Random(0)
    for first in range(0, records, ROWS):
        rows = [value(number, size) for number in range(first, min(first + ROWS, records))]
        if damage is None:
            yield rows, 0
            continue
        places = chance.sample(range(len(rows)), int(len(rows) * BAD_SHARE))
        for place in places:
            rows[place] = damage(rows[place], chance)
        yield rows, len(places)
