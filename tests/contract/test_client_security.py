"""TLS and SASL of the contract's clients: each gets the options by its own names."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from support.security.security_kit import PASSWORD, USER, Pki

from splashdam.model.secrets import Secret
from splashdam.testing.contract.available_clients import why_not
from splashdam.testing.contract.clients.security import (
    of_kafka_python,
    of_librdkafka,
    plain,
    with_ssl_context,
)
from splashdam.testing.contract.vocabulary import Listener

LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_plain_username": USER,
    "sasl_plain_password": Secret(PASSWORD),
    "ssl_check_hostname": False,
}


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


def test_librdkafka(pki: Pki) -> None:
    """Files and text have properties of their own."""
    named = of_librdkafka({**LOGIN, "ssl_cafile": pki.cafile, "ssl_certfile": pki.client})
    assert named == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": pki.cafile,
        "ssl.certificate.location": pki.client,
        "ssl.key.location": pki.client,
        "ssl.endpoint.identification.algorithm": "none",
    }
    text = Path(pki.cafile).read_text()
    assert of_librdkafka({"ssl_cafile": text}) == {"ssl.ca.pem": text}


def test_librdkafka_did_not_find_a_key_in_the_text_of_its_certificate(pki: Pki) -> None:
    """A keystore of type PEM holds both; as a file it was looked into, as text it was not."""
    text = Path(pki.client).read_text()
    assert of_librdkafka({"ssl_certfile": text}) == {"ssl.certificate.pem": text, "ssl.key.pem": text}
    apart = of_librdkafka({"ssl_certfile": text, "ssl_keyfile": "key.pem"})
    assert apart == {"ssl.certificate.pem": text, "ssl.key.location": "key.pem"}


def test_kafka_python(pki: Pki) -> None:
    """It takes files; text is put into a context."""
    assert of_kafka_python({**LOGIN, "ssl_cafile": pki.cafile})["ssl_cafile"] == pki.cafile
    options = of_kafka_python({**LOGIN, "ssl_cafile": Path(pki.cafile).read_text()})
    assert "ssl_cafile" not in options
    assert len(options["ssl_context"].get_ca_certs()) == 1


def test_aiokafka(pki: Pki) -> None:
    """It takes a context and no files; without TLS it gets neither."""
    options = with_ssl_context({**LOGIN, "ssl_cafile": pki.cafile})
    assert options.pop("ssl_context").verify_mode is ssl.CERT_REQUIRED
    assert options == {name: value for name, value in plain(LOGIN).items() if name != "ssl_check_hostname"}
    without_tls = {**LOGIN, "security_protocol": "SASL_PLAINTEXT"}
    assert "ssl_context" not in with_ssl_context(without_tls)


def test_a_refusal_of_an_earlier_connection_was_taken_for_the_producers() -> None:
    """A handshake may fail once, while a broker starts, and the error came with each later send."""
    confluent = pytest.importorskip("splashdam.testing.contract.clients.confluent")
    client = confluent.ConfluentClient("host:1")

    class Error:
        def code(self) -> int:
            return int(confluent.KafkaError._SSL)

        def str(self) -> Any:
            return "SSL handshake failed: Disconnected"

    class Producer:
        unsent = 1

        def __len__(self) -> int:
            return self.unsent

        def poll(self, _seconds: float) -> None:
            self.unsent = 0

    client._note(Error())
    client._deliver(Producer())


def test_a_protocol_in_small_letters_was_taken_for_plaintext() -> None:
    """By the drivers in Go and JavaScript and by aiokafka, which got no SSL context."""
    small = {**LOGIN, "security_protocol": "sasl_ssl"}
    assert plain(small)["security_protocol"] == "SASL_SSL"
    assert "ssl_context" in with_ssl_context(small)


def test_secrets_become_plain_text() -> None:
    """Other clients and JSON would take the mask of a `Secret` for the password, or refuse it."""
    assert type(plain(LOGIN)["sasl_plain_password"]) is str
    assert plain(LOGIN)["sasl_plain_password"] == PASSWORD


@pytest.mark.parametrize(
    ("name", "security", "why"),
    [
        ("kafka-python", LOGIN, None),
        ("kafka-python", {**LOGIN, "sasl_mechanism": "OAUTHBEARER"}, "with OAUTHBEARER only splashdam's own"),
        ("splashdam-trio", {**LOGIN, "sasl_mechanism": "OAUTHBEARER"}, None),
        ("confluent-kafka", {**LOGIN, "ssl_certfile": "client.pem"}, None),
        ("franz-go", {**LOGIN, "ssl_certfile": "client.pem"}, "its driver has no client certificate"),
        ("java 4.4.0", {}, None),
    ],
)
def test_clients_that_cannot_connect(name: str, security: dict[str, Any], why: str | None) -> None:
    """They are left out with a reason, not reported as broken."""
    found = why_not(name, security)
    assert found is None if why is None else why in (found or "")


def test_a_listener_without_a_login() -> None:
    """TLS stays, SASL goes; other options replace those that were given."""
    listener = Listener("host:1", LOGIN)
    assert (listener.protocol, listener.uses_tls, listener.mechanism) == ("SASL_SSL", True, "SCRAM-SHA-256")
    without = listener.without_login()
    assert without.security == {"security_protocol": "SSL", "ssl_check_hostname": False}
    assert without.mechanism is None
    assert listener.but(ssl_check_hostname=True).security["ssl_check_hostname"] is True
    assert Listener("host:1").protocol == "PLAINTEXT"
