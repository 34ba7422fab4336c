"""The options of TLS and SASL: kafka-python's names, Java's properties, and what is refused at once."""

from __future__ import annotations

import pickle
import ssl
from pathlib import Path
from typing import Any

import pytest
from support.security.security_kit import Pki

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.client.producer import KafkaProducer
from splashdam.client.settings.rules import options_from_properties, producer_settings
from splashdam.client.settings.security_settings import MECHANISM_NAMES, PROTOCOLS
from splashdam.embedded_broker.configs import security as broker_security
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.secrets import Secret
from splashdam.net.sasl.mechanisms import MECHANISMS

SCRAM = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "anna", "sasl_plain_password": "hunter2"}
JAAS = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="anna" password="hun;\\"ter2";'
)


def test_names_are_those_of_the_tables() -> None:
    """They are written twice, so that nothing is imported for them."""
    assert set(MECHANISM_NAMES) == set(MECHANISMS)
    assert PROTOCOLS == broker_security.PROTOCOLS


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ssl_cafile": "x"}, "ssl_cafile has no effect with security_protocol='PLAINTEXT'"),
        ({"security_protocol": "SSL", **SCRAM}, "sasl_mechanism has no effect with security_protocol='SSL'"),
        ({"security_protocol": "SASL_PLAINTEXT", **SCRAM, "ssl_cafile": "x"}, "ssl_cafile has no effect"),
        (
            {"security_protocol": "SASL_SSL"},
            "sasl_mechanism is missing: .* needs one of PLAIN, SCRAM-SHA-256",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "NTLM"},
            "sasl_mechanism='NTLM': must be one",
        ),
        ({"security_protocol": "SSL", "ssl_context": 1}, "must be an ssl.SSLContext"),
        ({"security_protocol": "SSL", "ssl_password": 7}, r"ssl_password='\[hidden\]': must be str, not int"),
        ({"security_protocol": "SSL", "bootstrap_servers": "embedded:x"}, "reached inside this process"),
        ({"security_protocol": "SSL", "ssl_check_hostname": None}, "must be True or False"),
        ({"sasl_kerberos_name": "x"}, "sasl_kerberos_name has no effect with security_protocol='PLAINTEXT'"),
    ],
)
def test_contradictions(options: dict[str, Any], words: str) -> None:
    """What would silently be less safe than it looks is refused."""
    with pytest.raises(KafkaConfigurationError, match=words):
        producer_settings(options)


@pytest.mark.parametrize("kind", [KafkaProducer, AsyncKafkaProducer])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"security_protocol": "SSL", "ssl_cafile": "/missing.pem"},
            "ssl_cafile='/missing.pem': No such file",
        ),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"},
            "^sasl_plain_username and sasl_plain_password are missing: sasl_mechanism='PLAIN' needs them",
        ),
        (
            {"security_protocol": "SASL_PLAINTEXT", **SCRAM, "sasl_plain_username": None},
            "^sasl_plain_username is missing: sasl_mechanism='SCRAM-SHA-256' needs it",
        ),
        (
            {"security_protocol": "SASL_PLAINTEXT", **SCRAM, "sasl_plain_password": None},
            "sasl_plain_password is missing",
        ),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"},
            "sasl_oauth_token_provider is missing",
        ),
    ],
)
def test_the_constructor_tells(kind: Any, options: dict[str, Any], words: str) -> None:
    """Files and missing options, before anything is connected."""
    with pytest.raises(KafkaConfigurationError, match=words):
        kind(**options)


def test_a_context_of_ones_own(tmp_path: Path) -> None:
    """It takes the place of the other options."""
    context = ssl.create_default_context()
    assert producer_settings({"security_protocol": "ssl", "ssl_context": context}).ssl_context is context
    with pytest.raises(KafkaConfigurationError, match="ssl_context and ssl_cafile exclude each other"):
        producer_settings({"security_protocol": "SSL", "ssl_context": context, "ssl_cafile": tmp_path})


def test_secrets_are_masked_and_serve() -> None:
    """In the configuration, which makes the same producer elsewhere; a key given as text is one, too."""
    settings = producer_settings({"security_protocol": "SASL_PLAINTEXT", **SCRAM})
    assert settings.sasl_plain_password == "hunter2"
    assert "hunter2" not in f"{settings!r} {settings.sasl_plain_password}"
    with KafkaProducer(security_protocol="SASL_PLAINTEXT", **SCRAM) as producer:  # type: ignore[arg-type]  # a dict
        assert "hunter2" not in f"{producer.config}"
        config = pickle.loads(pickle.dumps(producer.config))
    with KafkaProducer(**config) as again:
        assert again.config["sasl_plain_password"].encode() == b"hunter2"
    key = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----"
    kept = producer_settings({"security_protocol": "SSL", "ssl_keyfile": key, "ssl_password": "hunter2"})
    assert "MIIB" not in repr(kept)
    assert "hunter2" not in repr(kept)


def test_javas_properties(tmp_path: Path) -> None:
    """A client.properties as Kafka's documentation has it."""
    pki = Pki(tmp_path)
    options = options_from_properties(
        {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": pki.cafile,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": pki.client,
            "ssl.key.password": "x",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": JAAS,
        }
    )
    settings = producer_settings(options)
    assert settings.ssl_cafile == pki.cafile
    assert (settings.ssl_certfile, settings.ssl_check_hostname) == (pki.client, False)
    assert (settings.sasl_plain_username, settings.sasl_plain_password) == ("anna", 'hun;"ter2')
    KafkaProducer(**{**options, "ssl_password": None}).close()


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"ssl.truststore.type": "JKS"}, "ssl.truststore.type='JKS': only PEM is read; convert with"),
        (
            {"ssl.truststore.password": "hunter2"},
            "ssl.truststore.password cannot be set: files in PEM have none",
        ),
        ({"ssl.endpoint.identification.algorithm": "x"}, "must be https, or empty"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "only TLSv1.2 and TLSv1.3 are spoken"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "give an ssl_context to choose one"),
        ({"ssl.engine.factory.class": "x"}, "about classes of Java"),
        ({"sasl.login.callback.handler.class": "x"}, "about classes of Java"),
        ({"sasl.jaas.config": "hunter2"}, "sasl.jaas.config: must be one of"),
        ({"sasl.jaas.config": JAAS.replace("username", "user")}, "username or password is missing"),
        ({"sasl.jaas.config": JAAS.replace('="anna"', " hunter2")}, "something after the flag is not name="),
        (
            {"sasl.jaas.config": JAAS, "sasl.mechanism": "PLAIN"},
            "ScramLoginModule is not for sasl.mechanism=PLAIN",
        ),
        (
            {"ssl.truststore.location": "a", "ssl.truststore.certificates": "b"},
            "another property with the same meaning",
        ),
        ({"sasl.jaas.config": JAAS, "sasl.plain.username": "x"}, "another property with the same meaning"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_javas_properties_that_cannot_be_met(properties: dict[str, str], words: str) -> None:
    """By their own name; and no text holds a password."""
    with pytest.raises(KafkaConfigurationError, match=words) as caught:
        producer_settings(options_from_properties(properties))
    assert "hunter2" not in str(caught.value)
    assert "ter2" not in str(caught.value)


async def test_an_unsecured_token_by_jaas() -> None:
    """As in Java, for tests."""
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    options = options_from_properties(
        {"sasl.jaas.config": f'{module} required unsecuredLoginStringClaim_sub="anna";'}
    )
    token = await options["sasl_oauth_token_provider"].token()
    assert token.endswith(".")
    assert isinstance(options_from_properties({"sasl.jaas.config": JAAS})["sasl_plain_password"], Secret)
