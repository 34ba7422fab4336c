"""What one process measures, and what it sends: the same bytes for every client."""

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
"""Records that one bulk call takes."""

_DISTINCT_RECORDS = 1_000
_DISTINCT_BYTES = 1 << 20


@attrs.frozen(kw_only=True)
class Task:
    """One measurement of one client; travels to its process as JSON.

    Attributes:
        client: the distribution's name.
        call: which of the client's ways to send, see its file's ``CALLS``.
        size: bytes of a value.
        count: records.
        key_bytes: bytes of a key, 0 for none.
        compression: codec of the batches.
        tuned: whether batch size, linger and request size are set alike; else the client's defaults hold.
        linger_ms: how long a batch waits for more, where that is set.
        batch_bytes: limit of a batch, where that is set.
        bootstrap: address of the broker.
        topic: where the records go; it exists.
        partitions: how many partitions the topic has.
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

    def to_json(self) -> str:
        return json.dumps(attrs.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        return cls(**json.loads(text))


def values(size: int) -> list[bytes]:
    """JSON-like values of exactly ``size`` bytes; at most 1,000 different ones, and 1 MiB together."""
    draw = random.Random(size)
    made = []
    for number in range(max(1, min(_DISTINCT_RECORDS, _DISTINCT_BYTES // size))):
        text = json.dumps({"id": number, "user": draw.randrange(10**6), "at": draw.random(), "note": ""})
        made.append((text[:-2] + "x" * (size - len(text)) + text[-2:]).encode()[:size])
    return made


def keys(task: Task) -> list[bytes]:
    """Keys of the task's size, 1,000 different ones."""
    draw = random.Random(task.key_bytes)
    return [b"%0*d" % (task.key_bytes, draw.randrange(10**9)) for _ in range(_DISTINCT_RECORDS)]


def all_values(task: Task) -> Iterator[bytes]:
    """The value of every record in turn."""
    return itertools.islice(itertools.cycle(values(task.size)), task.count)


def all_pairs(task: Task) -> Iterator[tuple[bytes, bytes]]:
    """Value and key of every record in turn."""
    return zip(all_values(task), itertools.cycle(keys(task)), strict=False)


def chunks(task: Task) -> Iterator[list[bytes]]:
    """The values in lists of `BULK_RECORDS`, made beforehand; the last may be shorter."""
    full = list(itertools.islice(itertools.cycle(values(task.size)), min(task.count, BULK_RECORDS)))
    whole, rest = divmod(task.count, len(full))
    yield from itertools.repeat(full, whole)
    if rest:
        yield full[:rest]


def without_address(options: dict[str, Any]) -> dict[str, Any]:
    """A client's options as they are shown: without where the broker is."""
    return {name: value for name, value in options.items() if name not in _ADDRESSES}


_ADDRESSES = ("bootstrap_servers", "bootstrap.servers")
