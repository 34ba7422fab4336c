"""Every behaviour through every Python client, against the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest
from support.kafka.contract_clusters import contract_cluster

from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.testing.contract.available_clients import PYTHON_CLIENTS, available, opened
from splashdam.testing.contract.behaviour import Behaviour
from splashdam.testing.contract.behaviours import all_behaviours
from splashdam.testing.contract.clients.splashdam_client import SplashdamClient
from splashdam.testing.contract.running import Verdict, hold
from splashdam.testing.contract.vocabulary import PROTOCOL, Client, Listener

WAITING = {"sending_to_a_missing_topic_is_an_error": ("confluent-kafka",)}
"""Behaviours that clients wait for, up to ten seconds; here through the quickest alone."""

TASKS = ("splashdam-trio", "splashdam-asyncio")
"""Clients that only send in ways of their own; here they do not read what another client of ours reads."""

LOGINS = ("plain_over_plaintext_", "scram_sha_512_over_tls_")
"""Beginnings of the behaviours of passwords that run through every client, and not through ours alone."""


QUICK = ("splashdam", "splashdam-trio", "splashdam-asyncio", "confluent-kafka", "protocol")
"""Clients that are told at once that they are refused, and close their connections then: kafka-python tries
again for seconds, and aiokafka leaves sockets to the garbage collector."""


def through(behaviour: Behaviour) -> Iterator[str]:
    """The clients that a behaviour runs through here."""
    is_refused = "_refuse" in behaviour.name or behaviour.name.endswith("named_as_the_reason")
    is_security = behaviour.area == "security"
    clients = QUICK if is_security and is_refused else tuple(PYTHON_CLIENTS)
    for client in WAITING.get(behaviour.name, clients):
        is_ours_alone = "_over_" in behaviour.name and not behaviour.name.startswith(LOGINS)
        if (client == "protocol") != (PROTOCOL in behaviour.needs):
            continue
        if client in TASKS and behaviour.area not in ("produce", "transactions", "security"):
            continue
        if is_security and is_ours_alone and client != "splashdam":
            continue
        yield client


CASES = [
    pytest.param(behaviour, client, id=f"{behaviour.name}-{client}")
    for behaviour in all_behaviours()
    for client in through(behaviour)
]


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Listener]]:
    """Of one broker for all, whose own topics are small: it looks at all logs several times a second."""
    own = {
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
        "connection.failed.authentication.delay.ms": "10",
    }
    folder = tmp_path_factory.mktemp("contract")
    with contract_cluster("embedded", folder, own) as found:
        yield found


@pytest.fixture(scope="module")
def clients(listeners: Sequence[Listener]) -> Iterator[Mapping[str, Client]]:
    """All of them, by their names."""
    makers = available(tuple(PYTHON_CLIENTS), (), lambda name, why: pytest.fail(f"{name}: {why}"))
    with opened(makers, *listeners[0]) as found:
        yield {each.name: each for each in found}


@pytest.mark.parametrize(("behaviour", "name"), CASES)
def test_the_contract(
    behaviour: Behaviour, name: str, clients: Mapping[str, Client], listeners: Sequence[Listener]
) -> None:
    """It holds, or the client differs for a reason that is known."""
    address = listeners[0].bootstrap_servers
    result = hold(behaviour, clients[name], SplashdamClient(address), address, listeners=listeners)
    assert result.verdict is not Verdict.BROKEN, result.why
    if result.verdict is Verdict.LEFT_OUT:
        assert name != "protocol", result.why
        pytest.skip(result.why)


@pytest.mark.parametrize(
    "name", ["sending_to_a_missing_topic_is_an_error", "describing_a_missing_topic_is_an_error"]
)
def test_a_cluster_that_creates_topics_was_called_broken(name: str) -> None:
    """aiokafka asks for a topic in such a way that the cluster creates it; what it finds says nothing."""
    (behaviour,) = (each for each in all_behaviours() if each.name == name)
    with EmbeddedBroker(auto_create_topics_enable=True) as broker:
        servers = broker.bootstrap_servers
        makers = available(("aiokafka",), (), lambda name, why: pytest.fail(f"{name}: {why}"))
        with opened(makers, servers) as clients:
            result = hold(behaviour, clients[0], SplashdamClient(servers), servers)
    assert (result.verdict, "auto.create.topics.enable" in result.why) == (Verdict.LEFT_OUT, True)
