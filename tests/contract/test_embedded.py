"""Every behaviour through every Python client, against the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from splashdam import EmbeddedBroker
from splashdam.testing.contract.available_clients import EMBEDDED_CONFIG, PYTHON_CLIENTS, available, opened
from splashdam.testing.contract.behaviour import Behaviour
from splashdam.testing.contract.behaviours import all_behaviours
from splashdam.testing.contract.clients.splashdam_client import SplashdamClient
from splashdam.testing.contract.running import Verdict, hold
from splashdam.testing.contract.vocabulary import PROTOCOL, Client

WAITING = {"sending_to_a_missing_topic_is_an_error": ("confluent-kafka",)}
"""Behaviours that clients wait for, up to ten seconds; here through the quickest alone."""

BEHAVIOURS = {each.name: each for each in all_behaviours()}
CASES = [
    pytest.param(behaviour, client, id=f"{behaviour.name}-{client}")
    for behaviour in BEHAVIOURS.values()
    for client in WAITING.get(behaviour.name, tuple(PYTHON_CLIENTS))
    if (client == "protocol") == (PROTOCOL in behaviour.needs)
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of one broker for all, whose own topics are small: it looks at all logs several times a second."""
    own = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
    folder = tmp_path_factory.mktemp("contract")
    with EmbeddedBroker(folder, config={**EMBEDDED_CONFIG, **own}, fsync=False) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def clients(address: str) -> Iterator[Mapping[str, Client]]:
    """All of them, by their names."""
    makers = available(tuple(PYTHON_CLIENTS), (), lambda name, why: pytest.fail(f"{name}: {why}"))
    with opened(makers, address) as found:
        yield {each.name: each for each in found}


@pytest.mark.parametrize(("behaviour", "name"), CASES)
def test_the_contract(behaviour: Behaviour, name: str, clients: Mapping[str, Client], address: str) -> None:
    """It holds, or the client differs for a reason that is known."""
    result = hold(behaviour, clients[name], SplashdamClient(address), address)
    assert result.verdict is not Verdict.BROKEN, result.why
    if result.verdict is Verdict.LEFT_OUT:
        assert name != "protocol", result.why
        pytest.skip(result.why)
