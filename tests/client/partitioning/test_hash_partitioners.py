"""librdkafka's partitioners: against its vectors, and against itself."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from support.clients.librdkafka_mock import librdkafka_mock

from splashdam.client.partitioning.hash_partitioners import BY_NAME, crc32_hash, fnv1a_hash, murmur2_hash
from splashdam.client.partitioning.partitioners import (
    ClusterView,
    DefaultPartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
)
from splashdam.client.settings.rules import options_from_properties, producer_settings
from splashdam.model.cluster import ClusterMetadata, Node, PartitionInfo, TopicInfo
from splashdam.model.errors import KafkaConfigurationError

KEYS = [b"kafka", b"user-1", b"123456789", b"user-2", b"order:42", bytes(range(256)), b"\xff\xfe", b"a"]
HASHED = ["consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"]


def view(leaders: list[int]) -> ClusterView:
    partitions = tuple(PartitionInfo("t", number, leader) for number, leader in enumerate(leaders))
    return ClusterView(ClusterMetadata(nodes={0: Node(0, "h", 1)}, topics={"t": TopicInfo("t", partitions)}))


def place(name: str, key: bytes | None, leaders: list[int]) -> int:
    partition: int = BY_NAME[name]().partition("t", key, key, b"v", b"v", view(leaders))
    return partition


@pytest.mark.parametrize(
    ("key", "crc32", "murmur2", "fnv1a"),
    [
        (b"kafka", 11, 4, 5),
        (b"user-1", 8, 8, 0),
        (b"123456789", 2, 6, 0),
        (b"user-2", 10, 8, 3),
        (b"order:42", 11, 8, 5),
    ],
)
def test_vectors(key: bytes, crc32: int, murmur2: int, fnv1a: int) -> None:
    """Each vector's partition is one of 12."""
    assert [hashed(key) % 12 for hashed in (crc32_hash, murmur2_hash, fnv1a_hash)] == [crc32, murmur2, fnv1a]
    for name, expected in zip(HASHED, (crc32, crc32, murmur2, murmur2, fnv1a, fnv1a), strict=True):
        assert place(name, key, [0, -1] * 6) == expected


def test_keys_that_are_none_or_empty() -> None:
    """``consistent_random`` spreads both, the other ``_random`` null keys alone, the rest neither."""
    only_three = [-1, -1, -1, 0] + [-1] * 8
    assert place("consistent_random", b"", only_three) == 3
    assert place("consistent_random", None, only_three) == 3
    assert place("fnv1a_random", None, only_three) == 3
    assert place("murmur2_random", None, only_three) == 3
    assert place("fnv1a_random", b"", only_three) == 3  # and that is its hash, too
    assert place("fnv1a", b"", [0] * 12) == place("fnv1a", None, only_three) == 3
    assert place("murmur2", b"", [0] * 12) == place("murmur2", None, only_three) == 9
    assert place("consistent", None, only_three) == 0
    assert place("random", b"kafka", only_three) == 3


@pytest.mark.parametrize(("name", "key"), [("random", b"kafka"), ("random", b""), ("consistent_random", b"")])
def test_keys_that_do_not_count_go_everywhere(name: str, key: bytes) -> None:
    """A partitioner is told of new batches for null keys only, so nothing else may stick to a partition."""
    partitioner = BY_NAME[name]()
    chosen = {partitioner.partition("t", key, key, b"v", b"v", view([0] * 4)) for _ in range(200)}
    assert chosen == {0, 1, 2, 3}


def test_records_without_a_key_stay_together() -> None:
    """They fill batches: another partition only when one is complete."""
    partitioner = BY_NAME["consistent_random"]()
    chosen = {partitioner.partition("t", None, None, b"v", b"v", view([0] * 12)) for _ in range(50)}
    assert len(chosen) == 1
    partitioner.on_new_batch("t", view([0] * 12), *chosen)
    assert partitioner.partition("t", None, None, b"v", b"v", view([0] * 12)) not in chosen


@pytest.mark.parametrize("name", HASHED)
def test_keys_agree_with_confluent_kafka(name: str) -> None:
    """Each key goes to the partition that librdkafka chooses, in a topic with 12 partitions."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    placed: dict[bytes, int] = {}
    keys = [*KEYS, *(b"key-%d" % number for number in range(60))]
    keys += [] if name == "consistent_random" else [b""]
    with librdkafka_mock(1) as mock:
        mock.create_topic("t", 12)
        host, port = mock.bootstrap[0]
        producer = confluent_kafka.Producer({"bootstrap.servers": f"{host}:{port}", "partitioner": name})

        def delivered(error: Any, message: Any) -> None:
            assert error is None
            placed[message.key() or b""] = message.partition()

        for key in keys:
            producer.produce("t", b"v", key, on_delivery=delivered)
        assert producer.flush(300) == 0
    assert placed == {key: place(name, key, [0] * 12) for key in keys}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("org.apache.kafka.clients.producer.internals.DefaultPartitioner", DefaultPartitioner),
        ("org.apache.kafka.clients.producer.UniformStickyPartitioner", StickyPartitioner),
        ("org.apache.kafka.clients.producer.RoundRobinPartitioner", RoundRobinPartitioner),
        ("murmur2_random", DefaultPartitioner),
        ("consistent_random", StickyPartitioner),
    ],
)
def test_names(name: str, kind: type) -> None:
    """From properties, Kafka's and librdkafka's name for the option, and as a keyword."""
    for options in (
        options_from_properties({"partitioner.class": name}),
        options_from_properties({"partitioner": name}),
        {"partitioner": name},
    ):
        assert isinstance(producer_settings(options).partitioner, kind)


def test_unknown_names() -> None:
    """The message lists those that are known."""
    with pytest.raises(KafkaConfigurationError, match=r"partitioner='crc'.*consistent_random"):
        producer_settings({"partitioner": "crc"})
    with pytest.raises(KafkaConfigurationError, match=r"partitioner.class.*murmur2_random"):
        options_from_properties({"partitioner.class": "com.example.Mine"})


def test_they_pickle() -> None:
    """Part of a configuration that may travel to a worker."""
    for make in BY_NAME.values():
        again = pickle.loads(pickle.dumps(make()))
        assert again.partition("t", b"kafka", b"kafka", b"v", b"v", view([0] * 12)) in range(12)
