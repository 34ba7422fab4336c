"""Prepared transactions outlive their producer and the broker, though not their time."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.clients.prepared_scenarios import ask, end, prepare
from support.clients.transaction_scenarios import Producers, committed

from splashdam import EmbeddedBroker
from splashdam.model.broker_errors import InvalidTxnStateError, ProducerFencedError
from splashdam.net.admin.transactions import open_transactions

LEVELS = pytest.mark.parametrize("level", [1, 2], ids=["tv1", "tv2"])


@LEVELS
def test_the_broker_restarts_before_the_end(tmp_path: Path, level: int) -> None:
    """It restarts once more between EndTxn and its retry."""
    config = {"transaction.version": level}
    with EmbeddedBroker(tmp_path, fsync=False, config=config) as broker:
        prepared = prepare(Producers(broker.bootstrap_servers), "t", b"1")
    for _ in range(2):
        with EmbeddedBroker(tmp_path, fsync=False, config=config) as broker:
            end(broker.bootstrap_servers, prepared, committed=True)
            end(broker.bootstrap_servers, prepared, committed=True)
            assert committed(broker.bootstrap_servers, "t", 1) == [b"1"]


@LEVELS
def test_its_time_ran_out(tmp_path: Path, level: int) -> None:
    """The cluster has aborted it: a commit is refused by name."""
    config = {
        "transaction.version": level,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10,
    }
    with EmbeddedBroker(tmp_path, fsync=False, config=config) as broker:
        servers = broker.bootstrap_servers
        prepared = prepare(Producers(servers), "t", b"1", transaction_timeout_ms=60_000)
        broker.clock.advance(seconds=61)
        while ask(servers, open_transactions):
            pass
        with pytest.raises((ProducerFencedError, InvalidTxnStateError), match=r"'t'.*ran out"):
            end(servers, prepared, committed=True)
        end(servers, prepared, committed=False)
