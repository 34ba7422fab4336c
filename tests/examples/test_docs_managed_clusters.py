"""The settings that the pages on managed clusters show: our broker accepts clients with them.

The programs run as they stand, with the address, the CA and the secrets of that broker in the place of the
provider's. What only the provider knows (roles, policies, limits) is not tested here.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.running.doc_pages import blocks, run
from support.security.security_kit import Pki, secure_broker
from support.security.token_server import CLIENT, CLIENT_SECRET, TokenServer

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.net.sasl.mechanisms import Authenticated


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


def config_of(page: str, number: int) -> dict[str, Any]:
    """What the producer of this program on the page was told; it has not connected to anybody."""
    names = run(blocks(page, "python")[number], page)
    producer = names["producer"]
    assert isinstance(producer, KafkaProducer)
    producer.close()
    return dict(producer.config)


def deliver(config: dict[str, Any], broker: EmbeddedBroker, pki: Pki) -> None:
    """One record, by these settings, to our broker."""
    config |= {"bootstrap_servers": broker.bootstrap_servers, "ssl_cafile": pki.cafile}
    with KafkaProducer(**config) as producer:
        assert producer.send("orders", b"tea").get(timeout=300).offset == 0


def test_msk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pki: Pki) -> None:
    """The token is Amazon's to make: a URL-safe text that is no JWT. The broker sees it as it was made."""
    token = "aHR0cHM6Ly9rYWZrYS5ldS1jZW50cmFsLTEuYW1hem9uYXdzLmNvbS8_QWN0aW9uPWthZmthLWNsdXN0ZXI"
    regions = []

    def generate_auth_token(region: str) -> tuple[str, int]:
        regions.append(region)
        return token, int(time.time() * 1000) + 900_000

    signer = ModuleType("aws_msk_iam_sasl_signer")
    vars(signer)["MSKAuthTokenProvider"] = SimpleNamespace(generate_auth_token=generate_auth_token)
    monkeypatch.setitem(sys.modules, signer.__name__, signer)
    seen = []

    def validate(text: str) -> Authenticated:
        seen.append(text)
        return Authenticated("orders-service", time.time() * 1000 + 900_000)

    config = config_of("how-to/msk-iam.md", 0)
    assert regions == []  # nobody is asked before a connection is made
    with secure_broker(tmp_path, pki, token_validator=validate) as broker:
        deliver(config, broker, pki)
    assert set(seen) == {token}
    assert set(regions) == {"eu-central-1"}


@pytest.mark.parametrize(
    ("page", "secrets"),
    [
        (
            "how-to/event-hubs.md",
            {"EVENT_HUBS_CONNECTION_STRING": "Endpoint=sb://my-namespace.servicebus.windows.net/;a=b+/=="},
        ),
        ("how-to/confluent-cloud.md", {"CONFLUENT_API_KEY": "ABCDEFGH", "CONFLUENT_API_SECRET": "s+/="}),
    ],
)
def test_a_key_as_user_and_password(
    page: str, secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pki: Pki
) -> None:
    """Event Hubs' user name and passwords with signs of all kinds pass through PLAIN unchanged."""
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    config = config_of(page, 0)
    user, password = str(config["sasl_plain_username"]), list(secrets.values())[-1]
    assert user == {"how-to/event-hubs.md": "$ConnectionString"}.get(page, "ABCDEFGH")
    with secure_broker(tmp_path, pki) as broker:
        broker.users.add(user, password)
        deliver(config, broker, pki)


@pytest.mark.parametrize("page", ["how-to/event-hubs.md", "how-to/confluent-cloud.md"])
def test_a_token_endpoint(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pki: Pki) -> None:
    """The client's secret is exchanged for a token, in the scope that the page says."""
    for name, value in {"TENANT": "t1", "CLIENT_ID": CLIENT, "CLIENT_SECRET": CLIENT_SECRET}.items():
        monkeypatch.setenv(name, value)
    config = config_of(page, 1)
    assert str(config["sasl_oauthbearer_token_endpoint_url"]).startswith("https://")
    with TokenServer().running() as endpoint, secure_broker(tmp_path, pki) as broker:
        config["sasl_oauthbearer_token_endpoint_url"] = endpoint.url
        deliver(config, broker, pki)
    assert {each["scope"] for each in endpoint.asked} == {config["sasl_oauthbearer_scope"]}


def test_event_hubs_closes_connections_for_larger_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both programs keep below what Microsoft's page on Kafka clients allows."""
    for name in ("EVENT_HUBS_CONNECTION_STRING", "TENANT", "CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.setenv(name, "x")
    for number in (0, 1):
        config = config_of("how-to/event-hubs.md", number)
        assert config["max_request_size"] < 1_046_528
        assert config["request_timeout_ms"] > 20_000
        assert max(config["connections_max_idle_ms"], config["metadata_max_age_ms"]) < 240_000
