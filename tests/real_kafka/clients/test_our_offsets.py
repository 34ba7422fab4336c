"""What we write to ``__consumer_offsets`` is what Kafka's tools and a real broker make of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.clients.foreign_groups import ASK, COMMIT, Committed
from support.clients.foreign_transactions import CLIENTS
from support.kafka.kafka_jars import KafkaBroker, dump_log
from support.kafka.kafka_offsets import take_over
from support.kafka.kafka_reading import make_topic

from splashdam.embedded_broker.embedded import EmbeddedBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
PLAIN, MOVED = "readers", "movers"


def written_by_us(data: Path) -> Path:
    """A plain commit, and two in transactions, the second one aborted; the partition's directory."""
    with EmbeddedBroker(data, offsets_topic_num_partitions=1) as broker:
        servers = broker.bootstrap_servers
        make_topic(servers, "t")
        COMMIT["kafka-python"](servers, PLAIN, "t", Committed(7, "half way"))
        producer = CLIENTS["confluent-kafka"](servers, "tx")
        for offset, end in ((11, producer.commit), (12, producer.abort)):
            producer.begin()
            producer.send_offset(MOVED, offset)
            end()
        producer.close()
    return data / "__consumer_offsets-0"


def test_kafka_dump_log_decodes_our_offsets(version: str, tmp_path: Path) -> None:
    """Group, topic, partition, offset and metadata of each record, and the markers between them."""
    (log,) = written_by_us(tmp_path).glob("*.log")
    said = dump_log(version, log, options=("--offsets-decoder",))
    assert said.count('"offset":7') == said.count('"metadata":"half way"') == 1
    assert said.count(f'"group":"{PLAIN}"') == 1
    assert said.count(f'"group":"{MOVED}"') == 2
    assert (said.count("endTxnMarker: COMMIT"), said.count("endTxnMarker: ABORT")) == (1, 1)
    assert "isvalid: false" not in said


def test_a_real_broker_takes_our_offsets_over(broker: KafkaBroker, tmp_path: Path) -> None:
    """It answers what we would: what was committed, and not what was aborted."""
    take_over(broker, written_by_us(tmp_path / "ours"))
    for ask in ASK.values():
        plain, moved = (ask(broker.bootstrap_servers, group, "t") for group in (PLAIN, MOVED))
        assert plain is not None
        assert moved is not None
        assert (plain.offset, moved.offset) == (7, 11)
