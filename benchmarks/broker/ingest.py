"""Measures a broker's CPU time for produced batches, by codec, and compares it with bare decompression.

``splashdam broker`` gets batches of 1 MiB before compression, with five requests in flight. Its CPU time, the
kernel's share included, is compared with CPU time of this process for the same bytes: ``times bare`` is the
ratio to the codec's library alone, ``check`` the share of the broker's check of a batch (checksum,
decompression, a walk along the records). The rest is for socket, file and loop.
"""

from __future__ import annotations

import itertools
import json
import random
import socket
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cramjam import snappy
from lz4 import frame as lz4
from zstandard import ZstdDecompressor

from broker import raw_client
from broker.running import Running, Topic, await_answer, cpu_seconds, create_topics, our_broker
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.compression import XERIAL_MAGIC, Compression
from splashdam.record.sealing import build_batch
from splashdam.storage.append_checks import check_batch
from splashdam.storage.settings import LogSettings

MIB = 1 << 20
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SIZES = {"100 B": 100, "1 KB": 1000}
IN_FLIGHT = 5
NOW_MS = 1_700_000_000_000
_FRAMING_BYTES = 12
"""Upper bound of a record's bytes around its value; so a batch stays below the default limit of a broker."""
_BARE_REPEATS = 20
_XERIAL_HEADER_BYTES = len(XERIAL_MAGIC) + 8
_WORDS = ("the", "broker", "keeps", "what", "it", "was", "sent", "and", "says", "so", "when", "safe")


class Packed(NamedTuple):
    """A batch of 1 MiB."""

    codec: str
    size: str
    records: int
    plain_bytes: int
    batch: bytes


class Taken(NamedTuple):
    """Seconds of CPU time for one batch."""

    broker: float
    check: float
    bare: float


def packed(codec: str, size: str) -> Packed:
    """Return a batch of different JSON-like records of a size."""
    draw, value_bytes = random.Random(size), SIZES[size]
    count = MIB // (value_bytes + _FRAMING_BYTES)
    values = [_json_like(draw, number, value_bytes) for number in range(count)]
    batch = build_batch([(NOW_MS, None, each, None) for each in values], Compression.parse(codec))
    return Packed(codec, size, count, count * value_bytes, batch)


def _json_like(draw: random.Random, number: int, size: int) -> bytes:
    note = " ".join(draw.choices(_WORDS, k=size // 4))
    text = json.dumps({"id": number, "user": draw.randrange(10**6), "at": draw.random(), "note": note})
    return text.encode()[: size - 2] + b'"}'


def library_call(codec: str, body: bytes) -> Callable[[], object]:
    """Return a function that decompresses the records of a batch with the codec's library alone."""
    if codec == "gzip":
        return lambda: zlib.decompress(body, 31)
    if codec == "snappy":
        blocks = _xerial_blocks(body)
        return lambda: [snappy.decompress_raw(each) for each in blocks]
    if codec == "lz4":
        return lambda: lz4.decompress(body)
    unpacker = ZstdDecompressor()
    return lambda: unpacker.decompress(body)


def _xerial_blocks(body: bytes) -> list[bytes]:
    blocks, position = [], _XERIAL_HEADER_BYTES
    while position < len(body):
        start = position + 4
        position = start + int.from_bytes(body[position:start], "big")
        blocks.append(body[start:position])
    return blocks


def cpu_of(call: Callable[[], object]) -> float:
    """Return the CPU seconds of this process for one call."""
    call()
    began = time.process_time()
    for _ in range(_BARE_REPEATS):
        call()
    return (time.process_time() - began) / _BARE_REPEATS


def measure(running: Running, connection: socket.socket, each: Packed, requests: int) -> Taken:
    """Measure one codec and size in one round."""
    frame = raw_client.produce_frame(each.batch)
    first, answer_bytes = raw_client.produce_one(connection, frame)  # the broker imports the codec's library

    def send(begin: int, end: int) -> None:
        for _ in range(begin, end):
            connection.sendall(frame)

    spent = cpu_seconds(running.pid)
    raw_client.converse(connection, send, requests, IN_FLIGHT, answer_bytes)
    spent = cpu_seconds(running.pid) - spent
    last, _ = raw_client.produce_one(connection, frame)
    if last - first != (requests + 1) * each.records:
        raise SystemExit(f"{last - first:,} records arrived, {(requests + 1) * each.records:,} were sent")
    settings = LogSettings()
    check = cpu_of(lambda: check_batch(each.batch, settings, NOW_MS))
    if each.codec == "none":
        return Taken(spent / requests, check, 0.0)
    return Taken(spent / requests, check, cpu_of(library_call(each.codec, each.batch[HEADER_BYTES:])))


def run(rounds: int, requests: int, other: str | None = None) -> None:
    """Measure all codecs and sizes in turns, with a fresh broker each round, and print the figures.

    ``other`` is the interpreter of another splashdam; its broker takes turns with this one's.
    """
    ways = [packed(codec, size) for size in SIZES for codec in CODECS]
    taken: dict[str, dict[Packed, list[Taken]]] = {
        python: {each: [] for each in ways} for python in dict.fromkeys([sys.executable, other]) if python
    }
    for _, (python, done) in itertools.product(range(rounds), taken.items()):
        with tempfile.TemporaryDirectory() as home, our_broker(Path(home), python) as running:
            await_answer(running.address)
            create_topics(running.address, [Topic(raw_client.TOPIC)])
            with socket.create_connection(running.address) as connection:
                for each in ways:
                    done[each].append(measure(running, connection, each, requests))
    print(f"{requests} batches of 1 MiB, by CPU time of the broker; medians of {rounds}")
    heads = ("packed KiB", "records/s", "MB/s", "times bare", "check", *(["times other"] if other else []))
    print(f"{'':16}" + "".join(f"{head:>12}" for head in heads))
    for each, here in taken[sys.executable].items():
        row = _row(each, here)
        if other is not None:
            pairs = zip(taken[other][each], here, strict=True)
            row.append(f"{statistics.median(there.broker / ours.broker for there, ours in pairs):.2f}")
        print(f"{each.size:>6} {each.codec:9}" + "".join(f"{text:>12}" for text in row))


def _row(each: Packed, done: list[Taken]) -> list[str]:
    per_batch = statistics.median(one.broker for one in done)
    return [
        f"{len(each.batch) / 1024:,.0f}",
        f"{each.records / per_batch:,.0f}",
        f"{each.plain_bytes / per_batch / 1e6:,.0f}",
        f"{statistics.median(one.broker / one.bare for one in done):.2f}" if each.codec != "none" else "-",
        f"{statistics.median(one.check / one.broker for one in done):.0%}",
    ]
