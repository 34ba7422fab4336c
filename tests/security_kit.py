"""Certificates made for one run, and brokers that ask who comes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme

from splashdam.embedded_broker.embedded import EmbeddedBroker

USER, PASSWORD = "anna", "hunter2-is-secret"


class Pki:
    """A CA with a certificate for the broker and one for a client, as PEM files.

    Args:
        folder: where they are written.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.ca = trustme.CA()
        self.other_ca = trustme.CA()
        self.folder = folder
        self.cafile = self._write("ca.pem", self.ca.cert_pem.bytes())
        self.other_cafile = self._write("other-ca.pem", self.other_ca.cert_pem.bytes())
        self.broker = self.issue("broker", "localhost", "127.0.0.1")
        self.client = self.issue("client", "client.example.com", common_name="anna")

    def issue(self, name: str, *hosts: str, ca: trustme.CA | None = None, **options: Any) -> str:
        """A certificate with chain and key in one file."""
        made = (ca or self.ca).issue_cert(*hosts, **options)
        chain = b"".join(part.bytes() for part in made.cert_chain_pems)
        return self._write(f"{name}.pem", made.private_key_pem.bytes() + chain)

    def _write(self, name: str, content: bytes) -> str:
        path = self.folder / name
        path.write_bytes(content)
        return str(path)


@contextmanager
def secure_broker(
    folder: Path, pki: Pki, protocol: str = "SASL_SSL", *, host: str = "localhost", **settings: Any
) -> Iterator[EmbeddedBroker]:
    """A broker with one listener on a free port, and one user."""
    if "SSL" in protocol.replace("SASL", ""):
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
