"""A timeout of ``send`` names the topic, the wait, the last failure, and the remedy."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from splashdam.client.async_producer import AsyncKafkaProducer
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
from splashdam.testing.clock import VirtualClock


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One that makes no topics by itself, speaks no TLS and knows no users."""
    folder: Path = tmp_path_factory.mktemp("strict")
    with EmbeddedBroker(folder, fsync=False, config={"auto.create.topics.enable": "false"}) as started:
        yield started.bootstrap_servers


async def failure(servers: str, clock: MockClock, *, is_silent: bool = False, **options: Any) -> KafkaError:
    """What ``send`` raises, or its future.

    Sockets and names are the machine's, time is not: it stands until the cluster has been asked, however
    long that takes, and then runs out.
    """
    errors: list[KafkaError] = []
    producer = AsyncKafkaProducer(
        bootstrap_servers=servers, max_block_ms=1_000, clock=VirtualClock(clock), **options
    )
    intake = producer._core.intake

    async def send() -> None:
        with pytest.raises(KafkaError) as raised:
            await (await producer.send("orders", b"v"))
        errors.append(raised.value)

    async with producer, trio.open_nursery() as nursery:
        nursery.start_soon(send)
        while not errors and (
            not intake.metadata.silent()
            if is_silent
            else intake.last_failure().startswith("no connection has failed")
        ):
            await trio.lowlevel.checkpoint()
        clock.jump(1)
    return errors[0]


def check(error: KafkaError, words: str, kind: type[KafkaError]) -> None:
    """The text has all of it, once."""
    text = str(error)
    assert re.match(r"topic 'orders' did not appear in the metadata within 1000 ms: ", text)
    assert re.search(words, text)
    assert text.count("What to do:") == 1
    assert isinstance(error, KafkaTimeoutError)
    assert [type(cause) for cause in error.causes][:1] == [kind]
    assert error.remedy == kind.remedy


async def test_a_name_that_nobody_has(monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock) -> None:
    """DNS."""

    def unknown(*_arguments: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    words = r"no-such-host\.invalid:9092: (the name cannot be resolved|the host name is invalid)"
    check(await failure("no-such-host.invalid:9092", mock_clock), words, CannotConnectError)


async def test_nobody_listens(closed_port: str, mock_clock: MockClock) -> None:
    """Refused."""
    check(
        await failure(closed_port, mock_clock),
        f"cannot connect to {closed_port}: Connection refused",
        CannotConnectError,
    )


async def test_no_tls_there(strict_broker: str, mock_clock: MockClock) -> None:
    """TLS on one side only: said at once, since waiting does not help."""
    error = await failure(strict_broker, mock_clock, security_protocol="SSL")
    assert isinstance(error, WrongListenerError)
    assert re.match(
        f"no TLS with {strict_broker}: it does not speak TLS; check .*security_protocol", str(error)
    )


async def test_no_topic(strict_broker: str, mock_clock: MockClock) -> None:
    """Unknown topic: the remedy is the topic's, not the network's."""
    words = r"\[3 UnknownTopicOrPartitionError\] topic 'orders'"
    check(await failure(strict_broker, mock_clock), words, UnknownTopicOrPartitionError)


async def test_not_let_in(strict_broker: str, mock_clock: MockClock) -> None:
    """Authentication: said at once, since waiting does not help; and no secret is in it."""
    error = await failure(
        strict_broker,
        mock_clock,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="a",
        sasl_plain_password="hunter2",
    )
    assert isinstance(error, AuthenticationError)
    assert str(error).count("set security_protocol to PLAINTEXT or SSL") == 1
    assert "hunter2" not in str(error)


async def test_no_kafka_there(silent_peer: str, mock_clock: MockClock) -> None:
    """Somebody accepts and says nothing."""
    error = await failure(silent_peer, mock_clock, is_silent=True)
    assert "no connection has failed, but a request is not answered" in str(error)
    assert error.causes == ()
    assert error.remedy == KafkaTimeoutError.remedy
    assert error.remedy != ProtocolError.remedy
