"""The process of the producers: sends until its standard input ends, and prints a sample every second.

Samples are lines of JSON on standard output. The last one also has the number of records that each stream
sent to each partition, and the violations.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import select
import sys
import threading
import time
from pathlib import Path
from typing import Any

from lab.ledger import Fate
from lab.memory import descriptors, resident_bytes
from lab.producers.streams import FINISH_SECONDS, Foreign, Impatient, Many, Stream, Threads, Transactions
from lab.producers.streams_in_loops import Asyncio, Trio

KINDS: list[type[Stream]] = [Threads, Many, Transactions, Impatient, Asyncio, Trio]
PATIENT = [kind for kind in KINDS if kind is not Impatient]
_SAMPLE_SECONDS = 1
_LEFT_OVER_SECONDS = 30  # idle threads of trio's cache end after ten seconds


def main() -> None:
    """Run the command."""
    faulthandler.enable()
    parser = argparse.ArgumentParser(prog="python -m lab.producers", description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--ledgers", type=Path, required=True)
    parser.add_argument("--rate", type=float, required=True, help="records per second, of all streams")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--foreign", action="store_true", help="kafka-python sends as well")
    options = parser.parse_args()
    kinds = KINDS + [Foreign] * options.foreign
    before = (descriptors(), threading.active_count())
    streams = [
        kind(options.address, options.ledgers, options.rate / len(kinds), options.seed) for kind in kinds
    ]
    threads = [threading.Thread(target=stream.guarded, name=stream.name, daemon=True) for stream in streams]
    for thread in threads:
        thread.start()
    while not select.select([sys.stdin], [], [], _SAMPLE_SECONDS)[0]:
        _say(_sample(streams))
    for stream in streams:
        stream.stop.set()
    violations = _join(threads)
    last = _sample(streams)
    violations += [text for stream in streams for text in stream.violations] + _failures(streams)
    violations += _left_over(before)
    taken = {ledger.name: ledger.taken for stream in streams for ledger in stream.ledgers}
    _say(last | {"taken": taken, "violations": violations})


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def _sample(streams: list[Stream]) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for stream in streams:
        for what, times in stream.counts.copy().items():
            counts[what] = counts.get(what, 0) + times
    results = {
        fate.name: sum(ledger.results[fate] for stream in streams for ledger in stream.ledgers)
        for fate in Fate
    }
    return {
        "rss": resident_bytes("self"),
        "descriptors": descriptors(),
        "threads": threading.active_count(),
        "results": results,
        "counts": counts,
    }


def _join(threads: list[threading.Thread]) -> list[str]:
    deadline = time.monotonic() + 2 * FINISH_SECONDS
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
    late = [thread.name for thread in threads if thread.is_alive()]
    if late:
        faulthandler.dump_traceback()
    return [f"{name} did not end" for name in late]


def _failures(streams: list[Stream]) -> list[str]:
    """Return violations by patient producers: no outage lasts as long as their `delivery_timeout_ms`."""
    return [
        f"{ledger.name}: {failed} records failed, though their producer was patient"
        for stream in streams
        if type(stream) in PATIENT
        for ledger in stream.ledgers
        if (failed := ledger.results[Fate.PERHAPS_WRITTEN] + _not_written(stream, ledger.results))
    ]


def _not_written(stream: Stream, results: dict[Fate, int]) -> int:
    """Return the number of records that should have been written; an abort may drop unsent records."""
    return 0 if isinstance(stream, Transactions) else results[Fate.NOT_WRITTEN]


def _left_over(before: tuple[int, int]) -> list[str]:
    deadline = time.monotonic() + _LEFT_OVER_SECONDS
    while (now := (descriptors(), threading.active_count())) != before and time.monotonic() < deadline:
        time.sleep(0.1)
    return [
        f"{is_now} {what} are open after all producers were closed, {was} before"
        for what, was, is_now in zip(("descriptors", "threads"), before, now, strict=True)
        if is_now > was
    ]


if __name__ == "__main__":
    main()
