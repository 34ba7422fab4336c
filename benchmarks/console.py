"""Measures the console: its start, its memory, and what it costs a producer that sends.

``python benchmarks/console.py`` prints medians and ratios of one run. Processes that differ only in the
console take turns: without it, with it and no page open, with every page open and refreshed at its interval,
and during a search. ``--quick`` takes fewer turns and records, and a smaller topic.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from splashdam import EmbeddedBroker, KafkaProducer

PAGES = (
    ("/", 2.0),
    ("/topics/load/messages", 2.0),
    ("/groups", 2.0),
    ("/log/load/0", 5.0),
    ("/producers", 1.0),
)
"""The requests that a browser repeats while the pages are open, and their intervals in seconds."""
VALUE = b"x" * 100


def resident_kib() -> int:
    """Return the resident memory of this process."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


def get(link: str, path: str) -> bytes:
    """Return the body of a page."""
    address = urlsplit(link)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=600)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


@contextmanager
def looking(link: str) -> Iterator[list[float]]:
    """Keep every page open during the block; the list gets the time of each answer, in milliseconds."""
    stop, taken = threading.Event(), []

    def look(path: str, pause_s: float) -> None:
        while not stop.is_set():
            began = time.perf_counter()
            get(link, path)
            taken.append((time.perf_counter() - began) * 1000)
            stop.wait(pause_s)

    threads = [threading.Thread(target=look, args=each) for each in PAGES]
    for each in threads:
        each.start()
    try:
        yield taken
    finally:
        stop.set()
        for each in threads:
            each.join()


@contextmanager
def searching(link: str) -> Iterator[None]:
    """Repeat a search without a match during the block."""
    stop = threading.Event()

    def search() -> None:
        while not stop.is_set():
            get(link, "/topics/stored/messages/search?q=nowhere")

    thread = threading.Thread(target=search)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def send(servers: str, records: int) -> float:
    """Return the number of acknowledged records per second."""
    with KafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer:
        producer.prepare("load")
        began = time.perf_counter()
        for _ in range(records):
            producer.send("load", VALUE)
        producer.flush()
        return records / (time.perf_counter() - began)


def store(servers: str, size_bytes: int) -> None:
    """Fill the topic for the search."""
    with KafkaProducer(bootstrap_servers=servers, batch_size=1 << 20) as producer:
        for _ in range(max(1, size_bytes // (1000 * 1024))):
            producer.send_many("stored", [b"y" * 1000] * 1024)


def turn(kind: str, records: int, stored_bytes: int) -> dict[str, float]:
    """Return the figures of one turn: a broker, perhaps with a console, and a producer beside it."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        broker = EmbeddedBroker(
            folder,
            fsync=False,
            topics={"load": 4, "stored": 1},
            console_port=None if kind == "without" else 0,
        )
        began, busy = time.perf_counter(), time.process_time()
        broker.start()
        found["start ms"] = (time.perf_counter() - began) * 1000
        found["start busy ms"] = (time.process_time() - busy) * 1000
        try:
            found["memory KiB"] = resident_kib()
            if kind != "without":
                link = broker.console_link
                began = time.perf_counter()
                get(link, "/")
                found["first page ms"] = (time.perf_counter() - began) * 1000
                found["memory after a page KiB"] = resident_kib()
            if kind == "searched":
                store(broker.bootstrap_servers, stored_bytes)
                began, busy = time.perf_counter(), time.process_time()
                get(link, "/topics/stored/messages/search?q=nowhere")
                found["search s"] = time.perf_counter() - began
                found["search busy s"] = time.process_time() - busy
                with searching(link):
                    found["records/s"] = measured(broker, records)
            elif kind == "open":
                with looking(link) as taken:
                    found["records/s"] = measured(broker, records)
                found["a page ms"] = statistics.median(taken)
            else:
                found["records/s"] = measured(broker, records)
        finally:
            broker.stop()
    return found


def measured(broker: EmbeddedBroker, records: int) -> float:
    """Return the rate of a producer in a process of its own, as most producers are."""
    command = [sys.executable, __file__, "--send", broker.bootstrap_servers, "--records", str(records)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


KINDS = ("without", "closed", "open", "searched")


def in_turns(turns: int, records: int, stored_bytes: int) -> dict[str, list[dict[str, float]]]:
    """Measure each kind in a process of its own, one after the other."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for _ in range(turns):
        for kind in KINDS:
            command = [sys.executable, __file__, "--turn", kind]
            command += ["--records", str(records), "--stored-mib", str(stored_bytes >> 20)]
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
            )
            found[kind].append(json.loads(done.stdout))
    return found


def report(found: dict[str, list[dict[str, float]]], stored_mib: int) -> None:
    """Print medians, and ratios within each turn."""

    def median(kind: str, name: str) -> float:
        return statistics.median(each[name] for each in found[kind])

    def more(name: str, than: str) -> float:
        pairs = zip(found["closed"], found["without"], strict=True)
        return statistics.median(one[name] - other[than] for one, other in pairs)

    def ratio(kind: str) -> str:
        parts = [a["records/s"] / b["records/s"] for a, b in zip(found[kind], found["without"], strict=True)]
        return f"{statistics.median(parts):.2f} ({min(parts):.2f} to {max(parts):.2f}) of that"

    rows = {
        "added to the broker's start": f"{more('start ms', 'start ms'):.0f} ms,"
        f" {more('start busy ms', 'start busy ms'):.0f} ms of CPU time",
        "first page": f"{median('closed', 'first page ms'):.0f} ms",
        "memory before the first page": f"{more('memory KiB', 'memory KiB') / 1024:.1f} MiB more",
        "memory after the first page": f"{more('memory after a page KiB', 'memory KiB') / 1024:.1f} MiB more",
        "a producer without a console": f"{median('without', 'records/s'):,.0f} records/s",
        "with a console, no page open": ratio("closed"),
        "with every page open": f"{ratio('open')}; an answer takes {median('open', 'a page ms'):.0f} ms",
        "during a search": ratio("searched"),
        f"a search of {stored_mib:,} MiB": f"{median('searched', 'search s'):.1f} s,"
        f" {median('searched', 'search busy s'):.1f} s of CPU time",
    }
    for name, text in rows.items():
        print(f"{name:30}{text}")


def main() -> None:
    """Run the command, or one part of it in a child process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a minute instead of ten")
    parser.add_argument("--turns", type=int, help="turns of each kind (5)")
    parser.add_argument("--records", type=int, help="records that the producer sends in each turn (2000000)")
    parser.add_argument("--stored-mib", type=int, help="size of the topic that is searched (1024)")
    parser.add_argument("--turn", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--send", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    turns = arguments.turns or (1 if arguments.quick else 5)
    records = arguments.records or (200_000 if arguments.quick else 2_000_000)
    stored_mib = arguments.stored_mib or (64 if arguments.quick else 1024)
    if arguments.send:
        print(send(arguments.send, records))
    elif arguments.turn:
        print(json.dumps(turn(arguments.turn, records, stored_mib << 20)))
    else:
        report(in_turns(turns, records, stored_mib << 20), stored_mib)


if __name__ == "__main__":
    main()
