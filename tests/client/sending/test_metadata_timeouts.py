"""A timeout of ``send`` names the topic, the wait, the last failure, and the remedy."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.broker_errors import UnknownTopicOrPartitionError
from splashdam.model.errors import (
    AuthenticationError,
    CannotConnectError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    WrongListenerError,
)


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One that makes no topics by itself, speaks no TLS and knows no users."""
    folder: Path = tmp_path_factory.mktemp("strict")
    with EmbeddedBroker(folder, config={"auto.create.topics.enable": "false"}) as started:
        yield started.bootstrap_servers


def failure(servers: str, **options: Any) -> KafkaError:
    """What ``send`` raises, or its future."""
    producer = KafkaProducer(bootstrap_servers=servers, max_block_ms=1_000, **options)
    try:
        with pytest.raises(KafkaError) as raised:
            producer.send("orders", b"v").get(timeout=5)
    finally:
        producer.close(0)
    return raised.value


def check(error: KafkaError, words: str, kind: type[KafkaError]) -> None:
    """The text has all of it, once."""
    text = str(error)
    assert re.match(r"topic 'orders' did not appear in the metadata within 1000 ms: ", text)
    assert re.search(words, text)
    assert text.count("What to do:") == 1
    assert isinstance(error, KafkaTimeoutError)
    assert [type(cause) for cause in error.causes][:1] == [kind]
    assert error.remedy == kind.remedy


def test_a_name_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS."""

    def unknown(*_arguments: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    words = r"no-such-host\.invalid:9092: (the name cannot be resolved|the host name is invalid)"
    check(failure("no-such-host.invalid:9092"), words, CannotConnectError)


def test_nobody_listens(closed_port: str) -> None:
    """Refused."""
    check(failure(closed_port), f"cannot connect to {closed_port}: Connection refused", CannotConnectError)


def test_no_tls_there(strict_broker: str) -> None:
    """TLS on one side only: said at once, since waiting does not help."""
    error = failure(strict_broker, security_protocol="SSL")
    assert isinstance(error, WrongListenerError)
    assert re.match(
        f"no TLS with {strict_broker}: it does not speak TLS; check .*security_protocol", str(error)
    )


def test_no_topic(strict_broker: str) -> None:
    """Unknown topic: the remedy is the topic's, not the network's."""
    words = r"\[3 UnknownTopicOrPartitionError\] topic 'orders'"
    check(failure(strict_broker), words, UnknownTopicOrPartitionError)


def test_not_let_in(strict_broker: str) -> None:
    """Authentication: said at once, since waiting does not help; and no secret is in it."""
    error = failure(
        strict_broker,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="a",
        sasl_plain_password="hunter2",
    )
    assert isinstance(error, AuthenticationError)
    assert str(error).count("set security_protocol to PLAINTEXT or SSL") == 1
    assert "hunter2" not in str(error)


def test_no_kafka_there(silent_peer: str) -> None:
    """Somebody accepts and says nothing."""
    error = failure(silent_peer)
    assert "no connection has failed, but a request is not answered" in str(error)
    assert error.causes == ()
    assert error.remedy == KafkaTimeoutError.remedy
    assert error.remedy != ProtocolError.remedy
