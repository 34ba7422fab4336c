"""What clients see of a cluster whose brokers stop and start: leaders, replicas, coordinators.

The other behaviours run on a cluster that others operate. These stop and kill its brokers, so they
take a `Brokers`: an `EmbeddedCluster` is one, and three processes of a real Kafka can be one. They look at
the cluster through requests of Kafka's protocol alone; brokers are ended and started by other means.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from inspect import cleandoc
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from splashdam.client.future import RecordFuture
from splashdam.client.producer import KafkaProducer
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.cluster import PartitionInfo
from splashdam.model.errors import KafkaError
from splashdam.model.values import TopicPartition
from splashdam.net.admin.elections import Election, elect_leaders
from splashdam.net.admin.topics import create_topic, describe_topic
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.testing.contract.behaviour import PREFIX, BrokenPromise, expect
from splashdam.testing.contract.behaviours.batches import batch_of, produced
from splashdam.testing.contract.clients.splashdam_client import SplashdamClient
from splashdam.testing.contract.raw_connection import RawConnection
from splashdam.testing.contract.running import Verdict
from splashdam.testing.contract.vocabulary import Refused
from splashdam.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from splashdam.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

T = TypeVar("T")

PATIENCE_SECONDS = 120.0
"""How long a change may take: a broker's session has to time out, and a JVM to start."""

_PAUSE_SECONDS = 0.05
_DELIVERY_MS = 100_000
_RECORDS = 20
_TRANSACTIONS, _OFFSETS = "__transaction_state", "__consumer_offsets"
"""Each has one partition here, so that its leader coordinates every key."""


class Brokers(Protocol):
    """The brokers of a cluster, which can be ended and started one by one."""

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of all, running or not."""

    @property
    def nodes(self) -> Sequence[int]:
        """Their node ids."""

    def stop(self, node: int) -> None:
        """End a broker in order; return when it has ended."""

    def kill(self, node: int) -> None:
        """End a broker as ``kill -9`` does."""

    def start(self, node: int) -> None:
        """Start a broker that is down; return when it answers."""

    def is_up(self, node: int) -> bool:
        """Whether it runs."""


@runtime_checkable
class FreezableBrokers(Protocol):
    """Brokers that can be made to hang."""

    def freeze(self, node: int) -> None:
        """Let a broker hang, with its connections open."""

    def thaw(self, node: int) -> None:
        """Let a broker go on that hangs."""


class ClusterBehaviour(NamedTuple):
    """A promise of a cluster, and the function that checks it.

    Attributes:
        name: of the function.
        text: docstring of the function: what clients may rely on.
        check: the function.
        freezes: whether a broker has to hang for it.
    """

    name: str
    text: str
    check: Callable[[ClusterRun], None]
    freezes: bool = False

    @property
    def title(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ")


class ClusterResult(NamedTuple):
    """The result of a behaviour.

    Attributes:
        behaviour: the behaviour.
        verdict: whether it holds.
        why: what was found instead, or why it was left out.
        seconds: its duration.
    """

    behaviour: ClusterBehaviour
    verdict: Verdict
    why: str = ""
    seconds: float = 0.0


CLUSTER_BEHAVIOURS: list[ClusterBehaviour] = []


def cluster_behaviour(
    *, freezes: bool = False
) -> Callable[[Callable[[ClusterRun], None]], Callable[[ClusterRun], None]]:
    """Declare a function as a behaviour of a cluster; for ``freezes`` see `ClusterBehaviour`."""

    def declare(check: Callable[[ClusterRun], None]) -> Callable[[ClusterRun], None]:
        text = cleandoc(check.__doc__ or "")
        CLUSTER_BEHAVIOURS.append(ClusterBehaviour(check.__name__, text, check, freezes))
        return check

    return declare


def hold_on_brokers(behaviour: ClusterBehaviour, brokers: Brokers) -> ClusterResult:
    """Check one behaviour; afterwards every broker runs again."""
    if behaviour.freezes and not isinstance(brokers, FreezableBrokers):
        return ClusterResult(
            behaviour, Verdict.LEFT_OUT, "these brokers share a process: none can hang alone"
        )
    run = ClusterRun(brokers)
    begun = time.monotonic()
    verdict, why = Verdict.HOLDS, ""
    try:
        behaviour.check(run)
    except (BrokenPromise, Refused, KafkaError, OSError) as error:
        verdict, why = Verdict.BROKEN, f"{type(error).__name__}: {error}"
    finally:
        run.restore()
    return ClusterResult(behaviour, verdict, why, time.monotonic() - begun)


class ClusterRun:
    """One run of a behaviour: topics of its own, and brokers that are up again at its end.

    Args:
        brokers: of the cluster.
    """

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.client = SplashdamClient(brokers.bootstrap_servers)
        self._topics: list[str] = []

    def name(self) -> str:
        """Return an unused name."""
        return f"{PREFIX}{secrets.token_hex(4)}"

    def topic(self, *replicas: int, **configs: str) -> str:
        """Create a topic with one partition on these brokers, the preferred leader first.

        ``configs`` are Kafka's names with ``_`` for ``.``.
        """
        name = self.name()
        self._topics.append(name)
        dotted: dict[str, str | None] = {key.replace("_", "."): value for key, value in configs.items()}
        self.client.administer(
            lambda client: create_topic(client, name, assignments={0: list(replicas)}, configs=dotted)
        )
        self.eventually(lambda: expect(self.partition(name).isr, replicas, "ISR"))
        self.eventually(lambda: self.client.offsets(name, "latest"))
        return name

    def partition(self, topic: str, number: int = 0) -> PartitionInfo:
        """Return what Metadata says of a partition."""
        info = self.client.administer(lambda client: describe_topic(client, topic))
        return info.partitions[number]

    def ask(self, task: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """Ask the cluster something that `SplashdamClient` has no operation for."""
        return self.client.administer(task)

    def produce(self, topic: str, *values: str, acks: str | int = "all") -> list[int]:
        """Send records, and return their offsets once each is acknowledged."""
        with self.producer(acks=acks, enable_idempotence=acks == "all") as producer:
            futures = [producer.send(topic, value.encode(), partition=0) for value in values]
            return [offset_of(future) for future in futures]

    def producer(self, **options: object) -> KafkaProducer:
        """Return a producer that waits for elections."""
        settings = {"delivery_timeout_ms": _DELIVERY_MS, "request_timeout_ms": 10_000, **options}
        return self.client.producer(max_block_ms=_DELIVERY_MS, **settings)

    def values(self, topic: str, isolation: str = "read_uncommitted") -> list[str]:
        """Return the values of all records."""
        end = self.client.offsets(topic, "latest")
        found = self.client.fetch(topic, count=end, isolation=isolation, timeout_ms=2_000)
        return [(each.value or b"").decode() for each in found if each.offset < end]

    def eventually(self, look: Callable[[], object]) -> None:
        """Repeat ``look`` until it raises nothing.

        Raises:
            BrokenPromise, Refused, KafkaError: as raised by the last call.
        """
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                look()
            except (BrokenPromise, Refused, KafkaError, OSError):
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                return

    def restore(self) -> None:
        """Start every broker that is down, and delete the topics."""
        for node in self.brokers.nodes:
            if isinstance(self.brokers, FreezableBrokers):
                self.brokers.thaw(node)
            if not self.brokers.is_up(node):
                self.brokers.start(node)
        for topic in self._topics:
            with suppress(Refused, KafkaError):
                self.client.call("delete_topic", topic=topic)


def offset_of(future: RecordFuture) -> int:
    """Return the offset of an acknowledged record."""
    return future.get(timeout=_DELIVERY_MS / 1000).offset


def _numbered(first: int = 0) -> list[str]:
    return [f"record {number}" for number in range(first, first + _RECORDS)]


@cluster_behaviour()
def a_killed_leader_is_replaced(run: ClusterRun) -> None:
    """Another in-sync replica leads, in a later epoch; what was acknowledged is there; sending goes on."""
    first, second, third = run.brokers.nodes
    topic = run.topic(first, second, third)
    offsets = run.produce(topic, *_numbered())
    epoch = run.partition(topic).leader_epoch
    run.brokers.kill(first)
    run.eventually(lambda: expect(run.partition(topic).leader in (second, third), True, "another leads"))
    offsets += run.produce(topic, *_numbered(_RECORDS))
    expect(run.partition(topic).leader_epoch > epoch, True, "a later epoch")
    expect(offsets, list(range(2 * _RECORDS)), "offsets")
    expect(run.values(topic), _numbered() + _numbered(_RECORDS), "values")


@cluster_behaviour()
def a_broker_that_stops_hands_its_partitions_over(run: ClusterRun) -> None:
    """A controlled shutdown: the leader is another one when the broker has ended, and nothing is lost."""
    first, second, third = run.brokers.nodes
    topic = run.topic(first, second, third)
    run.produce(topic, *_numbered())
    run.brokers.stop(first)
    found = run.partition(topic)
    expect(found.leader in (second, third), True, "another leads")
    expect(first in found.isr, False, "the broker is in the ISR")
    run.produce(topic, *_numbered(_RECORDS))
    expect(run.values(topic), _numbered() + _numbered(_RECORDS), "values")


@cluster_behaviour()
def the_isr_shrinks_and_grows(run: ClusterRun) -> None:
    """A follower that is killed leaves the ISR, and is in it again once it has caught up."""
    first, second, third = run.brokers.nodes
    topic = run.topic(first, second, third)
    run.brokers.kill(third)
    run.eventually(lambda: expect(set(run.partition(topic).isr), {first, second}, "ISR"))
    run.produce(topic, *_numbered())
    run.brokers.start(third)
    run.eventually(lambda: expect(set(run.partition(topic).isr), {first, second, third}, "ISR"))
    expect(run.partition(topic).leader, first, "leader")
    run.brokers.kill(first)
    run.eventually(lambda: expect(run.values(topic), _numbered(), "values without the leader"))


@cluster_behaviour()
def a_preferred_election_gives_leadership_back(run: ClusterRun) -> None:
    """To the first replica; PREFERRED_LEADER_NOT_AVAILABLE while it is down, and nothing if it leads."""
    first, second, third = run.brokers.nodes
    topic = run.topic(first, second, third)
    where = TopicPartition(topic, 0)
    run.brokers.stop(first)
    expect(
        _elected(run, Election.PREFERRED, where), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "while it is down"
    )
    run.brokers.start(first)
    run.eventually(lambda: expect(len(run.partition(topic).isr), 3, "replicas in sync"))
    run.eventually(lambda: expect(_elected(run, Election.PREFERRED, where) in (0, None), True, "elected"))
    run.eventually(lambda: expect(run.partition(topic).leader, first, "leader"))
    expect(_elected(run, Election.PREFERRED, where), None, "a second time")


def _elected(run: ClusterRun, election: Election, where: TopicPartition) -> int | None:
    """Return the error code of an election, None if the partition needed none."""
    found = run.ask(lambda client: elect_leaders(client, election, [where]))
    if where not in found:
        return None
    error = found[where]
    return 0 if error is None else error.code


@cluster_behaviour()
def with_too_few_in_sync_nothing_is_appended(run: ClusterRun) -> None:
    """Below min.insync.replicas acks=all is NOT_ENOUGH_REPLICAS (19), and acks=1 goes on."""
    first, second, third = run.brokers.nodes
    topic = run.topic(first, second, third, min_insync_replicas="3")
    run.produce(topic, "before")
    run.brokers.kill(third)
    run.eventually(lambda: expect(len(run.partition(topic).isr), 2, "replicas in sync"))
    with _leader(run, topic) as conn:
        expect(produced(conn, topic, batch_of(b"refused")).error, ErrorCode.NOT_ENOUGH_REPLICAS, "error code")
        expect(produced(conn, topic, batch_of(b"one"), acks=1).error, 0, "error code with acks=1")
    run.brokers.start(third)
    run.eventually(lambda: expect(len(run.partition(topic).isr), 3, "replicas in sync"))
    run.produce(topic, "after")
    expect(run.values(topic), ["before", "one", "after"], "values")


@cluster_behaviour(freezes=True)
def an_append_whose_followers_hang_is_told_apart(run: ClusterRun) -> None:
    """If the ISR becomes too small after the append, it is NOT_ENOUGH_REPLICAS_AFTER_APPEND (20)."""
    brokers = run.brokers
    assert isinstance(brokers, FreezableBrokers)
    first, second, _ = brokers.nodes
    topic = run.topic(first, second, min_insync_replicas="2")
    run.produce(topic, "before")
    with _leader(run, topic) as conn:
        brokers.freeze(second)
        found = produced(conn, topic, batch_of(b"appended"))
    brokers.thaw(second)
    wanted = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)
    expect(found.error in wanted, True, f"error code {found.error}")
    run.eventually(lambda: expect(run.values(topic), ["before", "appended"], "values"))


@cluster_behaviour()
def a_reassigned_partition_moves_with_its_records(run: ClusterRun) -> None:
    """AlterPartitionReassignments returns at once; once its list is empty, the new replicas have it all."""
    first, second, third = run.brokers.nodes
    topic = run.topic(first, second)
    run.produce(topic, *_numbered())
    expect(_reassigned(run, topic, [third, second]), 0, "error code")
    run.eventually(lambda: expect(_moving(run, topic), False, "is moving"))
    run.eventually(lambda: expect(run.partition(topic).replicas, (third, second), "replicas"))
    run.eventually(lambda: expect(set(run.partition(topic).isr), {third, second}, "ISR"))
    run.brokers.kill(first)
    run.produce(topic, *_numbered(_RECORDS))
    expect(run.values(topic), _numbered() + _numbered(_RECORDS), "values")
    expect(
        _reassigned(run, topic, [99]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "to a broker that is not there"
    )
    expect(_reassigned(run, topic, None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "cancelled")


def _reassigned(run: ClusterRun, topic: str, replicas: list[int] | None) -> int:
    """Move partition 0 to these brokers, or cancel that; return the error code."""
    wanted = ReassignableTopic(
        name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)]
    )

    def code(answer: AlterPartitionReassignmentsResponse) -> int:
        return answer.error_code or answer.responses[0].partitions[0].error_code

    return run.ask(
        lambda client: client.controller(AlterPartitionReassignmentsRequest(topics=[wanted]), code)
    )


def _moving(run: ClusterRun, topic: str) -> bool:
    def names(answer: ListPartitionReassignmentsResponse) -> list[str]:
        return [each.name for each in answer.topics]

    return topic in run.ask(
        lambda client: client.controller(ListPartitionReassignmentsRequest(topics=None), names)
    )


@cluster_behaviour()
def an_unclean_election_truncates_the_others(run: ClusterRun) -> None:
    """A replica that lacks records leads if it is asked to; the others cut theirs to its log, and agree."""
    first, second, _ = run.brokers.nodes
    topic = run.topic(first, second)
    where = TopicPartition(topic, 0)
    run.produce(topic, *_numbered())
    run.brokers.stop(second)
    run.eventually(lambda: expect(run.partition(topic).isr, (first,), "ISR"))
    run.produce(topic, "lost", "lost as well")
    run.brokers.kill(first)
    run.brokers.start(second)
    run.eventually(lambda: expect(run.partition(topic).leader, -1, "leader"))
    run.eventually(lambda: expect(_elected(run, Election.UNCLEAN, where) in (0, None), True, "elected"))
    run.eventually(lambda: expect(run.partition(topic).leader, second, "leader"))
    run.produce(topic, "kept")
    run.brokers.start(first)
    run.eventually(lambda: expect(set(run.partition(topic).isr), {first, second}, "ISR"))
    expect(run.values(topic), [*_numbered(), "kept"], "values")
    run.brokers.stop(second)
    run.eventually(
        lambda: expect(run.values(topic), [*_numbered(), "kept"], "values of the one that truncated")
    )


@cluster_behaviour()
def a_transaction_outlives_its_coordinator(run: ClusterRun) -> None:
    """The next leader of its partition of __transaction_state commits it: it is seen once, as a whole."""
    first, second, third = run.brokers.nodes
    topic = run.topic(first, second, third)
    with run.producer(transactional_id=run.name()) as producer:
        producer.init_transactions()
        for turn in range(2):
            producer.begin_transaction()
            for number in range(_RECORDS):
                producer.send(topic, f"{turn}-{number}".encode(), partition=0)
            producer.flush()
            if turn == 0:
                run.brokers.kill(run.partition(_TRANSACTIONS).leader)
            producer.commit_transaction()
            _start_all(run, _TRANSACTIONS)
        producer.begin_transaction()
        producer.send(topic, b"aborted", partition=0).get(timeout=_DELIVERY_MS / 1000)
        run.brokers.kill(run.partition(_TRANSACTIONS).leader)
        producer.abort_transaction()
    wanted = [f"{turn}-{number}" for turn in range(2) for number in range(_RECORDS)]
    run.eventually(lambda: expect(run.values(topic, "read_committed"), wanted, "values"))


@cluster_behaviour()
def offsets_outlive_their_coordinator(run: ClusterRun) -> None:
    """What was committed is what the next leader of the partition of __consumer_offsets knows."""
    first, second, third = run.brokers.nodes
    topic, group = run.topic(first, second, third), run.name()
    run.produce(topic, "a", "b")
    run.eventually(lambda: run.client.commit(group, topic, {0: (1, "note")}))
    run.brokers.kill(run.partition(_OFFSETS).leader)
    run.eventually(lambda: expect(run.client.committed(group, topic), {0: (1, "note")}, "committed"))
    run.eventually(lambda: run.client.commit(group, topic, {0: (2, "")}))
    _start_all(run, _OFFSETS)
    run.brokers.stop(run.partition(_OFFSETS).leader)
    run.eventually(lambda: expect(run.client.committed(group, topic), {0: (2, "")}, "committed"))


def _start_all(run: ClusterRun, topic: str) -> None:
    for node in run.brokers.nodes:
        if not run.brokers.is_up(node):
            run.brokers.start(node)
    run.eventually(lambda: expect(len(run.partition(topic).isr), 3, "in sync"))


def _leader(run: ClusterRun, topic: str) -> RawConnection:
    """Connect to the leader of partition 0."""
    leader = run.partition(topic).leader
    node = run.ask(lambda client: client.cluster([topic])).nodes[leader]
    return RawConnection(node.host, node.port)
