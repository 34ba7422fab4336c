"""Clusters for the contract, embedded and real, with a listener for each way in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.testing.contract.available_clients import EMBEDDED_CONFIG
from splashdam.testing.contract.behaviours.security import MECHANISMS
from splashdam.testing.contract.vocabulary import Listener
from support.kafka.secure_kafka import SecureKafka
from support.security.security_kit import PASSWORD, USER, Pki

REAL_CONFIG = {**EMBEDDED_CONFIG, "log.initial.task.delay.ms": "300"}
"""By default Kafka waits 30 seconds before it cleans and deletes logs for the first time."""

_HOSTS = ("localhost",)
"""Those that the certificate is for; 127.0.0.1 is not one of them, so that there is a wrong one."""


@contextmanager
def contract_cluster(
    name: str, home: Path, config: Mapping[str, str] | None = None
) -> Iterator[list[Listener]]:
    """A cluster, running, and its listeners; the first wants neither TLS nor SASL.

    Args:
        name: ``embedded``, or a version of Kafka.
        home: a directory of its own.
        config: further configurations of the broker.
    """
    if name == "embedded":
        with _embedded(home, {**EMBEDDED_CONFIG, **(config or {})}) as listeners:
            yield listeners
        return
    kafka = SecureKafka(name, home, {**REAL_CONFIG, **(config or {})}, hosts=_HOSTS)
    kafka.start()
    try:
        yield _listeners(kafka.servers.__getitem__, kafka.pki)
    finally:
        kafka.broker.stop()


@contextmanager
def _embedded(home: Path, config: Mapping[str, str]) -> Iterator[list[Listener]]:
    pki = Pki(home / "pki")
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    broker = EmbeddedBroker(
        home / "data",
        config=config,
        fsync=False,
        listeners=",".join(f"{name}://localhost:0" for name in names),
        ssl_keystore_location=pki.issue("broker", *_HOSTS),
        sasl_enabled_mechanisms=",".join(MECHANISMS),
    )
    broker.users.add(USER, PASSWORD)
    with broker:
        yield _listeners(broker.bootstrap_servers_of, pki)


def _listeners(address_of: Callable[[str], str], pki: Pki) -> list[Listener]:
    trust = {"ssl_cafile": pki.cafile}
    listeners = [
        Listener(address_of("PLAINTEXT")),
        Listener(address_of("SSL"), {"security_protocol": "SSL", **trust}),
    ]
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        for mechanism in MECHANISMS:
            security = {
                "security_protocol": protocol,
                "sasl_mechanism": mechanism,
                "sasl_plain_username": USER,
                "sasl_plain_password": PASSWORD,
                **(trust if protocol == "SASL_SSL" else {}),
            }
            listeners.append(Listener(address_of(protocol), security))
    return listeners
