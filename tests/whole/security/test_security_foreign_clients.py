"""Clients that we did not write, against the broker's TLS and SASL: they get in, or are told why not."""

from __future__ import annotations

import ssl
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import aiokafka.abc
import confluent_kafka
import kafka.errors
import pytest
from kafka.net.sasl.oauth import AbstractTokenProvider
from support.clients.foreign_clients import PRODUCERS, Sent
from support.security.security_kit import PASSWORD, USER, Pki, secure_broker

from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.embedded_broker.security.authentication import SaslSession
from splashdam.net.sasl.mechanisms import Authenticated
from splashdam.net.sasl.unsecured_jws import unsecured_token

RECORDS = [Sent(0, b"key", b"value-%d" % number, []) for number in range(3)]
Options: TypeAlias = dict[str, Any]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Certificates for all of these tests."""
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def brokers(pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, EmbeddedBroker]]:
    """One broker for each protocol; the one with SSL wants certificates."""
    folder = tmp_path_factory.mktemp("data")
    with (
        secure_broker(folder / "1", pki, "SASL_PLAINTEXT") as plain,
        secure_broker(folder / "2", pki, "SASL_SSL", connections_max_reauth_ms=20_000) as both,
        secure_broker(folder / "3", pki, "SSL", ssl_client_auth="required") as tls,
    ):
        yield {"SASL_PLAINTEXT": plain, "SASL_SSL": both, "SSL": tls}


def token() -> str:
    return unsecured_token(USER, time.time())


class KafkaPythonTokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """Makes a token each time."""

    def token(self) -> str:
        return token()


class AiokafkaTokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]  # no types either
    """Makes a token each time."""

    async def token(self) -> str:
        return token()


def kafka_python_options(pki: Pki, protocol: str, mechanism: str, password: str) -> Options:
    options: Options = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        options["ssl_cafile"] = pki.cafile
    if protocol == "SSL":
        options |= {"ssl_certfile": pki.client, "ssl_keyfile": pki.client}
    elif mechanism == "OAUTHBEARER":
        options |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": KafkaPythonTokens()}
    else:
        options |= {"sasl_plain_username": USER, "sasl_plain_password": password, "sasl_mechanism": mechanism}
    return options


def aiokafka_options(pki: Pki, protocol: str, mechanism: str, password: str) -> Options:
    options = kafka_python_options(pki, protocol, mechanism, password)
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        options.pop(name, None)
    if protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=pki.cafile)
        if protocol == "SSL":
            context.load_cert_chain(pki.client)
        options["ssl_context"] = context
    if mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = AiokafkaTokens()
    return options


def confluent_options(pki: Pki, protocol: str, mechanism: str, password: str) -> Options:
    options: Options = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        options["ssl_ca_location"] = pki.cafile
    if protocol == "SSL":
        options |= {"ssl_certificate_location": pki.client, "ssl_key_location": pki.client}
    elif mechanism == "OAUTHBEARER":
        options |= {"sasl_mechanism": mechanism, "oauth_cb": lambda _: (token(), time.time() + 3600)}
    else:
        options |= {"sasl_mechanism": mechanism, "sasl_username": USER, "sasl_password": password}
    return options


OPTIONS: dict[str, Callable[..., Options]] = {
    "kafka-python": kafka_python_options,
    "confluent-kafka": confluent_options,
    "aiokafka": aiokafka_options,
}

WAYS = [
    ("SSL", ""),
    *(
        (protocol, mechanism)
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    ),
]


# kafka-python leaves the socket of a TLS handshake that it gives up to the collector: perhaps in the test.
@pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")
@pytest.mark.parametrize("client", PRODUCERS)
@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_foreign_clients_get_in(
    brokers: dict[str, EmbeddedBroker], pki: Pki, client: str, protocol: str, mechanism: str
) -> None:
    """Every mechanism, with and without TLS; and TLS with certificates on both sides."""
    options = OPTIONS[client](pki, protocol, mechanism, PASSWORD)
    servers = brokers[protocol].bootstrap_servers
    topic = f"{client}-{protocol}-{mechanism}"
    if client == "confluent-kafka" and "oauth_cb" in options:
        # librdkafka takes callbacks by this very name.
        assert confluent_with_tokens(servers, topic, options) == len(RECORDS)
        return
    assert PRODUCERS[client](servers, topic, RECORDS, **options) == [0, 1, 2]


def confluent_with_tokens(servers: str, topic: str, options: Options) -> int:
    dotted = {name.replace("_", "."): value for name, value in options.items() if name != "oauth_cb"}
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "log_level": 0, "oauth_cb": options["oauth_cb"], **dotted}
    )
    done: list[int] = []
    for each in RECORDS:
        producer.produce(topic, each.value, on_delivery=lambda error, message: done.append(message.offset()))
    assert producer.flush(300) == 0
    return len(done)


def refused_admin(**options: Any) -> None:
    """A client of kafka-python's that is refused: its constructor raises, and leaves thread and sockets."""
    made: list[kafka.KafkaAdminClient] = []

    class Admin(kafka.KafkaAdminClient):  # type: ignore[misc]  # kafka-python is not typed
        def __init__(self, **given: Any) -> None:
            made.append(self)
            super().__init__(**given)

    with pytest.raises(kafka.errors.KafkaTimeoutError):
        Admin(bootstrap_timeout_ms=400, **options)
    made[0]._closed = False
    made[0].close()


def test_kafka_python_is_told_why_not(
    brokers: dict[str, EmbeddedBroker], pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    """Error 58 with Kafka's text: it logs that, and tries again until its time is up.

    In TLS it lost an answer that came together with the end of the stream.
    """
    options = kafka_python_options(pki, "SASL_SSL", "SCRAM-SHA-256", "wrong")
    servers = brokers["SASL_SSL"].bootstrap_servers
    refused_admin(bootstrap_servers=servers, **options)
    assert "[Error 58] SaslAuthenticationFailedError" in caplog.text
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in caplog.text


def test_confluent_is_told_why_not(brokers: dict[str, EmbeddedBroker], pki: Pki) -> None:
    """librdkafka calls its error callback with what the broker said."""
    told: list[Any] = []
    options = confluent_options(pki, "SASL_PLAINTEXT", "PLAIN", "wrong")
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": brokers["SASL_PLAINTEXT"].bootstrap_servers,
            "log_level": 0,
            "error_cb": told.append,
            **dotted,
        }
    )
    for _ in range(3_000):  # minutes: it ends a hang alone
        producer.poll(0.1)
        if any("Invalid username or password" in error.str() for error in told):
            return
    raise AssertionError(told)


@pytest.mark.slow
def test_confluent_stays_through_re_authentication(
    brokers: dict[str, EmbeddedBroker],
    pki: Pki,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session ends after 20 s; librdkafka renews it in time, and no connection is lost (KIP-368)."""
    authenticated: defaultdict[SaslSession, list[float]] = defaultdict(list)
    known = SaslSession._known

    def counted(self: SaslSession, outcome: Authenticated) -> None:
        known(self, outcome)
        authenticated[self].append(time.monotonic())

    def has_outlived_its_first_session() -> bool:
        now = time.monotonic()
        return any(len(times) > 1 and now > times[0] + 21 for times in list(authenticated.values()))

    monkeypatch.setattr(SaslSession, "_known", counted)
    options = confluent_options(pki, "SASL_SSL", "SCRAM-SHA-512", PASSWORD)
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    lost: list[Any] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": brokers["SASL_SSL"].bootstrap_servers,
            "log_level": 0,
            "error_cb": lost.append,
            **dotted,
        }
    )
    sent = delivered = 0

    def count(error: Any, _message: Any) -> None:
        nonlocal delivered
        delivered += error is None

    while not has_outlived_its_first_session():
        producer.produce("renewed", b"x", on_delivery=count)
        sent += 1
        producer.poll(0.05)
    assert producer.flush(300) == 0
    assert (delivered, lost) == (sent, [])
    assert "expired" not in caplog.text


def test_a_client_without_a_certificate_is_not_let_in(pki: Pki, tmp_path: Path) -> None:
    """A client whose certificate another CA has signed is not let in either."""
    other = pki.issue("stranger", "stranger", ca=pki.other_ca)
    with secure_broker(tmp_path, pki, "SSL", ssl_client_auth="required") as broker:
        for certificate in (None, other):
            context = ssl.create_default_context(cafile=pki.cafile)
            if certificate is not None:
                context.load_cert_chain(certificate)
            refused_admin(
                bootstrap_servers=broker.bootstrap_servers, security_protocol="SSL", ssl_context=context
            )
