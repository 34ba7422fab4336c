"""``decode`` from a topic into topics: a broker, transactions, and dead letters that are there once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from support.pipeline.pipeline_job_kit import SMALL_BROKER, DiedError, Mortal

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.pipeline.jobs.decode import OFFSET_HEADER, REASON_HEADER, decode
from splashdam.pipeline.jobs.micro_batches import Running
from splashdam.pipeline.jobs.outputs import TopicOutput
from splashdam.pipeline.values.json_values import JsonFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = JsonFormat(pa.struct([("id", pa.int64())]))
VALUES = [b'{"id":1}', b'{"id":"1"}', b"[", b'{"id":2}']


@pytest.mark.spark
def test_dead_letter_topic(spark: SparkSession, tmp_path: Path) -> None:
    """The driver dies when both topics have the batch: it is repeated, and each record is there once."""
    with EmbeddedBroker(tmp_path / "broker", config=SMALL_BROKER, fsync=False) as broker:
        kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for value in VALUES:
                producer.send("in", value=value, key=b"k", headers=[("own", b"1")])

        def read(topic: str) -> DataFrame:
            reader = spark.read.format("kafka-local").options(**kafka, subscribe=topic, includeHeaders="true")
            return reader.option("kafka.isolation.level", "read_committed").load()

        def source() -> DataFrame:
            reader = spark.readStream.format("kafka-local").options(**kafka, subscribe="in")
            return reader.options(startingOffsets="earliest", includeHeaders="true").load()

        good, bad = TopicOutput("good", kafka), TopicOutput("bad", kafka)
        running = Running(str(tmp_path / "checkpoint"))
        with pytest.raises(DiedError):
            decode(source(), FORMAT, good, Mortal(bad, 0), running)
        report = decode(source(), FORMAT, good, bad, running)
        assert (report.records, report.decoded, report.rejected) == (4, 2, {"wrong_type": 1, "not_json": 1})
        assert {bytes(row.value) for row in read("good").collect()} == {VALUES[0], VALUES[3]}
        rejected = read("bad").collect()
        assert len(rejected) == 2
        for row in rejected:
            headers = {header.key: bytes(header.value).decode() for header in row.headers}
            offset = int(headers[OFFSET_HEADER])
            assert (bytes(row.key), bytes(row.value), headers["own"]) == (b"k", VALUES[offset], "1")
            assert headers[REASON_HEADER] == {1: "wrong_type", 2: "not_json"}[offset]
