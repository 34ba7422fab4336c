"""Kafka's decoder reads the states that our broker writes, and a real broker goes on with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kafka_jars import KafkaBroker
from kafka_states import COMMITTED, FRESH, OPEN, REPLACED, States, dumped, initialized, write_states

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


def last_of(states: States) -> dict[str, tuple[int, int, int]]:
    """Producer id, epoch and state that each transactional id ended with."""
    last = {name: history[-1] for name, history in states.items()}
    return {
        name: (each["producerId"], each["producerEpoch"], each["transactionStatus"])
        for name, each in last.items()
    }


def test_kafkas_decoder_reads_ours(version: str, ours: Path) -> None:
    """Every record; the open transaction has its three partitions."""
    states = dumped(version, ours.glob("*.log"))
    assert sum(map(len, states.values())) == 16
    ids = {name: history[0]["producerId"] for name, history in states.items()}
    assert len(set(ids.values())) == 5
    found = last_of(states)
    assert found[COMMITTED] == (ids[COMMITTED], 0, 4)
    assert found[REPLACED] == (ids[REPLACED], 2, 0)
    assert found[FRESH] == (ids[FRESH], 0, 0)
    assert states[OPEN][-1]["transactionPartitions"] == [
        {"topic": "inputs", "partitionIds": [0, 1]},
        {"topic": "others", "partitionIds": [0]},
    ]


def test_a_real_broker_goes_on_with_ours(broker: KafkaBroker, ours: Path) -> None:
    """Each transactional id keeps its producer id and gets the next epoch; the open one is aborted first."""
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
    before = last_of(dumped(broker.version, theirs.glob("*.log")))
    broker.start()
    names = (COMMITTED, REPLACED, FRESH)
    producers = [initialized(broker.bootstrap_servers, name) for name in names]
    broker.stop()
    del producers
    after = last_of(dumped(broker.version, theirs.glob("*.log")))
    for name in names:
        producer_id, epoch, _ = before[name]
        assert after[name] == (producer_id, epoch + 1, 0)
