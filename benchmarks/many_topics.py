"""Measures many topics: creating them one by one, and a broker's restart after ``kill -9``.

``python benchmarks/many_topics.py`` makes topics in a process of its own, has an idempotent producer send
records to each partition, and ends it with SIGKILL. A second process opens the same directory: alone, the
time runs from its start of the broker until a record is acknowledged; as a cluster of three, until all
replicas of all partitions are in sync. Files are synced as ever.
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
    """What is made before the kill."""

    topics: int
    partitions: int
    records: int


def make(broker: Broker, load: Load) -> None:
    """Makes topics one by one, and prints how long the first and the second half took."""
    began = half = time.perf_counter()
    for number in range(load.topics):
        if number == load.topics // 2:
            half = time.perf_counter()
        broker.topics.add([NewTopic(f"t{number}", load.partitions)])
    print(half - began, time.perf_counter() - half, flush=True)


async def produce(servers: str, load: Load) -> None:
    """Records for each partition, all acknowledged, one batch after the other."""
    async with AsyncKafkaProducer(bootstrap_servers=servers) as producer:
        for _ in range(load.records):
            for number in range(load.topics):
                for partition in range(load.partitions):
                    await producer.send(f"t{number}", b"x" * 100, partition=partition)
            await producer.flush()


def kill() -> None:
    """``kill -9`` of this process; what it leaves behind is in the page cache."""
    os.kill(os.getpid(), signal.SIGKILL)


async def wait_in_sync(brokers: Cluster) -> None:
    """Returns once all replicas of all partitions are in sync."""
    while not brokers.is_in_sync:  # noqa: ASYNC110 - nobody tells; a look costs less than what is measured
        await trio.sleep(0.01)


async def alone(root: str, load: Load, is_first: bool) -> None:
    """One broker: made and killed, or opened again until it takes a record."""
    began = time.perf_counter()
    async with open_broker(root, port=0) as broker:
        if is_first:
            make(broker, load)
            await produce(broker.bootstrap_servers, load)
            kill()
        await trio.lowlevel.checkpoint()  # behind what the start has left to others
        broker.logs.logs[TopicPartition("t0", 0)].append_as_leader(BATCH, now_ms=broker.clock.wall_ms())
        print(time.perf_counter() - began, flush=True)


async def cluster(root: str, load: Load, is_first: bool) -> None:
    """Three brokers: made and killed, or opened again until all replicas are in sync."""
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
    """Three brokers, of which one is killed and started again, until it is in sync everywhere."""
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
    """What a process of its own has printed, whether it was killed or not."""
    command = [sys.executable, __file__, "--one", kind, root, part, *map(str, load)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, -signal.SIGKILL) or not done.stdout:
        raise SystemExit(done.stderr)
    return [float(each) for each in done.stdout.split()]


def main() -> None:
    """Measures what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=1, help="of each topic")
    parser.add_argument("--records", type=int, default=1, help="for each partition, each a batch")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        kind, root, part, *numbers = given.one
        trio.run(KINDS[kind], root, Load(*map(int, numbers)), part == "first")
        return
    load = Load(given.topics, given.partitions, given.records)
    print(f"{'brokers':<10}{'topics':>8}{'first half s':>14}{'second half s':>15}{'there again s':>15}")
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
