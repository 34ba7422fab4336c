"""Measures the CPU time of an idle broker, and of an idle cluster of three in one process.

``python benchmarks/idle.py`` creates the topics, waits until the first checks of every partition are over,
and prints the share of one core that the process takes from then on. Each row is measured in a fresh process,
so that it does not pay for another row's objects.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time

import trio

from splashdam.embedded_broker.broker import open_broker
from splashdam.embedded_broker.cluster import open_cluster
from splashdam.embedded_broker.topics.topics import Topics
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.manager.topic_registry import NewTopic

PARTITIONS_OF_A_TOPIC = 10
SETTLING_SECONDS = 35.0
"""By then the first checkpoints are written, and ISRs checked (``log.initial.task.delay.ms``, 30 s)."""


def make(topics: Topics, partitions: int) -> None:
    """Create topics that have this number of partitions in all."""
    for number in range(partitions // PARTITIONS_OF_A_TOPIC):
        topics.add([NewTopic(f"t{number}", PARTITIONS_OF_A_TOPIC)])


async def idle_percent(seconds: float) -> float:
    """Return the share of a core that this process takes without requests, in percent."""
    await trio.sleep(SETTLING_SECONDS)
    busy, began = time.process_time(), time.perf_counter()
    await trio.sleep(seconds)
    return 100 * (time.process_time() - busy) / (time.perf_counter() - began)


async def alone(root: str, partitions: int, seconds: float) -> float:
    """Measure one broker."""
    async with open_broker(root, port=None, files=DiskFiles(fsync=False)) as broker:
        make(broker.topics, partitions)
        return await idle_percent(seconds)


async def cluster(root: str, partitions: int, seconds: float) -> float:
    """Measure three brokers; each has all partitions, and leads a third of them."""
    async with open_cluster(root, 3, port=None, files=DiskFiles(fsync=False)) as brokers:
        make(brokers.broker(1).topics, partitions)
        return await idle_percent(seconds)


KINDS = {"alone": alone, "cluster": cluster}


def main() -> None:
    """Run the command, or one row of it in a child process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--partitions", type=int, nargs="+", default=[0, 1_000, 10_000], help="numbers of partitions"
    )
    parser.add_argument(
        "--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="one broker, a cluster, or both"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each measurement (60)")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        root = tempfile.mkdtemp()
        try:
            print(trio.run(KINDS[given.one[0]], root, int(given.one[1]), given.seconds))
        finally:
            shutil.rmtree(root)
        return
    print(f"{'brokers':<10}{'partitions':>12}{'of a core':>12}")
    for kind in given.kinds:
        for partitions in given.partitions:
            measured = subprocess.run(
                [sys.executable, __file__, "--seconds", str(given.seconds), "--one", kind, str(partitions)],
                check=True,
                capture_output=True,
                text=True,
            )
            print(f"{kind:<10}{partitions:>12,}{float(measured.stdout):>11.2f}%", flush=True)


if __name__ == "__main__":
    main()
