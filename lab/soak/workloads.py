"""The threads that use the cluster for hours, and check the records that they read."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import kafka
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError as ForeignError
from kafka.errors import UnknownTopicOrPartitionError

from lab.soak.cluster_process import BROKERS, ClusterProcess
from splashdam import KafkaProducer
from splashdam.model.errors import KafkaError

PARTITIONS = 2
_DELIVERY_MS = 180_000
_TICK_SECONDS = 0.25
_SILENCE_SECONDS = 300
"""Limit for one read of a whole topic, and for the next record of a reader: a broker is down for seconds."""


class Workload(ABC):
    """A thread that works until it is stopped.

    Args:
        address: of the brokers.
        rate: records per second, about.
        seed: of the random choices.

    Attributes:
        name: for the summary.
        counts: how often each thing was done.
        violations: the promises that were broken.
        written: numbers that the writer has used up; all below are acknowledged.
        has_written: set at the end of the writer.
    """

    name: ClassVar[str]
    configs: ClassVar[dict[str, str] | None] = None
    """Configs of the topic ``soak-NAME``; None if the workload has no topic of its own."""
    replicas: ClassVar[int] = 3

    def __init__(self, address: str, rate: float, seed: int) -> None:
        self.address, self.rate = address, rate
        self.topic = f"soak-{self.name}"
        self.dice = random.Random(f"{seed}-{self.name}")
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.ending = threading.Event()
        self.written = 0
        self.has_written = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"soak {self.name}", daemon=True)
            for work in self.work()
        ]

    @abstractmethod
    def work(self) -> Sequence[Callable[[], None]]:
        """Return the loops to run, each in a thread of its own, until ``ending`` is set."""

    def start(self) -> None:
        """Create the topic, and start the threads."""
        if self.configs is not None:
            with administering(self.address) as admin:
                made = NewTopic(self.topic, PARTITIONS, self.replicas, topic_configs=self.configs)
                admin.create_topics([made])
        for thread in self._threads:
            thread.start()

    def join(self, seconds: float) -> None:
        """Wait until the threads have ended; ``ending`` must be set."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0, deadline - time.monotonic()))
            if thread.is_alive():
                self.violations.append(f"{self.name}: a thread did not end")

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.violations.append(f"{self.name} ended with {type(error).__name__}: {error}")

    def producer(self, **options: Any) -> KafkaProducer:
        """Return a producer that outlasts every outage."""
        return KafkaProducer(
            bootstrap_servers=self.address,
            delivery_timeout_ms=_DELIVERY_MS,
            max_block_ms=_DELIVERY_MS,
            request_timeout_ms=10_000,
            **options,
        )

    @contextmanager
    def writing(self, **options: Any) -> Iterator[KafkaProducer]:
        """Yield a producer for the one writer of the topic; its end is the end of writing."""
        try:
            with self.producer(**options) as producer:
                yield producer
        finally:
            self.has_written.set()

    def records(self, isolation: str, wanted: Callable[[], int]) -> Iterator[Any]:
        """Yield the records of the topic as kafka-python reads them, up to the last that was written.

        A consumer whose broker has died is opened again at its last position. One that gets no further is a
        violation.

        Args:
            isolation: Kafka's isolation level.
            wanted: returns the number that the reader waits for, in the partition that is furthest behind.
        """
        positions = dict.fromkeys(self.places(), 0)
        read_at = time.monotonic()
        while True:
            try:
                with self.consumer(isolation_level=isolation, auto_offset_reset="none") as consumer:
                    consumer.assign(list(positions))
                    for place, offset in positions.items():
                        consumer.seek(place, offset)
                    while not self._is_read(wanted(), time.monotonic() - read_at):
                        for place, found in consumer.poll(timeout_ms=500, max_records=2000).items():
                            for record in found:
                                positions[place] = record.offset + 1
                                yield record
                            read_at = time.monotonic()
            except ForeignError:
                self.counts["readers opened again"] += 1
            else:
                return

    def _is_read(self, wanted: int, silence_seconds: float) -> bool:
        """Return whether a reader is at the end, or has got no further for too long."""
        if self.has_written.is_set() and wanted >= self.written:
            return True
        if silence_seconds <= _SILENCE_SECONDS:
            return False
        self.violations.append(f"{self.topic}: {wanted} was not read, and {self.written} are written")
        return True

    def places(self) -> list[Any]:
        """Return the partitions of the topic, as kafka-python names them."""
        return [kafka.TopicPartition(self.topic, number) for number in range(PARTITIONS)]

    @contextmanager
    def consumer(self, *topics: str, **options: Any) -> Iterator[Any]:
        """Yield a consumer of kafka-python, which commits nothing by itself."""
        reader = kafka.KafkaConsumer(
            *topics, bootstrap_servers=self.address, enable_auto_commit=False, **options
        )
        try:
            yield reader
        finally:
            with suppress(ForeignError):
                reader.close()


class Retained(Workload):
    """Numbered records under retention; a reader at the end must see each number once, in order."""

    name = "retained"
    configs: ClassVar[dict[str, str] | None] = {"cleanup.policy": "delete"}

    def work(self) -> Sequence[Callable[[], None]]:
        return (self._write, self._read)

    def _write(self) -> None:
        filler = self.dice.randbytes(400)
        per_tick = max(1, int(self.rate * _TICK_SECONDS))
        with self.writing() as producer:
            while not self.ending.wait(_TICK_SECONDS):
                futures = [
                    producer.send(self.topic, b"%d " % each + filler, partition=partition)
                    for each in range(self.written, self.written + per_tick)
                    for partition in range(PARTITIONS)
                ]
                for future in futures:
                    future.get(timeout=_DELIVERY_MS / 1000)
                self.written += per_tick
                self.counts["records written"] += len(futures)

    def _read(self) -> None:
        wanted = dict.fromkeys(range(PARTITIONS), 0)
        for record in self.records("read_uncommitted", lambda: min(wanted.values())):
            number = int(record.value.split(b" ", 1)[0])
            if number != wanted[record.partition]:
                place, due = f"{self.topic}-{record.partition}", wanted[record.partition]
                self.violations.append(f"{place}: {number} at offset {record.offset}, not {due}")
            wanted[record.partition] = number + 1
            self.counts["records checked"] += 1


class Compacted(Workload):
    """Keys whose values are versions; a whole read must have the newest version of each."""

    name = "compacted"
    configs: ClassVar[dict[str, str] | None] = {
        "cleanup.policy": "compact",
        "retention.bytes": "-1",
        "segment.bytes": str(256 << 10),
    }
    _KEYS = 300
    _READ_SECONDS = 30
    _ENDS = 3

    def work(self) -> Sequence[Callable[[], None]]:
        self._versions: dict[int, int] = {}
        return (self._write, self._check)

    def _write(self) -> None:
        version, filler = 0, self.dice.randbytes(300)
        with self.writing() as producer:
            while not self.ending.wait(_TICK_SECONDS):
                version += 1
                count = min(self._KEYS, max(1, int(self.rate * _TICK_SECONDS)))
                keys = self.dice.sample(range(self._KEYS), count)
                futures = [
                    producer.send(
                        self.topic, b"%d " % version + filler, key=b"%d" % key, partition=key % PARTITIONS
                    )
                    for key in keys
                ]
                for future in futures:
                    future.get(timeout=_DELIVERY_MS / 1000)
                self._versions.update(dict.fromkeys(keys, version))
                self.counts["records written"] += len(keys)

    def _check(self) -> None:
        while not self.ending.wait(self._READ_SECONDS):
            self._try_to_compare()
        self.has_written.wait(_DELIVERY_MS / 1000)
        # What was written last counts, too. Every broker runs by now, though a reader may notice that late.
        if not any(self._try_to_compare() for _ in range(self._ENDS)):
            self.violations.append(f"{self.topic} could not be read at the end")

    def _try_to_compare(self) -> bool:
        """Compare, and return whether the reader got through; one whose broker dies does not."""
        try:
            self.compare()
        except ForeignError:
            self.counts["readers opened again"] += 1
            return False
        return True

    def compare(self) -> None:
        """Read the whole topic, which must have the newest version of each key that was written before.

        While the reader is on its way, a key may get a version behind the end that the reader goes to, and
        the cleaner may remove the older one before the reader comes to it. So the reader goes on to the new
        end if a key is missing; that takes no time in which much could be written.
        """
        known, newest = self._versions.copy(), dict[int, int]()
        with self.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign(self.places())
            consumer.seek_to_beginning()
            for _ in range(self._ENDS):
                self._read_to_the_end(consumer, newest)
                older = [key for key, version in known.items() if newest.get(key, 0) < version]
                if not older:
                    break
        for key in older[:1]:
            self.violations.append(
                f"{self.topic}: key {key} has version {newest.get(key)}, not {known[key]};"
                f" {len(older)} keys are so"
            )
        self.counts["whole reads"] += 1
        self.counts["records checked"] += len(known)

    def _read_to_the_end(self, consumer: Any, newest: dict[int, int]) -> None:
        places = self.places()
        ends = consumer.end_offsets(places)
        deadline = time.monotonic() + _SILENCE_SECONDS
        while any(consumer.position(place) < ends[place] for place in places):
            if time.monotonic() > deadline:
                self.violations.append(f"{self.topic} could not be read up to {ends}")
                break
            for found in consumer.poll(timeout_ms=500, max_records=5000).values():
                for record in found:
                    newest[int(record.key)] = int(record.value.split(b" ", 1)[0])


class Transactional(Workload):
    """Transactions, a third of them aborted; a read_committed consumer must see all others, each whole."""

    name = "transactions"
    configs: ClassVar[dict[str, str] | None] = {"cleanup.policy": "delete"}
    _EACH = 5
    _ABORTED = 3

    def work(self) -> Sequence[Callable[[], None]]:
        return (self._write, self._read)

    def _write(self) -> None:
        filler = self.dice.randbytes(200)
        with self.writing(transactional_id="soak", transaction_timeout_ms=60_000) as producer:
            producer.init_transactions()
            while not self.ending.wait(self._EACH * PARTITIONS / max(self.rate, 1)):
                producer.begin_transaction()
                for each in range(self._EACH):
                    for partition in range(PARTITIONS):
                        value = b"%d %d " % (self.written, each) + filler
                        producer.send(self.topic, value, partition=partition)
                if self.written % self._ABORTED == self._ABORTED - 1:
                    producer.abort_transaction()
                    self.counts["aborted"] += 1
                else:
                    producer.commit_transaction()
                    self.counts["committed"] += 1
                self.written += 1

    def _read(self) -> None:
        wanted = dict.fromkeys(range(PARTITIONS), (0, 0))
        for record in self.records("read_committed", lambda: min(wanted.values())[0]):
            number, each = map(int, record.value.split(b" ", 2)[:2])
            if (number, each) != wanted[record.partition]:
                self.violations.append(
                    f"{self.topic}-{record.partition}: {number}.{each}, not {wanted[record.partition]}"
                )
            each += 1
            if each == self._EACH:
                number, each = number + 1, 0
                number += number % self._ABORTED == self._ABORTED - 1
            wanted[record.partition] = number, each
            self.counts["records checked"] += 1


class Churn(Workload):
    """Topics and groups that come and go."""

    name = "churn"
    _RECORDS = 50

    def work(self) -> Sequence[Callable[[], None]]:
        return (self._churn,)

    def _churn(self) -> None:
        number = 0
        there: set[str] = set()
        while not self.ending.wait(1):
            number += 1
            topic = f"soak-churn-{number}"
            there.add(topic)
            try:
                self._once(topic, f"soak-group-{number}")
                self.counts["topics and groups"] += 1
            except (KafkaError, ForeignError):
                self.counts["interrupted by a fault"] += 1
            self._delete(there)

    def _once(self, topic: str, group: str) -> None:
        with administering(self.address) as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS, self.replicas)])
            with self.producer() as producer:
                for number in range(self._RECORDS):
                    producer.send(topic, b"%d" % number)
            self._consume(topic, group)
            admin.delete_groups([group])

    def _delete(self, topics: set[str]) -> None:
        """Delete topics; one whose deletion a fault interrupts stays in the set, for the next round."""
        with suppress(ForeignError), administering(self.address) as admin:
            for topic in tuple(topics):
                with suppress(UnknownTopicOrPartitionError):
                    admin.delete_topics([topic])
                topics.discard(topic)

    def _consume(self, topic: str, group: str) -> None:
        with self.consumer(topic, group_id=group, auto_offset_reset="earliest") as consumer:
            seen: Counter[int] = Counter()
            deadline = time.monotonic() + 60
            while len(seen) < self._RECORDS and time.monotonic() < deadline:
                for found in consumer.poll(timeout_ms=500).values():
                    seen.update(int(record.value) for record in found)
            if len(seen) < self._RECORDS:
                self.counts["groups that read too late"] += 1
            self.counts["records checked"] += len(seen)
            consumer.commit()


class Faults(Workload):
    """Brokers that are killed and stopped, leaders that move."""

    name = "faults"

    def __init__(self, cluster: ClusterProcess, pause_seconds: float, seed: int) -> None:
        self._cluster, self._pause_seconds = cluster, pause_seconds
        super().__init__(cluster.address, 0, seed)

    def work(self) -> Sequence[Callable[[], None]]:
        return (self._cause,)

    def _cause(self) -> None:
        while not self.ending.wait(self.dice.uniform(0.5, 1.5) * self._pause_seconds):
            node = self.dice.randint(1, BROKERS)
            if self.dice.random() < 0.4:
                topic = self.dice.choice(("soak-retained", "soak-compacted", "soak-transactions"))
                self._cluster.tell(f"move {topic} {self.dice.randrange(PARTITIONS)} {node}")
                self.counts["leader moves"] += 1
                continue
            how = self.dice.choice(("kill", "stop"))
            self._cluster.tell(f"{how} {node}")
            self.ending.wait(self.dice.uniform(0, 2))
            self._cluster.tell(f"start {node}")
            self._cluster.tell("sync")
            self.counts[f"brokers: {how}"] += 1


@contextmanager
def administering(address: str) -> Iterator[KafkaAdminClient]:
    """Yield kafka-python's admin client."""
    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        yield admin
    finally:
        with suppress(ForeignError):
            admin.close()
