"""The page with topics, clients and brokers; and one topic's partitions."""

from __future__ import annotations

import re

import pytest
import trio
from support.console.visitor import Visitor, cells
from trio.testing import MockClock

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.console.console import ConsoleSettings, open_console
from splashdam.console.source import Source
from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.inside import BrokerInside, decode_internal
from splashdam.embedded_broker.serving.registry import Client
from splashdam.model.broker_errors import ErrorCode, MessageTooLargeError
from splashdam.model.transactions import OffsetAndMetadata
from splashdam.model.values import TopicPartition
from splashdam.net.admin.groups import commit_offsets
from splashdam.net.inspector import open_inspector
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock
from splashdam.testing.faults.faults import Faults
from splashdam.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic


def producer(network: MemoryNetwork, clock: VirtualClock, **options: object) -> AsyncKafkaProducer:
    """A producer of the broker in memory."""
    return AsyncKafkaProducer(
        bootstrap_servers="broker:9092", connect=network.connect, clock=clock, client_id="shop", **options
    )


def from_outside(network: MemoryNetwork) -> Source:
    """The broker as any other process sees it."""
    return Source(
        title="broker:9092",
        bootstrap=[("broker", 9092)],
        connect=network.connect,
        run=MemoryFiles().run,
        decode=decode_internal,
    )


async def test_an_empty_broker_says_what_to_do(visitor: Visitor) -> None:
    """It shows no empty table."""
    page = await visitor.get("/")
    assert page.status == 200
    assert "echo hello | splashdam produce greetings -b broker:9092" in page.text


async def test_topics_are_shown_with_what_is_in_them(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """Partitions, records, bytes, and how old the newest record is."""
    broker.topics.create("orders", 3)
    async with producer(network, clock) as sending:
        for number in range(1234):
            await sending.send("orders", b"a plank", partition=number % 3)
        await sending.flush()
    await trio.sleep(65)
    row = cells((await visitor.get("/")).text, "orders")
    assert row.startswith("orders 3 1 234 ")
    assert row.endswith("1 min ago")


async def test_rates_come_from_offsets_that_were_sampled_while_somebody_looked(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """The first look knows none; ten seconds later a hundred records are ten a second."""
    broker.topics.create("orders", 1)
    async with producer(network, clock) as sending:
        first = (await visitor.get("/")).text
        for _ in range(100):
            await sending.send("orders", b"a plank")
        await sending.flush()
        await trio.sleep(10)
        second = (await visitor.live("/")).text
    assert '<td class="n">\N{EN DASH}</td>' in first
    assert cells(second, "orders").split()[-5] in {"9.9", "10"}
    assert "<html" not in second


async def test_what_groups_read_is_a_rate_as_well(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """From the offsets that they commit; the first picture does not wait for that."""
    broker.topics.create("orders", 1)
    async with producer(network, clock) as sending:
        await sending.send_many("orders", [b"x"] * 100)
    async with open_inspector([("broker", 9092)], connect=network.connect, clock=clock) as asking:
        for offset in (0, 50):
            moved = {TopicPartition("orders", 0): OffsetAndMetadata(offset)}
            await asking.ask(lambda client, moved=moved: commit_offsets(client, "billing", moved))
            text = (await visitor.live("/")).text
            await trio.sleep(5)
    assert text.partition("<dt>Records out</dt><dd>")[2].startswith(("10", "9.9"))


async def test_clients_are_shown_with_library_and_the_last_error(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """Which client gets errors is the first line of the table; the console's own connection is not in it."""
    broker.topics.create("small", 1)
    broker.topics.create("large", 1)
    async with producer(network, clock, max_request_size=4_000_000) as sending:
        await (await sending.send("large", b"a plank"))
        with pytest.raises(MessageTooLargeError):
            await (await sending.send("small", b"x" * 2_000_000))
        text = (await visitor.get("/")).text
    clients = text.partition('id="clients-title"')[2].partition("</table>")[0]
    assert "shop" in clients
    assert "splashdam 0.1.0" in clients
    assert "MESSAGE_TOO_LARGE" in clients
    assert "Produce, small-0" in clients
    assert "splashdam-console" not in text
    assert '<span class="quiet">left</span>' not in clients


async def test_the_errors_of_a_client_that_has_left_were_gone_with_it(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """A program that ends with its first error was never seen to have one; one that ends well is not kept."""
    broker.topics.create("small", 1)
    async with producer(network, clock) as sending:
        await (await sending.send("small", b"a plank"))
    async with producer(network, clock, max_request_size=4_000_000) as sending:
        with pytest.raises(MessageTooLargeError):
            await (await sending.send("small", b"x" * 2_000_000))
    text = (await visitor.get("/")).text
    clients = text.partition('id="clients-title"')[2].partition("</table>")[0]
    assert clients.count("MESSAGE_TOO_LARGE") == clients.count('<span class="quiet">left</span>') == 1
    assert clients.count('<th scope="row">') == 1
    assert "<dt>Clients</dt><dd>0" in text


async def test_the_console_was_shown_as_a_client_that_had_left(broker: Broker, clock: VirtualClock) -> None:
    """An error that it was answered kept it in the table, where it is left out while it is connected."""

    class Deserted:
        def clients(self) -> list[Client]:
            return []

        def adopt(self, *_: object, **__: object) -> None:
            raise AssertionError

    inside = BrokerInside(Deserted(), broker.groups, clock)
    answer = MetadataResponse(topics=[MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])
    for number, name in ((7, "splashdam-console"), (8, "shop")):
        inside.answered(Client(number=number, client_id=name), MetadataRequest, answer)
    assert [(each.number, each.is_connected) for each in inside.clients()] == [(8, False)]


async def test_the_client_with_the_most_errors_is_the_first(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """One old error of an earlier connection stood above the many of a later one."""
    broker.topics.create("orders", 1)
    faults = Faults(broker.interception)
    async with (
        producer(network, clock, retry_backoff_ms=100, retry_backoff_max_ms=100) as once,
        producer(network, clock, retry_backoff_ms=100, retry_backoff_max_ms=100) as often,
    ):
        with faults.produce(error="NOT_ENOUGH_REPLICAS", times=1):
            await (await once.send("orders", b"a plank"))
        with faults.produce(error="REQUEST_TIMED_OUT", times=5):
            await (await often.send("orders", b"a plank"))
        text = (await visitor.get("/")).text
    clients = text.partition('id="clients-title"')[2].partition("</table>")[0]
    assert clients.index("REQUEST_TIMED_OUT") < clients.index("NOT_ENOUGH_REPLICAS")
    assert '<a href="#clients-title">2 got errors</a>' in text


async def test_a_topic_shows_its_partitions(visitor: Visitor, broker: Broker) -> None:
    """Leader, replicas in sync, offsets; the number leads to what is in it."""
    broker.topics.create("orders", 2)
    page = await visitor.get("/topics/orders")
    assert '<a href="/topics/orders/messages?partition=1">1</a>' in page.text
    assert cells(page.text, "1").startswith("1 1 1 0 0 0 B")


async def test_a_topic_that_does_not_exist_is_404(visitor: Visitor) -> None:
    """With a page that says so, and the name as text."""
    page = await visitor.get("/topics/%3Cscript%3E")
    assert page.status == 404
    assert "no topic &lt;script&gt;" in page.text


async def test_hostile_names_are_text(
    visitor: Visitor, broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """A client's id is the one name on this page that anybody chooses freely."""
    async with AsyncKafkaProducer(
        bootstrap_servers="broker:9092",
        connect=network.connect,
        clock=clock,
        client_id="<script>alert(1)</script>",
    ) as sending:
        await sending.send("t", b"x")
        await sending.flush()
        text = (await visitor.get("/?q=%22%3E%3Cscript%3Ealert(2)")).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script>alert" not in text
    assert 'value="&#34;&gt;&lt;script&gt;alert(2)"' in text


async def test_a_filter_that_finds_nothing_says_so(visitor: Visitor, broker: Broker) -> None:
    """A filter that matches shows its matches alone; internal topics are shown on request."""
    broker.topics.create("orders", 1)
    broker.topics.create("payments", 1)
    assert "No topic has" in (await visitor.get("/?q=nothing")).text
    text = (await visitor.get("/?q=ORD")).text
    assert 'href="/topics/orders"' in text
    assert 'href="/topics/payments"' not in text


@pytest.mark.parametrize("settings", [{"num.partitions": "7", "log.retention.hours": "1"}])
async def test_settings_that_differ_from_defaults_are_shown(
    visitor: Visitor, settings: dict[str, str]
) -> None:
    """With their values."""
    text = (await visitor.get("/")).text
    assert cells(text, "1 num.partitions") == "num.partitions 7"


async def test_a_cluster_that_is_away_leaves_the_last_picture(
    network: MemoryNetwork, clock: VirtualClock, broker: Broker, autojump_clock: MockClock
) -> None:
    """What was seen stays, with its age and the reason; when the broker is back, so are the figures."""
    broker.topics.create("orders", 1)
    source = from_outside(network)
    async with open_console(
        source, ConsoleSettings(port=8081), clock=clock, listen=network.listen, token="t"
    ):
        visitor = Visitor(network.connect, "127.0.0.1", 8081, "t")
        assert "No answer" not in (await visitor.get("/")).text
        network.refuse("broker", 9092)
        network.drop("broker", 9092)
        await trio.sleep(5)
        away = (await visitor.live("/")).text
        assert "No answer from the cluster" in away
        assert 'href="/topics/orders"' in away
        network.refuse("broker", 9092, False)
        await trio.sleep(60)
        assert "No answer" not in (await visitor.live("/")).text


async def test_a_cluster_that_never_answered_has_no_topic_that_is_not_there(
    network: MemoryNetwork, clock: VirtualClock, broker: Broker, autojump_clock: MockClock
) -> None:
    """The pages of its topics said that it had none of this name; the others end their sentence."""
    network.refuse("broker", 9092)
    async with open_console(
        from_outside(network), ConsoleSettings(port=8081), clock=clock, listen=network.listen, token="t"
    ):
        visitor = Visitor(network.connect, "127.0.0.1", 8081, "t")
        page = await visitor.get("/topics/orders/messages?q=plank")
        assert page.status == 503
        assert "No answer from the cluster" in page.text
        assert 'href="/topics/orders/messages?q=plank">Ask again' in page.text
        listed = (await visitor.get("/messages")).text
        assert 'hx-get="/messages"' in listed
        assert re.search(r'\.\s+<span class="quiet">It is asked again', listed)


async def test_another_cluster_shows_no_clients(
    network: MemoryNetwork, clock: VirtualClock, broker: Broker, autojump_clock: MockClock
) -> None:
    """The Kafka protocol does not tell them: the table is not there, rather than empty."""
    source = from_outside(network)
    async with open_console(
        source, ConsoleSettings(port=8081), clock=clock, listen=network.listen, token="t"
    ):
        text = (await Visitor(network.connect, "127.0.0.1", 8081, "t").get("/")).text
    assert "clients-title" not in text
    assert "brokers-title" in text
