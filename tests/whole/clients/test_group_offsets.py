"""Other clients' consumers commit offsets to the embedded broker, and any of them finds them again."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.clients.foreign_clients import Sent, kafka_python_produce
from support.clients.foreign_groups import ASK, COMMIT, Committed

from splashdam.embedded_broker.embedded import EmbeddedBroker


@pytest.mark.parametrize("client", COMMIT)
def test_committed_offsets(tmp_path: Path, client: str) -> None:
    """By assigned partitions and a group id; also after the broker has started again."""
    with EmbeddedBroker(tmp_path, fsync=False) as broker:
        kafka_python_produce(broker.bootstrap_servers, "t", [Sent(0, None, b"x", [])])
        assert ASK[client](broker.bootstrap_servers, "g", "t") is None
        COMMIT[client](broker.bootstrap_servers, "g", "t", Committed(41, ""))
        COMMIT[client](broker.bootstrap_servers, "g", "t", Committed(42, "half way"))
        check(broker.bootstrap_servers)
    with EmbeddedBroker(tmp_path, fsync=False) as broker:
        check(broker.bootstrap_servers)


def check(servers: str) -> None:
    """Every client finds the last commit; confluent-kafka adds a zero to the metadata it sends."""
    for client, ask in ASK.items():
        found = ask(servers, "g", "t")
        assert found is not None
        assert found.offset == 42, client
        assert found.metadata.rstrip("\0") in ("half way", ""), client
