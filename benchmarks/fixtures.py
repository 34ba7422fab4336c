"""Measures the cost of the pytest plugin: of a broker per test, and of a suite that does not use it.

``python benchmarks/fixtures.py`` prints medians. Start and stop are those of ``kafka_broker`` with its
directory; the first record is one that a fresh producer sends, until it is acknowledged. The suite of 200
empty tests is collected in turns with and without the plugin, each time by a fresh process.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import checked

from splashdam import EmbeddedBroker, KafkaProducer

Row = tuple[str, list[float]]


def timed(work: Callable[[], object]) -> float:
    """Return the milliseconds that a call takes."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def send_one(producer: KafkaProducer) -> None:
    """Send a record, and wait for its acknowledgement."""
    producer.send("t", b"1").get(timeout=10)


def brokers(rounds: int, *, fsync: bool) -> list[Row]:
    """Measure start, first record and stop (with the directory's removal) of one broker after the other."""
    starts, firsts, stops = [], [], []
    for _ in range(rounds):
        path = tempfile.mkdtemp()
        broker = EmbeddedBroker(path, fsync=fsync)
        starts.append(timed(broker.start))
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        firsts.append(timed(partial(send_one, producer)))
        producer.close()
        stops.append(timed(broker.stop) + timed(partial(shutil.rmtree, path)))
    text = "" if fsync else ", fsync=False as in the plugin"
    return [
        (f"broker starts{text}", starts),
        (f"first record acknowledged{text}", firsts),
        (f"broker stops, directory gone{text}", stops),
    ]


def collections(rounds: int) -> list[Row]:
    """Measure ``pytest --collect-only`` of 200 tests, with the plugin and without it."""
    taken: dict[str, list[float]] = {"with the plugin": [], "without it": []}
    with tempfile.TemporaryDirectory() as folder:
        tests = "\n".join(f"def test_{number}(): pass" for number in range(200))
        Path(folder, "test_nothing.py").write_text(tests)
        quiet = ["-q", "-p", "no:cacheprovider", "--rootdir", folder, folder]
        command = [sys.executable, "-m", "pytest", "--collect-only", *quiet]
        for turn in range(rounds + 1):
            for name, options in (("with the plugin", []), ("without it", ["-p", "no:splashdam"])):
                run = partial(subprocess.run, [*command, *options], check=True, capture_output=True)
                ms = timed(run)
                if turn:  # the first one reads files that are not cached yet
                    taken[name].append(ms)
    return [(f"pytest --collect-only, 200 tests, {name}", each) for name, each in taken.items()]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=checked.rounds, default=50, help="brokers of each kind (50)")
    parser.add_argument("--collections", type=int, default=15, help="runs of pytest of each kind (15)")
    options = parser.parse_args()
    rows = brokers(options.rounds, fsync=False) + brokers(options.rounds, fsync=True)
    rows += collections(options.collections)
    width = max(len(name) for name, _ in rows)
    print(f"{'':{width}}  median ms  90 % below")
    for name, values in rows:
        ninety = statistics.quantiles(values, n=10)[-1]
        print(f"{name:{width}}  {statistics.median(values):9.2f}  {ninety:10.2f}")


if __name__ == "__main__":
    main()
