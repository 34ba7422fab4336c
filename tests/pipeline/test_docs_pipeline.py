"""The Python blocks of docs/reference/pipeline.md run in order, in the session of the other tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.running.house_tree import ROOT

from splashdam import EmbeddedBroker, KafkaProducer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs/reference/pipeline.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
RECORDS = 3


def run(block: str, names: dict[str, Any], folder: Path) -> None:
    """In these names, with the page's directories in ours; a session that all share is not stopped."""
    places = {
        "s3://backup/kafka": str(folder / "log"),
        "/var/lib/kafka/data": str(folder / "log"),
        "/data": str(folder),
    }
    for shown, ours in places.items():
        block = block.replace(f'"{shown}', f'"{ours}')
    exec(compile(block.replace("spark.stop()", "pass"), "docs/reference/pipeline.md", "exec"), names)


@pytest.mark.spark
def test_the_blocks_run(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A program, a stream from the latest offsets, files, a table, an ingest: each does what is said."""
    pytest.importorskip("deltalake", reason="needs splashdam[delta]")
    program, latest, files, into_a_table, ingest = BLOCKS
    run(program, {"__name__": "__main__"}, tmp_path)
    assert "|orders|" in capsys.readouterr().out
    with EmbeddedBroker(tmp_path / "log", port=0) as broker:
        servers = broker.bootstrap_servers
        with KafkaProducer(bootstrap_servers=servers) as producer:
            for topic in ("orders", "flights"):
                producer.send_many(topic, [b"x"] * RECORDS).get(timeout=300)
        names: dict[str, Any] = {"spark": spark, "servers": servers}
        run(latest, names, tmp_path)
        assert names["stream"].isStreaming
        run(files, names, tmp_path)
        assert names["records"].count() == RECORDS
        assert names["batches"].count() == 1
        options = {"kafka.bootstrap.servers": servers, "subscribe": "orders", "startingOffsets": "earliest"}
        names["delays"] = spark.readStream.format("kafka-local").options(**options).load()
        run(into_a_table, names, tmp_path)
        names["query"].processAllAvailable()
        names["query"].stop()
        assert spark.read.parquet(str(tmp_path / "delays" / "date=*")).count() == RECORDS
        run(ingest, names, tmp_path)
        assert names["report"].records == RECORDS
