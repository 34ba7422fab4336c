"""Measures many topics: creating them one by one, and a broker's restart after ``kill -9``.

``python benchmarks/many_topics.py`` creates topics in a process of its own, lets an idempotent producer send
records to each partition, and ends the process with SIGKILL. A second process opens the same directory. For
one broker, the time runs from its start until it takes a record; for a cluster of three, until all replicas
of all partitions are in sync; for a follower, from the start of one killed broker of three until then. Files
are synced as usual.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from splashdam import AsyncKafkaProducer
from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.cluster import Cluster, open_cluster
from splashdam.model.values import TopicPartition
from splashdam.record.sealing import build_batch
from splashdam.storage.manager.topic_registry import NewTopic

BATCH = build_batch([(1_800_000_000_000, None, b"x" * 100, None)])


class Load(NamedTuple):
    """The topics, the partitions of each, and the records of each partition."""

    topics: int
    partitions: int
    records: int


def make(broker: Broker, load: Load) -> None:
    """Create topics one by one, and print the seconds that the first and the second half took."""
    began = half = time.perf_counter()
    for number in range(load.topics):
        if number == load.topics // 2:
            half = time.perf_counter()
        broker.topics.add([NewTopic(f"t{number}", load.partitions)])
    print(half - began, time.perf_counter() - half, flush=True)


async def produce(servers: str, load: Load) -> None:
    """Send records to each partition, one batch after the other; all are acknowledged."""
    async with AsyncKafkaProducer(bootstrap_servers=servers) as producer:
        for _ in range(load.records):
            for number in range(load.topics):
                for partition in range(load.partitions):
                    await producer.send(f"t{number}", b"x" * 100, partition=partition)
            await producer.flush()


def kill() -> None:
    """Kill this process with ``kill -9``; the files that it has written are in the page cache."""
    os.kill(os.getpid(), signal.SIGKILL)


async def wait_in_sync(brokers: Cluster) -> None:
    """Return once all replicas of all partitions are in sync."""
    while not brokers.is_in_sync:  # noqa: ASYNC110 - there is no event; a poll is short beside the whole
        await trio.sleep(0.01)


async def alone(root: str, load: Load, is_first: bool) -> None:
    """Run one broker: create the topics and kill it, or open it again until it takes a record."""
    began = time.perf_counter()
    async with open_broker(root, port=0) as broker:
        if is_first:
            make(broker, load)
            await produce(broker.bootstrap_servers, load)
            kill()
        await trio.lowlevel.checkpoint()  # first run the tasks that the start has scheduled
        broker.logs.logs[TopicPartition("t0", 0)].append_as_leader(BATCH, now_ms=broker.clock.wall_ms())
        print(time.perf_counter() - began, flush=True)


async def cluster(root: str, load: Load, is_first: bool) -> None:
    """Run three brokers: create the topics and kill them, or open them until all replicas are in sync."""
    began = time.perf_counter()
    async with open_cluster(root, 3) as brokers:
        if is_first:
            make(brokers.broker(1), load)
            await produce(brokers.bootstrap_servers, load)
            kill()
        opened = time.perf_counter() - began
        await wait_in_sync(brokers)
        print(time.perf_counter() - began, opened, flush=True)


async def follower(root: str, load: Load, is_first: bool) -> None:
    """Run three brokers; kill one and start it again, until it is in sync for every partition."""
    async with open_cluster(root, 3) as brokers:
        if is_first:
            make(brokers.broker(1), load)
            await produce(brokers.bootstrap_servers, load)
            kill()
        await wait_in_sync(brokers)
        await brokers.kill(3)
        began = time.perf_counter()
        await brokers.start(3)
        opened = time.perf_counter() - began
        await wait_in_sync(brokers)
        print(time.perf_counter() - began, opened, flush=True)


KINDS: dict[str, Callable[[str, Load, bool], Awaitable[None]]] = {
    "alone": alone,
    "cluster": cluster,
    "follower": follower,
}


def figures(kind: str, root: str, load: Load, part: str) -> list[float]:
    """Run a part in a process of its own; return the figures it has printed, even if it was killed."""
    command = [sys.executable, __file__, "--one", kind, root, part, *map(str, load)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, -signal.SIGKILL) or not done.stdout:
        raise SystemExit(done.stderr)
    return [float(each) for each in done.stdout.split()]


def main() -> None:
    """Run the command, or one part of it in a child process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000, help="number of topics (1000)")
    parser.add_argument("--partitions", type=int, default=1, help="partitions of each topic (1)")
    parser.add_argument("--records", type=int, default=1, help="batches of one record in each partition (1)")
    parser.add_argument(
        "--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="measurements to make (all)"
    )
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        kind, root, part, *numbers = given.one
        trio.run(KINDS[kind], root, Load(*map(int, numbers)), part == "first")
        return
    load = Load(given.topics, given.partitions, given.records)
    print(f"{'brokers':<10}{'topics':>8}{'first half s':>14}{'second half s':>15}{'ready again s':>15}")
    for kind in given.kinds:
        root = tempfile.mkdtemp()
        try:
            first, second = figures(kind, root, load, "first")
            again = figures(kind, root, load, "again")[0]
        finally:
            shutil.rmtree(root)
        print(f"{kind:<10}{given.topics:>8,}{first:>14.2f}{second:>15.2f}{again:>15.2f}", flush=True)


if __name__ == "__main__":
    main()
