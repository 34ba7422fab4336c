"""Makes each disk operation of a broker fail, one run per operation and kind: ``make every-write``.

A broker with files in memory runs a workload with every kind of write: records, rolled segments,
transactions, compaction, topics that are created and deleted, configs, committed offsets. For each write,
rename, truncation and sync of this workload, and each kind of failure, the workload runs again with that
failure at that operation: EIO or ENOSPC once, a short write, EIO from that operation on, the end of the
process, a power cut. Then a new broker opens the directory, without any repair by hand. Every acknowledged
record must be there once and in order (after a power cut the end of a log may be missing, but nothing before
it), each transaction as a whole or not at all, and every topic must take new records. No choice is random:
these are all the runs. The exit status is 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import errno
import logging
import random
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import attrs
import trio
from trio.testing import MockClock

from lab.simulator.simulation import deterministic
from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.errors import KafkaError
from splashdam.model.transactions import OffsetAndMetadata
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.net.admin.configs import Resource, alter_configs
from splashdam.net.admin.groups import commit_offsets, committed_offsets
from splashdam.net.admin.topics import create_partitions, create_topic, delete_records, delete_topic
from splashdam.net.cluster.cluster_client import ClusterClient, open_cluster_client
from splashdam.net.cluster.fetch_client import LATEST, FetchSettings, open_fetch_client
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import Fault, MemoryFiles, PowerCutError
from splashdam.testing.clock import VirtualClock

KINDS: dict[str, Fault] = {
    "EIO once": Fault(errno.EIO),
    "ENOSPC once": Fault(errno.ENOSPC),
    "a short write": Fault(errno.ENOSPC, landed_bytes=7),
    "EIO from there on": Fault(errno.EIO, times=None),
    "the end of the process": Fault(None, landed_bytes=7),
    "a power cut": Fault(None, landed_bytes=7),
}
_HOST, _PORT = "broker", 9092
_CONFIG = {
    "num.partitions": 1,
    "log.segment.bytes": 1024,
    "log.retention.check.interval.ms": 2_000,
    "log.segment.delete.delay.ms": 1_000,
    "log.cleaner.backoff.ms": 1_000,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.dedupe.buffer.size": 1 << 20,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
_TOPICS = _PLAIN, _COMPACTED, _TRANSACTIONS = "plain", "compacted", "transactions"
_KEYS = 3
_VALUE = b"." * 120


@attrs.define
class Books:
    """The records that the clients have sent, and the broker's answers to them.

    Attributes:
        sent: values by topic; a record's number is its index in the list.
        acknowledged: numbers of the acknowledged records, by topic.
        committed: numbers of the committed transactions.
        offset: the group's last committed offset; -1 before the first commit.
    """

    sent: dict[str, list[bytes]] = attrs.field(factory=dict)
    acknowledged: dict[str, set[int]] = attrs.field(factory=dict)
    committed: set[int] = attrs.field(factory=set)
    offset: int = -1


class Runner:
    """One run: the workload with a failure, then a new broker on the same directory.

    Args:
        files: the disk.

    Attributes:
        violations: the promises that were broken.
    """

    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        self.books = Books()
        self.violations: list[str] = []

    def work(self) -> None:
        """Run the workload until it ends, or until the failure ends the process."""
        clock = MockClock(autojump_threshold=0)
        with suppress(PowerCutError), deterministic(seed=0):
            try:
                trio.run(self._work, clock, clock=clock)
            except* PowerCutError:
                pass

    def look(self, *, is_power_cut: bool) -> None:
        """Open the directory with a new broker, and compare it with the books."""
        clock = MockClock(autojump_threshold=0)
        try:
            trio.run(self._look, clock, is_power_cut, clock=clock)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            self.violations.append(f"the directory cannot be used: {_shown(error)}")

    async def _work(self, clock: MockClock) -> None:
        network = MemoryNetwork()
        virtual = VirtualClock(clock)
        async with self._broker(network, virtual), _admin(network, virtual) as admin:
            await _try(lambda: create_topic(admin, _PLAIN))
            await _try(lambda: create_topic(admin, _COMPACTED, configs={"cleanup.policy": "compact"}))
            await _try(lambda: create_topic(admin, _TRANSACTIONS))
            await self._send(network, virtual, _PLAIN, 12)
            await self._send(network, virtual, _COMPACTED, 12)
            await self._transactions(network, virtual)
            await _try(lambda: self._commit(admin))
            kept = {"retention.ms": "100000000"}
            await _try(lambda: alter_configs(admin, Resource.TOPIC, _PLAIN, changes=kept))
            await _try(lambda: create_partitions(admin, _PLAIN, 2))
            await _try(lambda: create_topic(admin, "short-lived"))
            await _try(lambda: delete_topic(admin, "short-lived"))
            await trio.sleep(10)  # time for the cleaner, and to delete the files of deleted topics
            await self._send(network, virtual, _COMPACTED, 3)

    def _broker(self, network: MemoryNetwork, clock: VirtualClock) -> AbstractAsyncContextManager[Broker]:
        return open_broker(
            "/data",
            host=_HOST,
            port=_PORT,
            listen=network.listen,
            clock=clock,
            files=self.files,
            config=_CONFIG,
        )

    async def _send(self, network: MemoryNetwork, clock: VirtualClock, topic: str, count: int) -> None:
        sent = self.books.sent.setdefault(topic, [])
        acknowledged = self.books.acknowledged.setdefault(topic, set())
        async with _producer(network, clock) as producer:
            for number in range(len(sent), len(sent) + count):
                sent.append(b"%d " % number + _VALUE)
                with suppress(KafkaError):
                    await (
                        await producer.send(topic, sent[number], key=b"%d" % (number % _KEYS), partition=0)
                    )
                    acknowledged.add(number)

    async def _transactions(self, network: MemoryNetwork, clock: VirtualClock) -> None:
        with suppress(KafkaError):
            async with _producer(network, clock, transactional_id="x") as producer:
                await producer.init_transactions()
                for number in range(3):
                    await producer.begin_transaction()
                    for each in range(2):
                        await producer.send(_TRANSACTIONS, b"%d %d" % (number, each), partition=0)
                    if number == 1:
                        await producer.abort_transaction()
                    else:
                        await producer.commit_transaction()
                        self.books.committed.add(number)

    async def _commit(self, admin: ClusterClient) -> None:
        where = TopicPartition(_PLAIN, 0)
        for offset in (1, 2):
            await commit_offsets(admin, "group", {where: OffsetAndMetadata(offset, "")})
            self.books.offset = offset

    async def _look(self, clock: MockClock, is_power_cut: bool) -> None:
        network = MemoryNetwork()
        virtual = VirtualClock(clock)
        async with self._broker(network, virtual) as broker:
            logs = broker.logs.logs
            there = [name for name in _TOPICS if TopicPartition(name, 0) in logs]
            async with _admin(network, virtual) as admin:
                for name in _TOPICS:
                    if name in there:
                        self._compare(name, await self._read(network, virtual, name), is_power_cut)
                    elif self.books.acknowledged.get(name) and not is_power_cut:
                        self.violations.append(f"topic {name} is gone")
                    else:
                        await create_topic(admin, name)
                await self._offset(admin, is_power_cut)
                async with _producer(network, virtual) as producer:
                    for name in _TOPICS:
                        await (await producer.send(name, b"again", key=b"again", partition=0))
                await delete_records(admin, TopicPartition(_PLAIN, 0), 1)

    async def _read(self, network: MemoryNetwork, clock: VirtualClock, topic: str) -> list[bytes]:
        settings = FetchSettings(isolation_level=IsolationLevel.READ_COMMITTED, max_wait_ms=100)
        found: list[bytes] = []
        async with open_fetch_client(
            [(_HOST, _PORT)], connect=network.connect, clock=clock, settings=settings
        ) as client:
            end = (await client.offsets(topic, [0], LATEST))[0]
            position = 0
            with trio.move_on_after(300):
                while position < end:
                    for news in await client.fetch(topic, {0: position}):
                        position = news.next_offset
                        found += [record.value or b"" for record in news.records]
                return found
        self.violations.append(f"{topic} cannot be read beyond offset {position} of {end}")
        return found

    def _compare(self, topic: str, found: list[bytes], is_power_cut: bool) -> None:
        if topic == _TRANSACTIONS:
            self._compare_transactions(found, is_power_cut)
            return
        sent, acknowledged = self.books.sent[topic], self.books.acknowledged[topic]
        numbers = [sent.index(value) if value in sent else -1 for value in found]
        if numbers != sorted(set(numbers)) or -1 in numbers:
            self.violations.append(f"{topic}: records {numbers}")
        # Compaction leaves the newest of each key; after a power cut the end may be missing.
        until = max(numbers, default=-1) if is_power_cut else len(sent)
        needed = {number for number in acknowledged if number <= until}
        if topic == _COMPACTED:
            needed -= {
                old for old in needed if any(new > old and new % _KEYS == old % _KEYS for new in numbers)
            }
        if lost := needed - set(numbers):
            self.violations.append(
                f"{topic}: {len(lost)} acknowledged records are gone, {min(lost)} is the first"
            )

    def _compare_transactions(self, found: list[bytes], is_power_cut: bool) -> None:
        whole = {number: [b"%d %d" % (number, each) for each in range(2)] for number in range(3)}
        numbers = [number for number, values in whole.items() if set(values) & set(found)]
        if found != [value for number in numbers for value in whole[number]] or 1 in numbers:
            self.violations.append(f"{_TRANSACTIONS}: {found}")
        if not is_power_cut and (lost := self.books.committed - set(numbers)):
            self.violations.append(f"{_TRANSACTIONS}: {sorted(lost)} are gone")

    async def _offset(self, admin: ClusterClient, is_power_cut: bool) -> None:
        found = (await committed_offsets(admin, "group")).get(TopicPartition(_PLAIN, 0))
        offset = -1 if found is None else found.offset
        if offset < self.books.offset and not is_power_cut:
            self.violations.append(f"the committed offset is {offset}, not {self.books.offset}")


def _admin(network: MemoryNetwork, clock: VirtualClock) -> AbstractAsyncContextManager[ClusterClient]:
    return open_cluster_client([(_HOST, _PORT)], connect=network.connect, clock=clock)


def _producer(network: MemoryNetwork, clock: VirtualClock, **options: Any) -> AsyncKafkaProducer:
    return AsyncKafkaProducer(
        connect=network.connect,
        clock=clock,
        bootstrap_servers=f"{_HOST}:{_PORT}",
        linger_ms=0,
        request_timeout_ms=2_000,
        delivery_timeout_ms=10_000,
        max_block_ms=10_000,
        **options,
    )


async def _try(step: Callable[[], Awaitable[object]]) -> None:
    """Run a step. An error that the client gets is no violation: the books do not count the step as done."""
    with suppress(KafkaError):
        await step()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _shown(error: BaseException) -> str:
    first = _first(error)
    return f"{type(first).__name__}: {first}"


def run_once(kind: str, operation: int) -> list[str]:
    """Run the workload with this failure at this operation, and return the violations."""
    files = MemoryFiles()
    runner = Runner(files)
    files.inject(attrs.evolve(KINDS[kind], after=operation))
    try:
        runner.work()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        if not isinstance(_first(error), KafkaStorageError):  # a broker may refuse to start on a failing disk
            runner.violations.append(f"the broker ended with {_shown(error)}")
    files.heal()
    if kind == "a power cut":
        files.crash(random.Random(operation))
    else:
        files.kill()
    runner.look(is_power_cut=kind == "a power cut")
    return runner.violations


def count_operations() -> int:
    """Run the workload without a failure, and return the number of its disk operations."""
    files = MemoryFiles()
    runner = Runner(files)
    runner.work()
    operations = files.operations
    runner.look(is_power_cut=False)
    assert not runner.violations, runner.violations
    return operations


def main() -> int:
    """Run every failure, or those of one kind; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m lab.every_write", description=__doc__)
    parser.add_argument("--kind", choices=sorted(KINDS), help="only this kind of failure")
    parser.add_argument("--every", metavar="N", type=int, default=1, help="only every N-th operation (1)")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    kinds = [options.kind] if options.kind else list(KINDS)
    operations = range(0, count_operations(), options.every)
    broken = 0
    for kind in kinds:
        for operation in operations:
            for violation in run_once(kind, operation):
                broken += 1
                print(f"violated: {kind} at operation {operation}: {violation}", flush=True)
        print(f"{kind}: at each of {len(operations)} operations", flush=True)
    print(f"every-write: {len(kinds) * len(operations):,} runs, {broken} promises broken")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
