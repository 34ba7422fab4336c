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
