"""The scenario of a seed: cluster, topics, producers and faults, all drawn before anything runs.

A seed has only some kinds of faults, so that some runs meet a single kind often, and other faults do not hide
a wrong reaction to it.
"""

from __future__ import annotations

from random import Random
from typing import Any

import attrs

from splashdam.storage.manager.topic_registry import NewTopic

FAULTS = (
    "cut both",
    "cut client",
    "cut broker",
    "half alive",
    "stall",
    "lose",
    "slow",
    "doom",
    "refuse",
    "move",
    "stop",
    "kill",
    "power cut",
    "disk error",
    "disk full",
)
"""Kinds of faults, each of one broker.

``cut …``: its connections break, and the named end notices. ``half alive``: bytes wait, then the connections
break at the client's end alone. ``stall``: bytes wait. ``lose``: bytes are lost. ``slow``: bytes take longer.
``doom``: new connections break after some bytes. ``refuse``: new connections are refused. ``move``: a leader
moves to it. ``disk error``: some operations fail with EIO or ENOSPC.
"""
TROUBLES = ("retriable", "written", "refused", "sequence")
"""Kinds of errors in the answers to appends; see `AppendErrors`."""

_CALM = 0.04
"""The share of runs without faults: in them every record must be delivered."""

_NARROW_BYTES = 600
_TRANSACTIONAL = 0.4
"""The share of runs with one broker whose producers use transactions."""

_SYNCS_MS = (0, 0, 5, 60)
"""Longest times of a sync: meanwhile logs grow, and segments are closed."""

_LINES = ((1 << 20, 1), (3_000, 10), (1 << 20, 60), (_NARROW_BYTES, 10), (_NARROW_BYTES, 250))
"""Bytes that may travel in one direction, and their longest travelling time in milliseconds."""


@attrs.frozen
class PlannedFault:
    """A fault: its time, kind, broker and duration, and a random number for its details."""

    at_ms: float
    kind: str
    node_id: int
    for_ms: float
    number: int


@attrs.frozen
class ProducerPlan:
    """One producer.

    Attributes:
        name: begins each of its values, so that each value of the run is unique.
        options: of ``AsyncKafkaProducer``.
        bursts: number of bursts.
        largest_burst: most records of a burst.
        largest_value: most bytes of a value.
        pause_ms: longest pause between bursts.
        keyed: chance that a record has a key.
        steers: whether it names partitions.
        flushes: chance of a flush after a burst.
        cancels: chance that a send is cancelled after a few milliseconds.
        chains: chance that a callback sends a further record.
        many: chance that a burst is one call of ``send_many``.
        close: its end: ``close`` delivers everything, ``close 0`` and ``close soon`` have a timeout, and
            ``cancel`` cancels the block around it.
    """

    name: str
    options: dict[str, Any]
    bursts: int
    largest_burst: int
    largest_value: int
    pause_ms: float
    keyed: float
    steers: bool
    flushes: float
    cancels: float
    chains: float
    many: float
    close: str

    @property
    def is_transactional(self) -> bool:
        """Whether each of its bursts is a transaction."""
        return "transactional_id" in self.options

    @property
    def is_idempotent(self) -> bool:
        """Whether each of its records may be in the log only once."""
        return bool(self.options["enable_idempotence"])

    @property
    def is_patient(self) -> bool:
        """Whether all of its records must be delivered in a run without faults."""
        lives_long = bool(self.options["delivery_timeout_ms"] > 20_000)
        return self.close == "close" and lives_long and not self.is_transactional

    @property
    def keeps_order(self) -> bool:
        """Whether its records are in the log in the order of its sends.

        With ``acks=0`` the last records of a broken connection may arrive after later ones.
        """
        one_by_one = self.options["max_in_flight_requests_per_connection"] == 1
        return self.is_idempotent or (one_by_one and self.options["acks"] != 0)


@attrs.frozen
class ReplicationPlan:
    """Settings of replication.

    Attributes:
        factor: replicas of each partition.
        is_durable: whether every append is synced, so that a power cut loses nothing.
        session_ms: session timeout of brokers at the controller.
        settings: of the brokers.
    """

    factor: int
    is_durable: bool
    session_ms: float
    settings: dict[str, Any]


@attrs.frozen
class Scenario:
    """The run of one seed.

    Attributes:
        seed: decides everything.
        nodes: number of brokers.
        topics: with their configs.
        producers: the plans of the producers.
        faults: in their order.
        append_errors: rates of injected errors, by kind.
        capacity_bytes: bytes that may travel in one direction of a connection.
        distance_ms: longest travelling time in good weather.
        sync_ms: longest time of a sync.
        horizon_ms: when all faults are over.
        replication: None if partitions have a single replica, which moves with its leader.
    """

    seed: int
    nodes: int
    topics: list[NewTopic]
    producers: list[ProducerPlan]
    faults: list[PlannedFault]
    append_errors: dict[str, float]
    capacity_bytes: int
    distance_ms: float
    sync_ms: float
    horizon_ms: float
    replication: ReplicationPlan | None = None

    @property
    def is_calm(self) -> bool:
        """Whether it has no faults and no injected errors."""
        return not self.faults and not self.append_errors


def scenario(seed: int) -> Scenario:
    """Draw the scenario of a seed."""
    random = Random(f"scenario {seed}")
    nodes = random.choice((1, 1, 2, 3, 3))
    calm = random.random() < _CALM
    kinds = [] if calm else random.sample(FAULTS, random.randint(0, 5))
    if "power cut" in kinds and random.random() < 0.5:
        kinds.remove("power cut")
    horizon_ms = random.choice((800, 3_000, 8_000))
    capacity_bytes, distance_ms = random.choice(_LINES)
    topics = [
        _topic(random, number, durable="power cut" in kinds) for number in range(random.choice((1, 1, 2)))
    ]
    producers = [
        _producer(random, number, horizon_ms, narrow=capacity_bytes == _NARROW_BYTES)
        for number in range(random.choice((1, 1, 1, 2)))
    ]
    sync_ms = Random(f"syncs {seed}").choice(_SYNCS_MS)
    if sync_ms and "power cut" in kinds:
        crowd = Random(f"crowd {seed}")
        topics = [_narrow(topic) for topic in topics]
        producers += [
            _producer(crowd, len(producers) + number, horizon_ms, narrow=capacity_bytes == _NARROW_BYTES)
            for number in range(crowd.choice((1, 2, 3)))
        ]
    if nodes == 1 and Random(f"transactions {seed}").random() < _TRANSACTIONAL:
        producers = [in_transactions(plan) for plan in producers]
    faults, append_errors = (
        planned_faults(random, kinds, nodes, horizon_ms),
        {} if calm else append_error_rates(random),
    )
    return Scenario(
        seed=seed,
        nodes=nodes,
        topics=topics,
        producers=producers,
        faults=faults,
        append_errors=append_errors,
        capacity_bytes=capacity_bytes,
        distance_ms=distance_ms if faults or append_errors else 1,
        sync_ms=sync_ms,
        horizon_ms=horizon_ms,
    )


def _topic(random: Random, number: int, *, durable: bool) -> NewTopic:
    largest, segment = random.choice(
        ((1_048_588, 1 << 30), (1_048_588, 1 << 30), (700, 1 << 30), (700, 3_000), (2_000, 3_000))
    )
    configs = {
        "max.message.bytes": str(largest),
        "segment.bytes": str(segment),
        "message.timestamp.type": random.choice(("CreateTime", "CreateTime", "LogAppendTime")),
        "compression.type": random.choice(("producer", "producer", "gzip", "uncompressed")),
    }
    if durable or random.random() < 0.1:
        configs["flush.messages"] = "1"
    return NewTopic(f"topic-{number}", random.choice((1, 2, 4)), configs, random.randbytes(16))


def _narrow(topic: NewTopic) -> NewTopic:
    """Return the topic with one partition and small segments, so that a segment is closed during a sync.

    (This takes several producers: a broker does not read from a connection whose answer waits for the disk.)
    """
    largest = min(2_000, int(topic.configs["max.message.bytes"]))
    narrow = {"segment.bytes": "3000", "max.message.bytes": str(largest)}
    return attrs.evolve(topic, partitions=1, configs={**topic.configs, **narrow})


def _producer(random: Random, number: int, horizon_ms: float, *, narrow: bool) -> ProducerPlan:
    idempotent, bursts = random.random() < 0.75, random.randint(1, 24)
    acks: Any = "all" if idempotent else random.choice(("all", 1, 1, 0))
    request_ms = 5_000 if narrow else random.choice((200, 1_000, 5_000))
    linger_ms = random.choice((0, 0, 5, 100))
    options = {
        "acks": acks,
        "enable_idempotence": idempotent,
        "max_in_flight_requests_per_connection": random.choice((1, 2, 5) if idempotent else (1, 1, 5)),
        "linger_ms": linger_ms,
        "batch_size": random.choice((0, 200, 1_000, 16_384)),
        "compression_type": random.choice((None, None, "gzip")),
        "buffer_memory": random.choice((40_000, 1 << 20, 1 << 25)),
        "max_block_ms": random.choice((200, 3_000, 60_000)),
        "request_timeout_ms": request_ms,
        "delivery_timeout_ms": linger_ms + request_ms + random.choice((0, 0, 1_000, 30_000, 120_000)),
        "retry_backoff_ms": random.choice((10, 100)),
        "retry_backoff_max_ms": random.choice((100, 1_000)),
        "metadata_max_age_ms": random.choice((500, 300_000)),
        "connections_max_idle_ms": random.choice((400, 540_000)),
        "socket_connection_setup_timeout_ms": random.choice((500, 10_000)),
    }
    if random.random() < 0.1:
        options["retries"] = random.randint(0, 3)
        if idempotent:
            options["retries"] = max(1, options["retries"])
    return ProducerPlan(
        name=f"p{number}",
        options=options,
        bursts=bursts,
        largest_burst=random.choice((1, 5, 12, 40)),
        largest_value=random.choice((20, 300, 900)),
        pause_ms=random.choice((0, 20, 2 * horizon_ms / bursts, 2 * horizon_ms / bursts)),
        keyed=random.choice((0.0, 0.5)),
        steers=random.random() < 0.3,
        flushes=random.choice((0.0, 0.1, 0.5)),
        cancels=random.choice((0.0, 0.0, 0.2)),
        chains=random.choice((0.0, 0.0, 0.3)),
        many=random.choice((0.0, 0.2)),
        close=random.choices(("close", "close soon", "close 0", "cancel"), (12, 2, 1, 1))[0],
    )


def in_transactions(plan: ProducerPlan) -> ProducerPlan:
    options = {
        **plan.options,
        "acks": "all",
        "enable_idempotence": True,
        "transactional_id": f"transactions of {plan.name}",
        "transaction_timeout_ms": 10_000,
    }
    options.pop("retries", None)
    return attrs.evolve(plan, options=options, cancels=0.0, chains=0.0, many=0.0, flushes=0.1, close="close")


def planned_faults(random: Random, kinds: list[str], nodes: int, horizon_ms: float) -> list[PlannedFault]:
    if not kinds:
        return []
    faults = [
        PlannedFault(
            at_ms=random.uniform(0, horizon_ms * 0.9),
            kind=random.choice(kinds),
            node_id=random.randint(1, nodes),
            for_ms=random.choice((5, 100, 700, 2_500)) * random.uniform(0.5, 1.5),
            number=random.randrange(1 << 16),
        )
        for _ in range(random.choice((1, 3, 8, 14)))
    ]
    return sorted(faults, key=lambda fault: fault.at_ms)


def append_error_rates(random: Random) -> dict[str, float]:
    kinds = [kind for kind in TROUBLES if random.random() < 0.25]
    return {kind: random.choice((0.02, 0.1, 0.3)) for kind in kinds}
