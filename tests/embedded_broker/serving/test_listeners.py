"""listeners, advertised.listeners and the map of protocols: read, told, refused."""

from __future__ import annotations

import pytest
from support.broker.broker_talk import Talk
from trio.testing import MockClock

from splashdam.embedded_broker.broker import open_broker
from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.security import Listener, parse_listeners
from splashdam.embedded_broker.transactions.coordinator import TransactionCoordinator
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.errors import IllegalStateError, KafkaConfigurationError
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.metadata import MetadataRequest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://:9092", Listener("PLAINTEXT", "", 9092)),
        ("SSL://[::1]:0", Listener("SSL", "::1", 0, "SSL")),
        ("inside://kafka-1.example.com:9093", Listener("INSIDE", "kafka-1.example.com", 9093)),
    ],
)
def test_one_listener(text: str, expected: Listener) -> None:
    """Names are upper case, as in Kafka."""
    assert parse_listeners(text) == [expected]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listeners": "PLAINTEXT:9092"}, "is not NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://a:99999"}, "is not NAME://HOST:PORT"),
        ({"listeners": "SSL://a:1,SSL://b:2"}, "the listener SSL is named twice"),
        ({"listener.security.protocol.map": "A:B"}, "is not NAME:PROTOCOL"),
        ({"listeners": "INSIDE://a:1"}, "'INSIDE', which listener.security.protocol.map gives no protocol"),
        ({"listeners": "SSL://a:1", "advertised.listeners": "SLL://b:1"}, "'SLL', which listeners does not"),
    ],
)
def test_mistakes(settings: dict[str, str], words: str) -> None:
    """By name."""
    with pytest.raises(KafkaConfigurationError, match=words):
        BrokerSettings.from_properties(settings).security.endpoints_on("h", 1)


@pytest.mark.parametrize("listeners", [{}, {"listeners": "PLAINTEXT://:9092"}])
@pytest.mark.parametrize("host", ["", "0.0.0.0"])
def test_an_empty_host_is_not_advertised(listeners: dict[str, str], host: str) -> None:
    """An advertised listener must be an address; port 0 means the listener's, as in Kafka."""
    settings = {**listeners, "advertised.listeners": f"PLAINTEXT://{host}:0"}
    with pytest.raises(KafkaConfigurationError, match="names no host for PLAINTEXT"):
        BrokerSettings.from_properties(settings).security.endpoints_on("h", 1)
    settings["advertised.listeners"] = "PLAINTEXT://kafka:0"
    (listener,) = BrokerSettings.from_properties(settings).security.endpoints_on("h", 1)
    assert listener.advertised_on(7) == ("kafka", 7)


def test_protocols_and_addresses() -> None:
    """Mapped, advertised, left out for a controller."""
    settings = BrokerSettings.from_properties(
        {
            "listeners": "INSIDE://:9092,SSL://broker:9093,CONTROLLER://:9094",
            "advertised.listeners": "INSIDE://outside:1,CONTROLLER://x:2",
            "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,SSL:SSL",
            "controller.listener.names": "CONTROLLER",
        }
    )
    inside, tls = settings.security.endpoints
    assert (inside.protocol, inside.advertised_on(7), inside.uses_sasl) == (
        "SASL_PLAINTEXT",
        ("outside", 1),
        True,
    )
    assert (tls.protocol, tls.advertised_on(7), tls.uses_tls) == ("SSL", ("broker", 7), True)
    assert Listener("PLAINTEXT", "0.0.0.0", 1).advertised_on(7) is None


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("broker", 9092)),
        ({"advertised.listeners": "PLAINTEXT://elsewhere:19092"}, ("elsewhere", 19092)),
        ({"listeners": "PLAINTEXT://broker:9092"}, ("broker", 9092)),
        (
            {"listeners": "A://broker:9092", "listener.security.protocol.map": "A:PLAINTEXT"},
            ("broker", 9092),
        ),
    ],
    ids=str,
)
async def test_advertised_addresses(
    autojump_clock: MockClock, settings: dict[str, str], expected: tuple[str, int]
) -> None:
    """The advertised address, also of the one listener that host and port make: for port mappings."""
    network, clock = MemoryNetwork(), VirtualClock(autojump_clock)
    opened = open_broker(
        "/data",
        host="broker",
        port=9092,
        listen=network.listen,
        clock=clock,
        files=MemoryFiles(),
        config=settings,
    )
    async with opened as broker, await network.connect("broker", 9092) as stream:
        (told,) = (await Talk(stream).ask(MetadataRequest(topics=[]), 9)).brokers
        assert (told.host, told.port) == expected
        assert broker.bootstrap_servers == f"{expected[0]}:{expected[1]}"
        with pytest.raises(IllegalStateError, match="no listener 'SSL', only"):
            broker.bootstrap_servers_of("SSL")


async def test_a_start_that_fails_gives_its_address_back(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener was open and nobody served it: the next start in this process met an address in use."""
    network, files, clock = MemoryNetwork(), MemoryFiles(), VirtualClock(autojump_clock)

    def fail(_: TransactionCoordinator) -> None:
        raise KafkaStorageError("nothing can be read")

    async def begin() -> None:
        async with open_broker("/data", host="b", port=1, listen=network.listen, clock=clock, files=files):
            await network.connect("b", 1)

    with monkeypatch.context() as patched:
        patched.setattr(TransactionCoordinator, "settle", fail)
        with pytest.raises(KafkaStorageError):
            await begin()
    await begin()
