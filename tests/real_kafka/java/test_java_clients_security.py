"""Java's own client against the embedded broker's TLS and SASL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kafka.kafka_jars import newest_with_tools, run_tool
from support.security.security_kit import PASSWORD, USER, Pki, pkcs8, secure_broker

from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

_MODULES = "org.apache.kafka.common.security"
_LOGINS = {
    "PLAIN": f'{_MODULES}.plain.PlainLoginModule required username="{USER}" password="PASSWORD";',
    "SCRAM-SHA-512": f'{_MODULES}.scram.ScramLoginModule required username="{USER}" password="PASSWORD";',
    "OAUTHBEARER": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required"
    f' unsecuredLoginStringClaim_sub="{USER}";',
}


@pytest.fixture(scope="module")
def version() -> str:
    """The newest Kafka that was published with its tools."""
    return newest_with_tools()


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Certificates for these tests."""
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def broker(pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Ours, with TLS, passwords and tokens; clients may show certificates."""
    folder = tmp_path_factory.mktemp("data")
    with secure_broker(folder, pki, "SASL_SSL", ssl_client_auth="requested") as running:
        with KafkaProducer(
            bootstrap_servers=running.bootstrap_servers,
            security_protocol="SASL_SSL",
            ssl_cafile=pki.cafile,
            sasl_mechanism="PLAIN",
            sasl_plain_username=USER,
            sasl_plain_password=PASSWORD,
        ) as producer:
            producer.prepare("made-by-us")
        yield running


def listed(version: str, broker: EmbeddedBroker, pki: Pki, folder: Path, login: tuple[str, str]) -> str:
    """What kafka-topics lists; AssertionError with all it said where it fails."""
    mechanism, password = login
    config = folder / "client.properties"
    config.write_text(
        "security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={pki.cafile}\nssl.keystore.location={pkcs8(pki, 'client')}\n"
        f"sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config={_LOGINS[mechanism].replace('PASSWORD', password)}\n"
        "request.timeout.ms=10000\ndefault.api.timeout.ms=15000\n"
    )
    arguments = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(config), "--list")
    return run_tool(version, "org.apache.kafka.tools.TopicCommand", *arguments)


@pytest.mark.parametrize("mechanism", _LOGINS)
def test_java_gets_in(version: str, broker: EmbeddedBroker, pki: Pki, tmp_path: Path, mechanism: str) -> None:
    """By password and by token, with a certificate of its own."""
    assert "made-by-us" in listed(version, broker, pki, tmp_path, (mechanism, PASSWORD))


def test_java_is_told_why_not(version: str, broker: EmbeddedBroker, pki: Pki, tmp_path: Path) -> None:
    """SaslAuthenticationException, with the broker's text, without another attempt."""
    with pytest.raises(AssertionError, match=r"SaslAuthenticationException.*invalid credentials"):
        listed(version, broker, pki, tmp_path, ("SCRAM-SHA-512", "wrong"))
