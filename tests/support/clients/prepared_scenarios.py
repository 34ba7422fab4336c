"""What prepared transactions promise, on any broker: who ends them, how often, when it is too late."""

from __future__ import annotations

import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from splashdam.model.broker_errors import InvalidTxnStateError, ProducerFencedError
from splashdam.model.errors import IllegalStateError
from splashdam.model.transactions import PreparedTransaction
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.admin.transactions import (
    describe_transaction,
    end_transaction,
    fence_transactional_id,
    open_transactions,
)
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import ClusterClient, ClusterClientSettings, open_cluster_client
from splashdam.net.connect import TcpConnect
from support.clients.transaction_scenarios import WAIT_SECONDS, Make, Scenario, committed

PATIENT = ClusterClientSettings(timeout_ms=1_000 * WAIT_SECONDS, request_timeout_ms=1_000 * WAIT_SECONDS)


def ask(servers: str, task: Callable[[ClusterClient], Awaitable[Any]]) -> Any:
    """What the cluster says, in a loop of its own, as another process would ask."""

    async def run() -> Any:
        addresses = parse_bootstrap_servers(servers)
        async with open_cluster_client(
            addresses, connect=TcpConnect(), clock=SystemClock(), settings=PATIENT
        ) as client:
            return await task(client)

    return trio.run(run)


def end(servers: str, prepared: PreparedTransaction, *, committed: bool) -> None:
    """Ends it from outside."""
    ask(servers, lambda client: end_transaction(client, prepared, committed=committed))


def prepare(make: Make, name: str, value: bytes, **options: Any) -> PreparedTransaction:
    """One record, by a producer that is closed afterwards."""
    producer = make(name, **options)
    producer.begin_transaction()
    producer.send(name.partition("/")[0], value)
    prepared = producer.prepare_transaction()
    producer.close()
    return pickle.loads(pickle.dumps(prepared))


def others_end_what_was_prepared(servers: str, make: Make, name: str) -> None:
    """Closing the producer aborts nothing; the end counts once, however often it is asked for."""
    first = prepare(make, f"{name}/1", b"committed")
    second = prepare(make, f"{name}/2", b"aborted")
    third = prepare(make, f"{name}/3", b"committed too")
    assert ask(servers, lambda client: open_transactions(client, name)) == [
        f"{name}/{number}" for number in (1, 2, 3)
    ]
    for _ in range(2):
        end(servers, first, committed=True)
        end(servers, second, committed=False)
    end(servers, third, committed=True)
    assert committed(servers, name, 2) == [b"committed", b"committed too"]
    assert ask(servers, lambda client: open_transactions(client, name)) == []
    with pytest.raises(InvalidTxnStateError, match="it is committed"):
        end(servers, first, committed=False)
    with pytest.raises((InvalidTxnStateError, ProducerFencedError), match="cannot be committed"):
        end(servers, second, committed=True)


def a_prepared_producer_sends_nothing(servers: str, make: Make, name: str) -> None:
    """It may end its transaction itself, also where others have done so, and goes on."""
    producer = make(name)
    producer.begin_transaction()
    producer.send(name, b"1")
    prepared = producer.prepare_transaction()
    with pytest.raises(IllegalStateError, match=r"after prepare_transaction\(\)"):
        producer.send(name, b"2")
    with pytest.raises(IllegalStateError, match="PREPARED"):
        producer.begin_transaction()
    end(servers, prepared, committed=True)
    producer.commit_transaction()
    with producer.transaction():
        producer.send(name, b"3")
    assert committed(servers, name, 2) == [b"1", b"3"]
    with producer.transaction():
        assert producer.prepare_transaction().is_empty


def the_next_producer_aborts_what_was_prepared(servers: str, make: Make, name: str) -> None:
    """Committing it is then refused by name, and aborting it does nothing."""
    prepared = prepare(make, name, b"lost")
    assert ask(servers, lambda client: describe_transaction(client, name)).is_open(prepared)
    with make(name).transaction():
        pass
    assert not ask(servers, lambda client: describe_transaction(client, name)).is_open(prepared)
    with pytest.raises(ProducerFencedError, match=r"cannot be committed.*transaction\.timeout\.ms"):
        end(servers, prepared, committed=True)
    end(servers, prepared, committed=False)


def who_is_fenced_from_outside_is_aborted(servers: str, make: Make, name: str) -> None:
    """Also one that has prepared nothing yet."""
    producer = make(name)
    producer.begin_transaction()
    producer.send(name, b"open").get(timeout=WAIT_SECONDS)
    ask(servers, lambda client: fence_transactional_id(client, name))
    assert ask(servers, lambda client: describe_transaction(client, f"{name}-none")).state == ""
    with pytest.raises(ProducerFencedError):
        producer.commit_transaction()


PREPARED_SCENARIOS: list[Scenario] = [
    others_end_what_was_prepared,
    a_prepared_producer_sends_nothing,
    the_next_producer_aborts_what_was_prepared,
    who_is_fenced_from_outside_is_aborted,
]
