"""Certificates made for one run, and brokers that authenticate clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock

USER, PASSWORD = "anna", "hunter2-is-secret"


class Pki:
    """A CA with a certificate for the broker and one for a client, as PEM files.

    Args:
        folder: where they are written.
    """

    def __init__(self, folder: Path) -> None:
        trustme = pytest.importorskip("trustme", reason="needs trustme, which makes the certificates")
        folder.mkdir(parents=True, exist_ok=True)
        self.ca: Any = trustme.CA()
        self.other_ca: Any = trustme.CA()
        self.folder = folder
        self.cafile = self._write("ca.pem", self.ca.cert_pem.bytes())
        self.other_cafile = self._write("other-ca.pem", self.other_ca.cert_pem.bytes())
        self.broker = self.issue("broker", "localhost", "127.0.0.1")
        self.client = self.issue("client", "client.example.com", common_name="anna")

    def issue(self, name: str, *hosts: str, ca: Any = None, **options: Any) -> str:
        """A certificate with chain and key in one file."""
        made = (ca or self.ca).issue_cert(*hosts, **options)
        chain = b"".join(part.bytes() for part in made.cert_chain_pems)
        return self._write(f"{name}.pem", made.private_key_pem.bytes() + chain)

    def _write(self, name: str, content: bytes) -> str:
        path = self.folder / name
        path.write_bytes(content)
        return str(path)


def pkcs8(pki: Pki, name: str) -> str:
    """The same certificate with its key as PKCS #8, the only form that Java reads."""
    from cryptography.hazmat.primitives import serialization

    text = (pki.folder / f"{name}.pem").read_bytes()
    key = serialization.load_pem_private_key(text, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = pki.folder / f"{name}-pkcs8.pem"
    path.write_bytes(key + text[text.index(b"-----BEGIN CERT") :])
    return str(path)


@contextmanager
def secure_broker(
    folder: Path,
    pki: Pki | None = None,
    protocol: str = "SASL_SSL",
    *,
    host: str = "localhost",
    **settings: Any,
) -> Iterator[EmbeddedBroker]:
    """A broker with one listener on a free port, and one user."""
    if "SSL" in protocol.replace("SASL", ""):
        assert pki is not None
        settings = {
            "ssl_keystore_location": pki.broker,
            "ssl_truststore_location": pki.cafile,
            **settings,
        }
    settings = {"sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER", **settings}
    broker = EmbeddedBroker(folder, listeners=f"{protocol}://{host}:0", **settings)
    broker.users.add(USER, PASSWORD)
    with broker:
        yield broker


class MemoryCluster:
    """A broker and its clients in one trio run, in virtual time.

    Args:
        clock: of the run.
        protocol: of the only listener.
        settings: of the broker.
    """

    def __init__(self, clock: MockClock, protocol: str = "SASL_PLAINTEXT", **settings: Any) -> None:
        self.network = MemoryNetwork()
        self.clock = VirtualClock(clock)
        self.files = MemoryFiles()
        self.protocol = protocol
        self.settings = {
            "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listeners": f"{protocol}://broker:9092",
            **settings,
        }

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[Broker]:
        """The broker, with one user."""
        opened = open_broker(
            "/data", listen=self.network.listen, clock=self.clock, files=self.files, **self.settings
        )
        async with opened as broker:
            broker.users.add(USER, PASSWORD)
            yield broker

    def producer(self, password: str = PASSWORD, **options: Any) -> AsyncKafkaProducer:
        """One that finds the broker; it does not run yet."""
        if "SASL" in self.protocol and "sasl_oauth_token_provider" not in options:
            options = {"sasl_plain_username": USER, "sasl_plain_password": password, **options}
            options.setdefault("sasl_mechanism", "SCRAM-SHA-256")
        options = {"bootstrap_servers": "broker:9092", "security_protocol": self.protocol, **options}
        return AsyncKafkaProducer(connect=self.network.connect, clock=self.clock, **options)
