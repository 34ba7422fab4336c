"""The producer against a real Kafka's TLS and SASL: every mechanism, both certificates, sessions that end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.kafka.kafka_jars import VERSIONS
from support.kafka.secure_kafka import SecureKafka
from support.security.security_kit import USER

from splashdam.model.broker_errors import SaslAuthenticationFailedError
from splashdam.model.errors import SslAuthenticationError, WrongListenerError
from splashdam.net.sasl.unsecured_jws import UnsecuredToken

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """A secure Kafka of each version."""
    secure = SecureKafka(
        request.param, tmp_path_factory.mktemp("secure"), {"connections.max.reauth.ms": "2000"}
    )
    secure.start()
    try:
        yield secure
    finally:
        secure.broker.stop()


@pytest.mark.parametrize("listener", ["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_passwords(kafka: SecureKafka, listener: str, mechanism: str) -> None:
    """The right one gets records in; a wrong one is refused at once, in Kafka's words."""
    with kafka.producer(listener, sasl_mechanism=mechanism) as producer:
        assert producer.send("secure", b"v").get(300).offset >= 0
    with kafka.producer(listener, sasl_mechanism=mechanism, sasl_plain_password="wrong") as producer:
        started = time.monotonic()
        with pytest.raises(SaslAuthenticationFailedError, match=r"Authentication failed"):
            producer.send("secure", b"v").get(300)
        assert time.monotonic() - started < 15


def test_tokens(kafka: SecureKafka) -> None:
    """Without a signature, as Kafka believes them by default."""
    options = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": UnsecuredToken(USER)}
    with kafka.producer("SASL_SSL", **options) as producer:
        assert producer.send("secure", b"v").get(300).offset >= 0


def test_certificates_of_both_sides(kafka: SecureKafka) -> None:
    """Ours gets in; without one we are told what is missing."""
    with kafka.producer("MTLS", ssl_certfile=kafka.pki.client) as producer:
        assert producer.send("secure", b"v").get(300).offset >= 0
    for options, words in (
        ({}, "requires one and got none"),
        ({"ssl_cafile": kafka.pki.other_cafile}, "name that CA in ssl_cafile"),
    ):
        producer = kafka.producer("MTLS", **options)
        with pytest.raises(SslAuthenticationError, match=words):
            producer.send("secure", b"v").get(300)
        producer.close()


def test_sessions_are_renewed(kafka: SecureKafka) -> None:
    """Two seconds each (KIP-368): records go on, in order, over one connection."""
    with kafka.producer("SASL_SSL", sasl_mechanism="SCRAM-SHA-512") as producer:
        first = producer.send("renewed", b"0", partition=0).get(300).offset
        before = producer.metrics()["producer-metrics"]
        futures = []
        until = time.monotonic() + 5
        while time.monotonic() < until:
            futures.append(producer.send("renewed", b"v", partition=0))
            time.sleep(0.01)
        offsets = [future.get(300).offset for future in futures]
        after = producer.metrics()["producer-metrics"]
    assert offsets == list(range(first + 1, first + 1 + len(futures)))
    assert after["record-retry-total"] == before["record-retry-total"]


WRONG = [
    ("PLAINTEXT", "MTLS", "does not speak TLS"),
    ("SASL_PLAINTEXT", "SASL_SSL", "does not speak TLS"),
    ("MTLS", "PLAINTEXT", "speaks TLS; set security_protocol to SSL or SASL_SSL"),
    ("SASL_SSL", "PLAINTEXT", "speaks TLS; set security_protocol to SSL or SASL_SSL"),
    ("SASL_SSL", "SASL_PLAINTEXT", "speaks TLS; set security_protocol to SSL or SASL_SSL"),
    ("SASL_PLAINTEXT", "PLAINTEXT", r"requires SASL \(.*set security_protocol to SASL_PLAINTEXT"),
    ("SASL_SSL", "MTLS", r"requires SASL \(.*set security_protocol to SASL_SSL"),
    ("PLAINTEXT", "SASL_PLAINTEXT", "does not use SASL; set security_protocol to PLAINTEXT"),
]
"""A listener, the protocol that it is taken for, and what is said."""


@pytest.mark.parametrize(("listener", "taken_for", "words"), WRONG)
def test_a_wrong_listener_is_named_at_once(
    kafka: SecureKafka, listener: str, taken_for: str, words: str
) -> None:
    """Kafka itself just closes the connection in most cases; the other tongue gets an answer."""
    options: dict[str, Any] = {"bootstrap_servers": kafka.servers[listener], "max_block_ms": 60_000}
    if "SASL" in taken_for:
        options["sasl_mechanism"] = "SCRAM-SHA-256"
    with kafka.producer(taken_for, **options) as producer:
        started = time.monotonic()
        with pytest.raises(WrongListenerError, match=words):
            producer.send("secure", b"v").get(300)
        assert time.monotonic() - started < 15
