"""The same lines of Python against kafka-python and splashdam, on one broker: what they return and raise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import kafka
import kafka.errors
import kafka.partitioner
import kafka.serializer
import pytest

import splashdam
import splashdam.errors
from splashdam import EmbeddedBroker

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of kafka-python, about its own past


class Client(NamedTuple):
    """A library, and a broker to use it with."""

    library: ModuleType
    errors: ModuleType
    servers: str

    def producer(self, **options: Any) -> Any:
        options = {"linger_ms": 0, "bootstrap_timeout_ms": 30_000, "max_block_ms": 10_000, **options}
        return self.library.KafkaProducer(bootstrap_servers=self.servers, **options)

    def outcome(self, call: Callable[[], Any]) -> Any:
        """What it returns, or the name of its error as kafka-python has it."""
        try:
            return call()
        except Exception as error:
            for name, kind in vars(kafka.errors).items():
                if isinstance(kind, type) and type(error) is getattr(self.errors, name, None):
                    return name
            return next(each.__name__ for each in type(error).__mro__ if each.__module__ == "builtins")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for all of them; topics have three partitions."""
    with EmbeddedBroker(tmp_path_factory.mktemp("data"), fsync=False, num_partitions=3) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def both(servers: str) -> Callable[[Callable[[Client], Any]], None]:
    """Runs a script with both and compares."""

    def run(script: Callable[[Client], Any]) -> None:
        theirs = script(Client(kafka, kafka.errors, servers))
        ours = script(Client(splashdam, splashdam.errors, servers))
        assert ours == theirs

    return run


RECORDS: list[dict[str, Any]] = [
    {"value": b"value"},
    {"key": b"key"},
    {"value": b"", "key": b""},
    {"value": bytearray(b"v"), "key": memoryview(b"k")},
    {"value": b"v", "headers": []},
    {"value": b"v", "headers": [("né", b"12"), ("né", b"")]},
    {"value": b"v", "timestamp_ms": 0},
    {"value": b"v", "timestamp_ms": 1234567890123},
]


def test_metadata(both: Any) -> None:
    """Fields, sizes and timestamps; offsets count on from where the other one has stopped."""

    def script(client: Client) -> Any:
        topic = f"metadata-{client.library.__name__}"
        with client.producer() as producer:
            found = [producer.send(topic, partition=1, **record).get(300) for record in RECORDS]
        given = ["timestamp_ms" in record for record in RECORDS]
        return [
            (m.partition, m.offset, m.checksum, m[-3:], m.timestamp if fixed else m.timestamp > 1e12)
            for m, fixed in zip(found, given, strict=True)
        ]

    both(script)


BAD_CALLS: list[tuple[Any, dict[str, Any]]] = [
    ("t", {}),
    ("t", {"value": "text"}),
    ("t", {"value": 5}),
    ("t", {"value": b"v", "key": "text"}),
    (None, {"value": b"v"}),
    (5, {"value": b"v"}),
    (b"t", {"value": b"v"}),
    ("", {"value": b"v"}),
    (".", {"value": b"v"}),
    ("..", {"value": b"v"}),
    ("a/b", {"value": b"v"}),
    ("x" * 250, {"value": b"v"}),
    ("t", {"value": b"v", "partition": -1}),
    ("t", {"value": b"v", "partition": "0"}),
    ("t", {"value": b"v", "timestamp_ms": 1.5}),
    ("t", {"value": b"v", "headers": "h"}),
    ("t", {"value": b"v", "headers": [("h", "text")]}),
    ("t", {"value": b"v", "headers": [(b"h", b"v")]}),
    ("t", {"value": b"v", "headers": [("h",)]}),
    ("t", {"value": bytes(2_000_000)}),
    # in which order things are looked at:
    ("", {}),
    ("", {"value": b"v", "headers": "h"}),
    ("", {"value": 5}),
    ("t", {"value": 5, "headers": "h"}),
    ("", {"value": b"v", "partition": -1}),
    ("t", {"value": bytes(2_000_000), "partition": -1}),
]


@pytest.mark.parametrize(("topic", "arguments"), BAD_CALLS, ids=range(len(BAD_CALLS)))
def test_what_send_refuses(both: Any, topic: Any, arguments: dict[str, Any]) -> None:
    """The error's type; a call that is wrong twice shows what is looked at first."""

    def script(client: Client) -> Any:
        with client.producer() as producer:
            producer.partitions_for("t")
            return client.outcome(lambda: producer.send(topic, **arguments))

    both(script)


def test_calls_after_close(both: Any) -> None:
    def script(client: Client) -> Any:
        producer = client.producer()
        negative = client.outcome(lambda: producer.close(-1))
        producer.close()
        producer.close()
        producer.flush()
        return negative, client.outcome(lambda: producer.send("t", b"v"))

    both(script)


def test_transactional_calls_on_a_plain_producer(both: Any) -> None:
    def script(client: Client) -> Any:
        with client.producer() as producer:
            return [
                client.outcome(call)
                for call in (
                    producer.init_transactions,
                    producer.begin_transaction,
                    producer.commit_transaction,
                    producer.abort_transaction,
                    lambda: producer.send_offsets_to_transaction({}, "group"),
                )
            ]

    both(script)


def test_a_transaction(both: Any) -> None:
    """With offsets, in the words of 3.x; 2.x had another name for the group."""

    def script(client: Client) -> Any:
        name = client.library.__name__
        producer = client.producer(transactional_id=f"x-{name}")
        seen = [client.outcome(producer.begin_transaction), client.outcome(lambda: producer.send("t", b"v"))]
        producer.init_transactions()
        producer.begin_transaction()
        seen.append(client.outcome(producer.begin_transaction))
        producer.send(f"transaction-{name}", b"v")
        offsets = {kafka.TopicPartition("t", 0): kafka.OffsetAndMetadata(1, "", -1)}
        producer.send_offsets_to_transaction(offsets, f"group-{name}")
        producer.commit_transaction()
        producer.begin_transaction()
        future = producer.send(f"transaction-{name}", b"w")
        if name == "splashdam":
            producer.send_offsets_to_transaction(offsets, consumer_group_id=f"group-{name}")
        producer.flush()
        producer.abort_transaction()
        producer.close()
        # An illegal order is a KafkaError there, of no class of its own, or an IllegalStateError.
        return [name in ("KafkaError", "IllegalStateError") for name in seen], future.succeeded()

    both(script)


def test_callbacks(both: Any) -> None:
    """Extra arguments come first; a failure goes to errbacks only."""

    def script(client: Client) -> Any:
        seen: list[Any] = []
        with client.producer() as producer:
            future = producer.send(f"callbacks-{client.library.__name__}", b"v", partition=2)
            same = future.add_callback(
                lambda *args, **kw: seen.append((args[0], args[1].partition, kw)), 1, b=2
            )
            future.add_errback(seen.append)
            future.get(300)
            producer.flush()
            future.add_both(lambda result: seen.append(("late", result.offset)))
            metadata = future.get(0)
        return seen, same is future, future.is_done, future.value == metadata, future.exception

    both(script)


def test_kafka_pythons_own_plug_ins(both: Any) -> None:
    """Its serializers and partitioners, and the callables that 2.x took."""

    def script(client: Client) -> Any:
        name = client.library.__name__
        options: list[dict[str, Any]] = [
            {"value_serializer": kafka.serializer.JsonSerializer()},
            {"value_serializer": kafka.serializer.DefaultSerializer(), "key_serializer": str.encode},
            {"partitioner": kafka.partitioner.DefaultPartitioner()},
            {"partitioner": ByLength()},
        ]
        placed = []
        for number, each in enumerate(options):
            with client.producer(**each) as producer:
                key: Any = "key" if "key_serializer" in each else b"key"
                value: Any = "value" if "value_serializer" in each else b"value"
                metadata = producer.send(f"plug-ins-{number}-{name}", value, key).get(300)
                placed.append((metadata.partition, metadata[-3:]))
        return placed

    both(script)


class ByLength(kafka.partitioner.Partitioner):
    """One of kafka-python's kind."""

    def partition(  # noqa: PLR0917 (its signature)
        self, topic: Any, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: Any
    ) -> Any:
        return len(serialized_value) % len(cluster.partitions_for_topic(topic))


def test_the_metric_groups_of_kafka_python_are_there(both: Any) -> None:
    """Those of a producer that has sent; ours has more."""

    def script(client: Client) -> Any:
        with client.producer(client_id="c") as producer:
            producer.send("measured", b"v").get(300)
            metrics = producer.metrics()
            names = METRICS.setdefault(client.library.__name__, {g: set(m) for g, m in metrics.items()})
        return names.keys() >= {"producer-metrics", "producer-topic-metrics.measured"}

    both(script)
    theirs, ours = METRICS["kafka"], METRICS["splashdam"]
    assert theirs["producer-metrics"] <= ours["producer-metrics"]
    assert theirs["producer-topic-metrics.measured"] <= ours["producer-topic-metrics.measured"]


METRICS: dict[str, dict[str, set[str]]] = {}
