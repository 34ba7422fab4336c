"""Producers that fetch their tokens themselves: the options, and Java's and librdkafka's names for them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from support.security.security_kit import secure_broker
from support.security.token_server import CLIENT, CLIENT_SECRET, TokenServer, answer

from splashdam.client.producer import KafkaProducer
from splashdam.client.settings.rules import options_from_properties, producer_settings
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.errors import KafkaConfigurationError, SaslError

URL = "https://idp.example.com/token"
OIDC = {
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_client_id": CLIENT,
    "sasl_oauthbearer_client_secret": CLIENT_SECRET,
}


def test_a_producer_gets_in_and_stays(tmp_path: Path) -> None:
    """With a new token before the old one ends, on the connection that is there (KIP-368)."""
    with TokenServer().running() as server, secure_broker(tmp_path, protocol="SASL_PLAINTEXT") as broker:
        server.lifetime_s = 2
        with producer_for(broker, server) as producer:
            assert producer.send("orders", b"v").get(300).offset == 0
            assert server.asked_twice.wait(300)
            server.lifetime_s = 3600
            assert producer.send("orders", b"v").get(300).offset == 1


def test_a_wrong_secret_fails_at_once(tmp_path: Path) -> None:
    """With the endpoint's name and words, and without the secret."""
    with TokenServer().running() as server, secure_broker(tmp_path, protocol="SASL_PLAINTEXT") as broker:
        server.answers += [answer(401, {"error": "invalid_client"})] * 9
        with (
            producer_for(broker, server) as producer,
            pytest.raises(SaslError, match=r"localhost:\d+/token rejected .* 401 invalid_client") as caught,
        ):
            producer.send("orders", b"v").get(300)
    assert CLIENT_SECRET not in repr(caught.value)


def producer_for(broker: EmbeddedBroker, server: TokenServer) -> KafkaProducer:
    options: Any = {**OIDC, "sasl_oauthbearer_token_endpoint_url": server.url}
    return KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, security_protocol="SASL_PLAINTEXT", **options
    )


@pytest.mark.parametrize(
    "properties",
    [
        {
            "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.secured"
            ".OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
            f' clientId="{CLIENT}" clientSecret="{CLIENT_SECRET}" scope="kafka" extension_traceId="7" ;',
        },
        {
            "sasl.oauthbearer.client.credentials.client.id": CLIENT,
            "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "traceId=7",
        },
        {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": CLIENT_SECRET,
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "traceId=7",
        },
    ],
    ids=["Java", "Java since 4.1", "librdkafka"],
)
def test_names_of_others(properties: dict[str, str]) -> None:
    """All say the same; the configuration that comes of it shows no secret and makes the same elsewhere."""
    options = options_from_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": URL,
            **properties,
        }
    )
    settings = producer_settings(options)
    assert settings.sasl_oauthbearer_client_id == CLIENT
    assert settings.sasl_oauthbearer_client_secret == CLIENT_SECRET
    assert (settings.sasl_oauthbearer_scope, settings.sasl_oauthbearer_extensions) == (
        "kafka",
        {"traceId": "7"},
    )
    with KafkaProducer(**options) as producer:
        assert CLIENT_SECRET not in f"{producer.config} {options}"
        config = pickle.loads(pickle.dumps(producer.config))
    with KafkaProducer(**config) as again:
        assert again.config["sasl_oauthbearer_client_secret"] == CLIENT_SECRET


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "sasl_oauth_token_provider is missing.*; or sasl_oauthbearer_token_endpoint_url"),
        (
            {"sasl_oauthbearer_token_endpoint_url": URL, "sasl_oauthbearer_client_secret": None},
            "sasl_oauthbearer_client_secret is missing: sasl_oauthbearer_token_endpoint_url needs it",
        ),
        (
            {"sasl_oauthbearer_token_endpoint_url": "http://idp/"},
            "sasl_oauthbearer_token_endpoint_url must begin with https",
        ),
        (
            {"sasl_oauthbearer_token_endpoint_url": URL, "sasl_oauthbearer_cafile": "/missing.pem"},
            "sasl_oauthbearer_cafile='/missing.pem': No such file",
        ),
        ({"sasl_oauth_token_provider": print}, "exclude each other"),
        ({"sasl_oauthbearer_client_secret": b"idp-hunter2"}, "must be str, not bytes"),
        ({"sasl_oauthbearer_extensions": {"a": 1}}, "must be a dict of texts"),
    ],
    ids=str,
)
def test_mistakes(changes: dict[str, Any], words: str) -> None:
    """Told by the constructor, without the secret."""
    with pytest.raises(KafkaConfigurationError, match=words) as caught:
        KafkaProducer(**{"security_protocol": "SASL_SSL", **OIDC, **changes})
    assert "hunter2" not in str(caught.value)


def test_librdkafkas_method() -> None:
    """Nothing but what it has."""
    with pytest.raises(
        KafkaConfigurationError, match=r"sasl.oauthbearer.method='x': must be default or oidc"
    ):
        options_from_properties({"sasl.oauthbearer.method": "x"})
