"""GSSAPI against a realm of its own, with MIT's KDC; and what is told where the package is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.running.patches import Patches
from support.security import kerberos_realm
from support.security.kerberos_realm import REALM, Realm
from support.security.sasl_kit import Users, authenticated

from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.errors import KafkaConfigurationError, SaslError
from splashdam.net.sasl.mechanisms import MECHANISMS, Credentials, Refusal

kerberos = pytest.mark.kerberos
SHOWN = Credentials("localhost")


@attrs.frozen
class Place:
    """A realm, and keytabs in it."""

    realm: Realm
    broker: str
    anna: str
    other: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A KDC with a broker on localhost, a second broker, and a user with a ticket."""
    missing = kerberos_realm.tools_missing()
    if missing:
        pytest.skip(f"needs {', '.join(missing)} (Debian: krb5-kdc, krb5-admin-server, krb5-user)")
    pytest.importorskip("gssapi", reason="needs splashdam[gssapi]")
    realm = Realm(tmp_path_factory.mktemp("realm"))
    with Patches.context() as patch, realm.running():
        for name, value in realm.environment.items():
            patch.setenv(name, value)
        made = Place(realm, realm.add("kafka/localhost"), realm.add("anna"), realm.add("kafka/elsewhere"))
        realm.login("anna", made.anna)
        yield made


def broker_with(keytab: str) -> Users:
    users = Users()
    users.keytab = keytab
    return users


@kerberos
@pytest.mark.parametrize(
    "shown",
    [
        SHOWN,
        Credentials("10.0.0.1", service_host="localhost"),
        Credentials("10.0.0.1", service=f"kafka/localhost@{REALM}"),
    ],
    ids=["by host", "by another host", "by principal"],
)
async def test_a_ticket_gets_in(place: Place, shown: Credentials) -> None:
    """Both are proven; the user's name is without realm, as Kafka has it."""
    outcome = await authenticated("GSSAPI", broker_with(place.broker), shown)
    assert outcome is not None
    assert (outcome.name, outcome.expires_at_ms) == ("anna", None)


@kerberos
async def test_a_ticket_for_another_broker(place: Place) -> None:
    """It is refused: a broker cannot use a client's ticket at another broker."""
    client = await MECHANISMS["GSSAPI"].open_client(SHOWN)
    server = MECHANISMS["GSSAPI"].open_server(broker_with(place.other))
    complaint = server.step(client.start())
    with pytest.raises(SaslError, match=r"kafka/localhost.* not found in keytab"):
        client.step(complaint)
    with pytest.raises(Refusal, match="the Kerberos ticket is not accepted"):
        server.step(b"")
    assert server.outcome is None


@kerberos
async def test_a_broker_that_does_not_prove_itself(place: Place) -> None:
    """A broker without the service's key cannot answer, and the client refuses it."""
    client = await MECHANISMS["GSSAPI"].open_client(SHOWN)
    client.start()
    with pytest.raises(SaslError, match="the exchange failed"):
        client.step(b"\x60\x03xyz")


@kerberos
@pytest.mark.parametrize("message", [b"", b"\x01", b"\0" * 100, b"\x60\x82" + b"x" * 50])
def test_what_is_no_ticket(place: Place, message: bytes) -> None:
    """It is refused without further effect."""
    server = MECHANISMS["GSSAPI"].open_server(broker_with(place.broker))
    with suppress(Refusal):  # or an answer that says so
        server.step(message)
    with pytest.raises(Refusal):
        server.step(message)
    assert server.outcome is None


@kerberos
async def test_a_security_layer_is_not_taken(place: Place) -> None:
    """An authorization id of another principal is refused, too."""
    for chosen, words in (
        (b"\x04\0\0\0", "requests a security layer"),
        (b"\x01\0\0\0root", "authorization id"),
    ):
        client = await MECHANISMS["GSSAPI"].open_client(SHOWN)
        server = MECHANISMS["GSSAPI"].open_server(broker_with(place.broker))
        assert client.step(server.step(client.start())) == b""
        context: Any = vars(client)["_context"]
        server.step(b"")
        with pytest.raises(Refusal, match=words):
            server.step(context.wrap(chosen, False).message)
        assert server.outcome is None


@kerberos
async def test_no_ticket_to_be_had(place: Place) -> None:
    """Kerberos' own words say why."""
    with pytest.raises(SaslError, match=r"GSSAPI: no ticket for kafka@nowhere: .*not found in Kerberos"):
        await MECHANISMS["GSSAPI"].open_client(Credentials("nowhere"))
    place.realm.logout()
    try:
        with pytest.raises(SaslError, match="No Kerberos credentials available"):
            await MECHANISMS["GSSAPI"].open_client(SHOWN)
    finally:
        place.realm.login("anna", place.anna)


@kerberos
def test_a_producer_and_a_broker(place: Place, tmp_path: Path) -> None:
    """Over TCP, and again before the session ends (KIP-368)."""
    broker = EmbeddedBroker(
        tmp_path,
        listeners="SASL_PLAINTEXT://localhost:0",
        sasl_enabled_mechanisms="GSSAPI",
        sasl_kerberos_keytab=place.broker,
        connections_max_reauth_ms=500,
    )
    with (
        broker,
        KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="GSSAPI",
        ) as producer,
    ):
        for number in range(300):
            assert producer.send("orders", b"v").get(300).offset == number


MISSING = r"GSSAPI needs the package gssapi.*splashdam\[gssapi\]"


def test_the_package_is_missing_for_a_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by the constructor, with the extra's name."""
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(KafkaConfigurationError, match=MISSING):
        KafkaProducer(security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI")


def test_the_package_is_missing_for_a_broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Told at its start."""
    monkeypatch.setitem(sys.modules, "gssapi", None)
    listeners = "SASL_PLAINTEXT://localhost:0"
    broker = EmbeddedBroker(tmp_path, listeners=listeners, sasl_enabled_mechanisms="GSSAPI")
    with pytest.raises(KafkaConfigurationError, match=MISSING):
        broker.start()
