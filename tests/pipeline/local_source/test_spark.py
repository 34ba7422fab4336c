"""``kafka-local`` inside Spark: batch and stream, against a broker on TCP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.pipeline.session import FILTER_PUSHDOWN
from splashdam.testing.topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

FIRST_MS = 1_700_000_000_000
COUNT = 2000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """With ``orders``, whose two partitions have records one second apart."""
    config = {"log.retention.ms": -1}  # the records are old
    with EmbeddedBroker(tmp_path_factory.mktemp("spark"), fsync=False, config=config) as broker:
        create_topic(broker.bootstrap_servers, "orders", 2)
        fill(broker, "orders", partitions=2)
        yield broker


def fill(
    broker: EmbeddedBroker, topic: str, *, count: int = COUNT, first: int = 0, partitions: int = 1
) -> None:
    """Numbered records, in turns over the partitions."""
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(first, first + count):
            at_ms = FIRST_MS + 1000 * number
            where, headers = number % partitions, [("n", b"%d" % number)]
            producer.send(
                topic, b"v%d" % number, key=b"k", partition=where, timestamp_ms=at_ms, headers=headers
            )


def options(broker: EmbeddedBroker, topic: str = "orders", **given: str) -> dict[str, str]:
    """The options of a query."""
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **given}


def read(spark: SparkSession, broker: EmbeddedBroker, topic: str = "orders", **given: str) -> DataFrame:
    """A batch."""
    return spark.read.format("kafka-local").options(**options(broker, topic, **given)).load()


def stream(
    spark: SparkSession, broker: EmbeddedBroker, directory: Path, topic: str, **given: str
) -> StreamingQuery:
    """A query that has read all there is into Parquet, with its checkpoint, in a directory."""
    source = spark.readStream.format("kafka-local").options(**options(broker, topic, **given)).load()
    query = (
        source.writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def written(spark: SparkSession, directory: Path) -> list[int]:
    """The offsets that a stream has put out."""
    found = spark.read.parquet(str(directory / "out")).select("offset").collect()
    return sorted(row.offset for row in found)


def test_every_column(spark: SparkSession, broker: EmbeddedBroker) -> None:
    """Count, types and values, with headers."""
    frame = read(spark, broker, includeHeaders="true")
    assert frame.count() == COUNT
    (row,) = frame.where("partition = 1 and offset = 20").collect()
    assert row.asDict(recursive=True) == {
        "key": b"k",
        "value": b"v41",
        "topic": "orders",
        "partition": 1,
        "offset": 20,
        "timestamp": row.timestamp,
        "timestampType": 0,
        "headers": [{"key": "n", "value": b"41"}],
    }
    assert int(row.timestamp.timestamp() * 1000) == FIRST_MS + 41_000


def test_a_schema_of_the_user(spark: SparkSession, broker: EmbeddedBroker) -> None:
    """Trap 5: two columns, in the user's order; an unknown one is a named error."""
    source = spark.read.format("kafka-local").options(**options(broker))
    frame = source.schema("offset bigint, value binary").load()
    assert frame.columns == ["offset", "value"]
    assert frame.agg({"offset": "max"}).first()[0] == COUNT // 2 - 1
    with pytest.raises(Exception, match=r"'ofset'.*Did you mean 'offset'"):
        source.schema("ofset bigint").load().count()


FILTERS: list[tuple[str, Callable[[int, int, int], bool]]] = [
    ("offset between 10 and 20", lambda number, partition, offset: 10 <= offset <= 20),
    (
        "partition = 1 and offset in (1, 500, 5000)",
        lambda number, partition, offset: partition == 1 and offset in (1, 500),
    ),
    ("topic like 'ord%' and not partition = 0", lambda number, partition, offset: partition == 1),
    ("topic = 'others'", lambda *_: False),
    (
        "timestamp > timestamp_millis(1700000600000) and timestamp < timestamp_millis(1700000700000)",
        lambda number, partition, offset: 600 < number < 700,
    ),
]
"""In SQL, and of a record's number, partition and offset."""


@pytest.mark.parametrize(("pushdown", "fetches"), [("true", 2 + 1 + 1 + 0 + 2), ("false", 10)])
def test_traps_3_and_4_rows_are_those_of_spark(
    spark: SparkSession, broker: EmbeddedBroker, pushdown: str, fetches: int
) -> None:
    """Trap 3: reads work with pushdown and without. Trap 4: what it leaves out, Spark would have."""
    before = spark.conf.get(FILTER_PUSHDOWN)
    assert before == "true"
    spark.conf.set(FILTER_PUSHDOWN, pushdown)
    try:
        with broker.requests.start() as requests:
            requests.clear()
            found = [_passing(read(spark, broker).where(condition)) for condition, _ in FILTERS]
            asked = len(requests.of("fetch"))
    finally:
        spark.conf.set(FILTER_PUSHDOWN, before)
    records = [(number, number % 2, number // 2) for number in range(COUNT)]
    assert found == [sorted(each[1:] for each in records if passes(*each)) for _, passes in FILTERS]
    assert asked == fetches


def _passing(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def test_trap_6_8_and_11_views_keep_options(spark: SparkSession, broker: EmbeddedBroker) -> None:
    """Trap 6: a name that Spark lets us have. Trap 8: an empty topic has no rows. Trap 11: views work, and
    what has lost its options says so."""
    create_topic(broker.bootstrap_servers, "empty", 2)
    said = ", ".join(f"`{name}` '{value}'" for name, value in options(broker, "empty").items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW empty USING `kafka-local` OPTIONS ({said})")
    assert spark.sql("SELECT count(*) AS n FROM empty").first().n == 0
    with pytest.raises(Exception, match="CREATE TABLE … USING loses options"):
        spark.read.format("kafka-local").load().count()


def test_trap_10_a_second_count_reads_the_same_offsets(spark: SparkSession, broker: EmbeddedBroker) -> None:
    """Trap 10: planned once per DataFrame without filters, and for each action with them; as documented."""
    fill(broker, "grows", count=10)
    plain, filtered = read(spark, broker, "grows"), read(spark, broker, "grows").where("offset >= 0")
    assert (plain.count(), filtered.count()) == (10, 10)
    fill(broker, "grows", count=5, first=10)
    assert (plain.count(), filtered.count()) == (10, 15)


def test_large_partitions_are_split(spark: SparkSession, broker: EmbeddedBroker) -> None:
    """As minPartitions says, and every record comes once."""
    frame = read(spark, broker, minPartitions="6")
    assert frame.rdd.getNumPartitions() == 6
    assert frame.select("partition", "offset").distinct().count() == COUNT


def test_committed_records(spark: SparkSession, broker: EmbeddedBroker) -> None:
    """With read_committed neither aborted ones nor what follows an open transaction."""
    servers = broker.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers, transactional_id="spark") as producer:
        producer.init_transactions()
        for value, commits in ((b"yes", True), (b"no", False), (b"yes", True)):
            producer.begin_transaction()
            producer.send("txn", value)
            producer.flush()
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    committed = read(spark, broker, "txn", **{"kafka.isolation.level": "read_committed"})
    assert [bytes(row.value) for row in committed.select("value").collect()] == [b"yes", b"yes"]
    assert read(spark, broker, "txn").count() == 3


def test_a_stream_goes_on_where_it_was(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    """AvailableNow, a restart from the checkpoint, and a limit that is shared out over triggers."""
    fill(broker, "stream", count=100)
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    query = stream(spark, broker, tmp_path, "stream", **given)
    assert [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]] == [40, 40, 20]
    assert written(spark, tmp_path) == list(range(100))
    fill(broker, "stream", count=30, first=100)
    stream(spark, broker, tmp_path, "stream", **given)
    assert written(spark, tmp_path) == list(range(130))
    kept = (tmp_path / "checkpoint" / "offsets" / "3").read_text().splitlines()[-1]
    assert kept.replace(" ", "") == '{"stream":{"0":130}}'


def test_trap_1_a_stream_from_the_latest_offsets(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Trap 1: what comes after its first start is read, though it found nothing then."""
    fill(broker, "latest", count=10)
    given = {"initialOffsetsLocation": str(tmp_path / "start")}
    stream(spark, broker, tmp_path, "latest", **given)
    fill(broker, "latest", count=5, first=10)
    stream(spark, broker, tmp_path, "latest", **given)
    assert written(spark, tmp_path) == list(range(10, 15))
