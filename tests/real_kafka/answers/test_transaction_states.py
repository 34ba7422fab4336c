"""Kafka's decoder reads the states that our broker writes, and a real broker goes on with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.kafka.kafka_jars import KafkaBroker
from support.kafka.kafka_states import (
    COMMITTED,
    FRESH,
    OPEN,
    REPLACED,
    dumped_in_short,
    in_short,
    initialized,
    read_by_us,
    write_states,
)

from splashdam.embedded_broker.embedded import EmbeddedBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """What our broker wrote of five transactional ids, in one partition."""
    options = {"transaction_state_log_num_partitions": 1}
    with EmbeddedBroker(tmp_path / "ours", **options) as broker:
        producers = write_states(broker.bootstrap_servers)
    del producers
    return tmp_path / "ours" / "__transaction_state-0"


def test_kafkas_decoder_reads_ours(version: str, ours: Path) -> None:
    """Every record as our own code does."""
    read = in_short(read_by_us(ours.parent))
    assert sum(map(len, read.values())) >= 16  # librdkafka may add the partitions in more than one request
    assert read[OPEN][-1][2:] == (1, ["inputs-0", "inputs-1", "others-0"])
    assert dumped_in_short(version, ours.glob("*.log")) == read


def test_a_real_broker_goes_on_with_ours(broker: KafkaBroker, ours: Path) -> None:
    """Each transactional id keeps its producer id and gets the next epoch."""
    initialized(broker.bootstrap_servers, "makes the topic")
    broker.stop()
    theirs = broker.data / "__transaction_state-0"
    metadata = (theirs / "partition.metadata").read_bytes()
    shutil.rmtree(theirs)
    theirs.mkdir()
    for log in ours.glob("*.log"):
        shutil.copy(log, theirs)
    (theirs / "partition.metadata").write_bytes(metadata)
    (broker.data / ".kafka_cleanshutdown").unlink()
    broker.start()
    names = (COMMITTED, REPLACED, FRESH)
    producers = [initialized(broker.bootstrap_servers, name) for name in names]
    broker.stop()
    del producers
    before, after = in_short(read_by_us(ours.parent)), in_short(read_by_us(broker.data))
    for name in names:
        producer_id, epoch, *_ = before[name][-1]
        assert after[name][-1] == (producer_id, epoch + 1, 0, [])
