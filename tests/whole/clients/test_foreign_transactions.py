"""Transactions of clients that we did not write, against our broker; read with librdkafka, read_committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clients.foreign_transactions import CLIENTS
from support.kafka.kafka_reading import make_topic, served

from splashdam.embedded_broker.embedded import EmbeddedBroker


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    """A broker with a topic ``t`` of one partition."""
    with EmbeddedBroker(tmp_path, fsync=False) as broker:
        make_topic(broker.bootstrap_servers, "t")
        yield broker.bootstrap_servers


@pytest.mark.parametrize("client", CLIENTS)
def test_committed_and_aborted(servers: str, client: str) -> None:
    """What is committed is read, in order; what is aborted is there for read_uncommitted alone."""
    producer = CLIENTS[client](servers, "tx")
    for value, is_commit in [(b"1", True), (b"2", False), (b"3", True), (b"4", False)]:
        producer.begin()
        producer.send(value)
        producer.send(value * 2)
        (producer.commit if is_commit else producer.abort)()
        expected = [b"1", b"11"] if value in (b"1", b"2") else [b"1", b"11", b"3", b"33"]
        assert [record.value for record in served(servers, "t", committed=True)] == expected
    producer.close()
    assert len(served(servers, "t")) == 8


@pytest.mark.parametrize("client", CLIENTS)
def test_the_newer_instance_wins(servers: str, client: str) -> None:
    """The older one's open transaction is aborted, and it can neither write nor commit any more."""
    older = CLIENTS[client](servers, "tx")
    older.begin()
    older.send(b"old")
    newer = CLIENTS[client](servers, "tx")
    newer.begin()
    newer.send(b"new")
    with pytest.raises(older.fenced):
        older.commit()
    newer.commit()
    assert [record.value for record in served(servers, "t", committed=True)] == [b"new"]
    newer.close()
    older.close()
