"""The task of one measuring process, and the records that it sends: the same bytes for every client."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import attrs

TUNED_BATCH_BYTES = 1_000_000
TUNED_LINGER_MS = 5.0
TUNED_REQUEST_BYTES = 4 << 20

BULK_RECORDS = 10_000
"""Records in one bulk call."""

_DISTINCT_RECORDS = 1_000
_DISTINCT_BYTES = 1 << 20


@attrs.frozen(kw_only=True)
class Task:
    """One measurement of one client; its process gets it as JSON.

    Attributes:
        client: the distribution's name.
        call: the way to send, a key of ``CALLS`` in the client's file.
        size: bytes of a value.
        count: records.
        key_bytes: bytes of a key, 0 for none.
        compression: codec of the batches.
        tuned: whether batch size, linger and request size are those below; else the client's defaults apply.
        linger_ms: how long a batch waits for more records, if tuned.
        batch_bytes: limit of a batch, if tuned.
        bootstrap: address of the broker.
        topic: an existing topic for the records.
        partitions: number of its partitions.
        per_second: pace of a latency run; 0: each record follows when the last one is acknowledged.
    """

    client: str
    call: str
    size: int
    count: int
    key_bytes: int = 0
    compression: str = "none"
    tuned: bool = True
    linger_ms: float = TUNED_LINGER_MS
    batch_bytes: int = TUNED_BATCH_BYTES
    bootstrap: str = ""
    topic: str = "bench"
    partitions: int = 4
    per_second: float = 1_000

    def to_json(self) -> str:
        return json.dumps(attrs.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        return cls(**json.loads(text))


def values(size: int) -> list[bytes]:
    """Return JSON-like values of exactly ``size`` bytes: at most 1,000, and together at most 1 MiB."""
    draw = random.Random(size)
    made = []
    for number in range(max(1, min(_DISTINCT_RECORDS, _DISTINCT_BYTES // size))):
        text = json.dumps({"id": number, "user": draw.randrange(10**6), "at": draw.random(), "note": ""})
        made.append((text[:-2] + "x" * (size - len(text)) + text[-2:]).encode()[:size])
    return made


def keys(task: Task) -> list[bytes]:
    """Return 1,000 keys of the task's size."""
    draw = random.Random(task.key_bytes)
    return [b"%0*d" % (task.key_bytes, draw.randrange(10**9)) for _ in range(_DISTINCT_RECORDS)]


def all_values(task: Task) -> Iterator[bytes]:
    """Yield the value of every record."""
    return itertools.islice(itertools.cycle(values(task.size)), task.count)


def all_pairs(task: Task) -> Iterator[tuple[bytes, bytes]]:
    """Yield value and key of every record."""
    return zip(all_values(task), itertools.cycle(keys(task)), strict=False)


def chunks(task: Task) -> Iterator[list[bytes]]:
    """Yield the values in lists of `BULK_RECORDS`, which are made beforehand; the last may be shorter."""
    full = list(itertools.islice(itertools.cycle(values(task.size)), min(task.count, BULK_RECORDS)))
    whole, rest = divmod(task.count, len(full))
    yield from itertools.repeat(full, whole)
    if rest:
        yield full[:rest]


def without_address(options: dict[str, Any]) -> dict[str, Any]:
    """Return a client's options for the report: without the broker's address."""
    return {name: value for name, value in options.items() if name not in _ADDRESSES}


_ADDRESSES = ("bootstrap_servers", "bootstrap.servers")
