"""Our producer and our broker over TCP, by every way in; large answers inside TLS; what mistakes are told."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from support.security.security_kit import PASSWORD, USER, Pki, secure_broker

from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.errors import (
    AuthenticationError,
    KafkaTimeoutError,
    SslAuthenticationError,
    WrongListenerError,
)
from splashdam.net.sasl.unsecured_jws import unsecured_token

MIB = 1 << 20


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Certificates for all of these tests."""
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def brokers(pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, EmbeddedBroker]]:
    """One broker for each protocol."""
    folder = tmp_path_factory.mktemp("data")
    with (
        secure_broker(folder / "1", pki, "SASL_PLAINTEXT") as plain,
        secure_broker(folder / "2", pki, "SASL_SSL") as both,
        secure_broker(folder / "3", pki, "SSL", ssl_client_auth="required") as tls,
    ):
        yield {"SASL_PLAINTEXT": plain, "SASL_SSL": both, "SSL": tls}


def options_for(pki: Pki, protocol: str, mechanism: str) -> dict[str, Any]:
    options: dict[str, Any] = {"security_protocol": protocol, "max_block_ms": 20_000}
    if protocol.endswith("SSL"):
        options["ssl_cafile"] = pki.cafile
    if protocol == "SSL":
        return options | {"ssl_certfile": pki.client}
    if mechanism == "OAUTHBEARER":
        provider = {"sasl_oauth_token_provider": lambda: unsecured_token(USER, time.time())}
        return options | {"sasl_mechanism": mechanism, **provider}
    password = {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    return options | {"sasl_mechanism": mechanism, **password}


WAYS = [
    ("SSL", ""),
    *(
        (protocol, mechanism)
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    ),
]


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_our_producer_gets_in(
    brokers: dict[str, EmbeddedBroker], pki: Pki, protocol: str, mechanism: str
) -> None:
    """With records small and large, many batches under way."""
    servers, topic = brokers[protocol].bootstrap_servers, f"ours-{protocol}-{mechanism}"
    options = options_for(pki, protocol, mechanism)
    with KafkaProducer(bootstrap_servers=servers, batch_size=20_000, **options) as producer:
        futures = [producer.send(topic, b"x" * (number % 5_000), partition=0) for number in range(1_000)]
        assert [future.get(300).offset for future in futures] == list(range(1_000))


def test_large_answers_inside_tls(brokers: dict[str, EmbeddedBroker], pki: Pki) -> None:
    """Where plain TCP would have sendfile: librdkafka checks each batch's sum."""
    servers = brokers["SASL_SSL"].bootstrap_servers
    values = [bytes([number]) * (MIB - 1000) for number in range(8)]
    options = options_for(pki, "SASL_SSL", "SCRAM-SHA-256")
    with KafkaProducer(bootstrap_servers=servers, **options) as producer:
        for value in values:
            producer.send("large", value, partition=0)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "check.crcs": True,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": pki.cafile,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition("large", 0, confluent_kafka.OFFSET_BEGINNING)])
        assert [consumer.poll(20).value() for _ in values] == values
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("listener", "options", "words"),
    [
        ("SSL", {"ssl_certfile": None}, "requires a client certificate and got none; set ssl_certfile"),
        (
            "SASL_SSL",
            {"ssl_cafile": "other"},
            "by a CA that is not trusted; name that CA in ssl_cafile",
        ),
        ("SASL_PLAINTEXT", {"security_protocol": "SASL_SSL", "ssl_cafile": "ca"}, "does not speak TLS"),
    ],
)
def test_mistakes_fail_at_once(
    brokers: dict[str, EmbeddedBroker], pki: Pki, listener: str, options: dict[str, Any], words: str
) -> None:
    """The error names host, cause and remedy."""
    mechanism = "" if listener == "SSL" else "SCRAM-SHA-256"
    settings = {**options_for(pki, listener, mechanism), **options, "max_block_ms": 300_000}
    files = {"other": pki.other_cafile, "ca": pki.cafile}
    if settings.get("ssl_cafile") in files:
        settings["ssl_cafile"] = files[settings["ssl_cafile"]]
    with KafkaProducer(bootstrap_servers=brokers[listener].bootstrap_servers, **settings) as producer:
        with pytest.raises((SslAuthenticationError, WrongListenerError), match=words) as caught:
            producer.send("t", b"v").get(300)
        assert "localhost:" in str(caught.value)


def grow_old(producer: KafkaProducer, age_ms: float) -> None:
    """Makes what waits so much older."""
    core = producer._core

    def age() -> None:
        for batch in core.accumulator.incomplete:
            batch.created_ms -= age_ms
        core.sender._completion._timeout.none_before_ms -= age_ms

    core.guard.run(age)
    core._wakeup.wake()


def test_an_advertised_name_that_is_not_in_the_certificate(pki: Pki, tmp_path: Path) -> None:
    """The broker is found by a good name and advertises another one: that is checked as well, and told."""
    certificate = pki.issue("one-name", "localhost")
    settings = {"ssl_keystore_location": certificate, "advertised_listeners": "SSL://127.0.0.1:0"}
    with secure_broker(tmp_path, pki, "SSL", **settings) as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        options = {**options_for(pki, "SSL", ""), "request_timeout_ms": 30_000, "delivery_timeout_ms": 60_000}
        with KafkaProducer(bootstrap_servers=f"localhost:{port}", **options) as producer:
            future = producer.send("t", b"v")
            while "its certificate is for another" not in producer.last_failure:
                time.sleep(0.01)
            grow_old(producer, 60_000)
            with pytest.raises(KafkaTimeoutError, match="its certificate is for another") as caught:
                future.get(300)
            assert f"127.0.0.1:{port}" in str(caught.value)


@pytest.mark.parametrize(
    ("listener", "words"),
    [
        ("SSL", "speaks TLS; set security_protocol to SSL or SASL_SSL"),
        ("SASL_SSL", "speaks TLS; set security_protocol to SSL or SASL_SSL"),
        ("SASL_PLAINTEXT", r"requires SASL \(PLAIN.*set security_protocol to SASL_PLAINTEXT"),
    ],
)
def test_a_plaintext_producer_is_told_what_is_wrong(
    brokers: dict[str, EmbeddedBroker], listener: str, words: str
) -> None:
    """At once, and the text names address and option."""
    servers = brokers[listener].bootstrap_servers
    with (
        KafkaProducer(bootstrap_servers=servers) as producer,
        pytest.raises(WrongListenerError, match=f"the listener at {servers} {words}"),
    ):
        producer.send("t", b"v").get(300)


def test_a_producer_with_tls_alone_is_told_of_sasl(brokers: dict[str, EmbeddedBroker], pki: Pki) -> None:
    """TLS is right, and the broker closes what does not authenticate."""
    servers = brokers["SASL_SSL"].bootstrap_servers
    settings = {"security_protocol": "SSL", "ssl_cafile": pki.cafile}
    with (
        KafkaProducer(bootstrap_servers=servers, **settings) as producer,  # type: ignore[arg-type]
        pytest.raises(WrongListenerError, match="set security_protocol to SASL_SSL"),
    ):
        producer.send("t", b"v").get(300)


def test_one_wrong_bootstrap_server_among_others_is_passed_over(
    brokers: dict[str, EmbeddedBroker], pki: Pki
) -> None:
    """Wherever it stands."""
    right, wrong = (brokers[name].bootstrap_servers for name in ("SASL_SSL", "SASL_PLAINTEXT"))
    for servers in ([right, wrong], [wrong, right]):
        settings = options_for(pki, "SASL_SSL", "SCRAM-SHA-256")
        with KafkaProducer(bootstrap_servers=servers, **settings) as producer:
            assert producer.send("t", b"v").get(300).offset >= 0


def test_no_secret_is_shown_over_tcp(pki: Pki, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Passwords of keys, keys that are texts, tokens: in no repr, log or error, of either side."""
    from cryptography.hazmat.primitives import serialization

    caplog.set_level(logging.DEBUG)
    text = Path(pki.broker).read_bytes()
    chain = text[text.index(b"-----BEGIN CERT") :]
    key = serialization.load_pem_private_key(text, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"hunter-of-keys"),
    )
    settings = {
        "ssl_keystore_location": "",
        "ssl_keystore_certificate_chain": chain.decode(),
        "ssl_keystore_key": key.decode(),
        "ssl_key_password": "hunter-of-keys",
    }
    del settings["ssl_keystore_location"]
    broker = EmbeddedBroker(tmp_path, fsync=False, listeners="SASL_SSL://localhost:0", **settings)
    broker.users.add(USER, PASSWORD)
    shown = [repr(broker.__dict__), repr(broker._open)]
    with broker:
        options = options_for(pki, "SASL_SSL", "SCRAM-SHA-256")
        options |= {"bootstrap_servers": broker.bootstrap_servers}
        for password in (PASSWORD, "hunter-of-users"):
            with KafkaProducer(**{**options, "sasl_plain_password": password}) as producer:
                try:
                    producer.send("t", b"v").get(300)
                except AuthenticationError as error:
                    shown += [repr(error), str(error)]
                shown += [repr(producer.config), repr(producer), producer.last_failure]
    shown.append(caplog.text)
    secrets = (PASSWORD, "hunter", key.decode().splitlines()[1])
    assert not [secret for secret in secrets if any(secret in text for text in shown)]
