"""The page with records: browse, search, watch, look at one, send one."""

from __future__ import annotations

import json
import re

import pytest
import trio
from support.console.visitor import Visitor
from trio.testing import MockClock

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.console.console import ConsoleSettings
from splashdam.embedded_broker.broker import Broker
from splashdam.net.memory import MemoryNetwork
from splashdam.testing.clock import VirtualClock

OFFSETS = re.compile(r'/records/(\d+)/(\d+)"')


def offsets(text: str) -> list[tuple[int, int]]:
    """Partition and offset of each row, in order."""
    return [(int(partition), int(offset)) for partition, offset in OFFSETS.findall(text)]


@pytest.fixture
async def sending(
    broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> AsyncKafkaProducer:
    """Options of a producer, and topics for it."""
    broker.topics.create("orders", 2)
    return AsyncKafkaProducer(bootstrap_servers="broker:9092", connect=network.connect, clock=clock)


async def fill(sending: AsyncKafkaProducer, count: int, topic: str = "orders") -> None:
    """Records one millisecond apart, in both partitions in turn."""
    async with sending:
        for number in range(count):
            await sending.send(topic, b"plank %d." % number, partition=number % 2, timestamp_ms=1000 + number)
        await sending.flush()


async def test_the_newest_records_of_all_partitions_are_shown(
    visitor: Visitor, sending: AsyncKafkaProducer, autojump_clock: MockClock
) -> None:
    """Fifty of them, the newest first, then older ones without a gap and none twice."""
    await fill(sending, 300)
    page = (await visitor.get("/topics/orders/messages")).text
    shown = offsets(page)
    assert shown == [(number % 2, number // 2) for number in range(299, 249, -1)]
    while older := re.search(r'data-older href="([^"]+)"', page):
        page = (await visitor.get(older[1].replace("&amp;", "&"))).text
        shown += offsets(page)
    assert shown == [(number % 2, number // 2) for number in range(299, -1, -1)]
    assert "all that there is to search" in page


async def test_a_search_says_how_far_it_came_and_finds_all(
    visitor: Visitor, sending: AsyncKafkaProducer, autojump_clock: MockClock
) -> None:
    """Streamed: rows, progress, and at the end that all was searched."""
    await fill(sending, 2000)
    async with visitor.stream("GET", "/topics/orders/messages/search?q=plank+77.") as (head, pieces):
        assert dict(head.headers)[b"content-type"].startswith(b"text/event-stream")
        text = await pieces.rest()
    assert offsets(text) == [(1, 38)]
    assert "event: progress\ndata: 1 record; searched " in text
    assert "event: done\ndata: 1 record in all that there is to search (" in text


async def test_a_search_is_narrowed_by_time_partition_and_offset(
    visitor: Visitor, sending: AsyncKafkaProducer, autojump_clock: MockClock
) -> None:
    """What lies outside is not searched: the time index of the broker tells where to begin."""
    await fill(sending, 100)
    text = (await visitor.get("/topics/orders/messages?since=1010&until=1014&partition=1")).text
    assert offsets(text) == [(1, 6), (1, 5)]
    text = (await visitor.get("/topics/orders/messages?from=10&to=12")).text
    assert sorted(offsets(text)) == [(0, 10), (0, 11), (1, 10), (1, 11)]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("how=regex&q=(", "not a regular expression"),
        ("path=..", "not a JSON path"),
        ("since=tomorrow", "is no time"),
        ("from=-1", "is no number"),
        ("before=x", "search again"),
        ("in=nowhere", "search in one of"),
    ],
)
async def test_what_has_no_meaning_is_said(visitor: Visitor, broker: Broker, query: str, reason: str) -> None:
    """On the page, and in the stream."""
    broker.topics.create("orders", 1)
    page = await visitor.get(f"/topics/orders/messages?{query}")
    assert page.status == 200
    assert reason in page.text
    assert (
        f"event: problem\ndata: {reason}"[:15]
        in (await visitor.get(f"/topics/orders/messages/search?{query}")).text
    )


async def test_a_tail_shows_what_is_sent_from_now_on(
    visitor: Visitor, sending: AsyncKafkaProducer, autojump_clock: MockClock
) -> None:
    """That which is wanted, and nothing older."""
    async with sending:
        await (await sending.send("orders", b"an old oak"))
        async with visitor.stream("GET", "/topics/orders/messages/tail?q=oak") as (_, pieces):
            await pieces.until("started")
            await sending.send("orders", b"a fir", partition=0)
            await sending.send("orders", b"a new oak", partition=1)
            await sending.flush()
            text = await pieces.until("since you watch")
    assert "a new oak" in text
    assert "fir" not in text
    assert "old" not in text


async def test_a_tail_counts_what_comes_too_fast_to_be_shown(
    visitor: Visitor, sending: AsyncKafkaProducer, autojump_clock: MockClock
) -> None:
    """Nothing is left out silently."""
    async with sending, visitor.stream("GET", "/topics/orders/messages/tail") as (_, pieces):
        await pieces.until("started")
        await sending.send_many("orders", [b"x"] * 3000)
        text = await pieces.until("of them came too fast to be shown")
    assert text.count("<tr") <= 200


async def test_a_page_that_is_closed_ends_its_tail(
    visitor: Visitor, sending: AsyncKafkaProducer, broker: Broker, autojump_clock: MockClock
) -> None:
    """The console's connections to the broker end with it."""
    async with sending:
        async with visitor.stream("GET", "/topics/orders/messages/tail") as (_, pieces):
            await pieces.until("started")
            during = len(broker.server.clients())
        await trio.sleep(30)
        assert len(broker.server.clients()) < during


async def test_a_record_is_shown_whole(
    visitor: Visitor, sending: AsyncKafkaProducer, autojump_clock: MockClock
) -> None:
    """As JSON, as hex, with its headers, and as the line that sends it again."""
    async with sending:
        await (
            await sending.send(
                "orders",
                b'{"wood":"oak"}',
                key=b"\x00\xffkey",
                headers=[("trace", b"abc")],
                partition=0,
                timestamp_ms=1_767_225_600_000,
            )
        )
    text = (await visitor.get("/topics/orders/records/0/0")).text
    assert "{\n  &#34;wood&#34;: &#34;oak&#34;\n}" in text
    assert "00 ff 6b 65 79" in text
    assert "2026-01-01 00:00:00.000 UTC" in text
    line = re.search(r'<pre class="block wrap">(.*?)</pre>', text, re.DOTALL)
    assert line is not None
    sent = json.loads(line[1].replace("&#34;", '"'))
    assert sent["key"] == {"base64": "AP9rZXk="}
    assert sent["headers"] == [["trace", "abc"]]


@pytest.mark.parametrize("path", ["0/7", "9/0", "x/0", "0/x", "0/-1", "0/%C2%B2"])
async def test_a_record_that_does_not_exist_is_404(visitor: Visitor, broker: Broker, path: str) -> None:
    """With a page that says so."""
    broker.topics.create("orders", 1)
    assert (await visitor.get(f"/topics/orders/records/{path}")).status in {400, 404}


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


async def test_hostile_records_are_text_everywhere(
    visitor: Visitor, sending: AsyncKafkaProducer, autojump_clock: MockClock
) -> None:
    """In keys, values and headers: in rows, in streams, on the record's page and in the form."""
    bad = HOSTILE.encode()
    form = {"value": HOSTILE, "key": HOSTILE, "headers": HOSTILE, "partition": "9"}
    async with sending:
        await (await sending.send("orders", bad, key=bad, headers=[(HOSTILE, bad)], partition=0))
    pages = [
        await visitor.get("/topics/orders/messages"),
        await visitor.get("/topics/orders/messages?q=%3Cscript%3E"),
        await visitor.get("/topics/orders/messages/search?q=script"),
        await visitor.get("/topics/orders/records/0/0"),
        await visitor.post("/topics/orders/send", form),
    ]
    for page in pages:
        assert "&lt;script&gt;" in page.text
        assert "<script>alert" not in page.text
        assert "<img" not in page.text


async def test_json_with_half_of_a_surrogate_pair_is_shown_as_it_was_written(
    visitor: Visitor, sending: AsyncKafkaProducer, autojump_clock: MockClock
) -> None:
    """No text in UTF-8 can hold it: the page of the record was an internal error."""
    async with sending:
        await (await sending.send("orders", rb'{"half": "\ud800"}', partition=0))
    page = await visitor.get("/topics/orders/records/0/0")
    assert page.status == 200
    assert r"&#34;half&#34;: &#34;\ud800&#34;" in page.text


async def test_a_record_is_sent_and_shown(
    visitor: Visitor, sending: AsyncKafkaProducer, autojump_clock: MockClock
) -> None:
    """With its key's partition; a null value is null."""
    form = {"value": "ignored", "null": "1", "key": "anna", "headers": "a: b\n\nc: d: e"}
    page = await visitor.post("/topics/orders/send", form)
    assert page.status == 303
    text = (await visitor.get(page.headers["location"])).text
    assert ">null<" in text
    assert "d: e" in text
    await fill(sending, 0)


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"partition": "2"}, "orders has 2, from 0 to 1"),
        ({"partition": "x"}, "is no number"),
        ({"headers": "x"}, "is not name: value"),
        ({"value": "x" * 1_100_000}, ""),
    ],
)
async def test_a_form_that_cannot_be_sent_comes_back(
    visitor: Visitor, broker: Broker, form: dict[str, str], reason: str
) -> None:
    """With the reason and what was written; a body that is too large is refused by the server."""
    broker.topics.create("orders", 2)
    page = await visitor.post("/topics/orders/send", {"value": "v", **form})
    assert page.status == (413 if not reason else 400)
    assert reason in page.text


async def test_nothing_is_sent_without_the_token(stranger: Visitor, broker: Broker) -> None:
    """The form is not even shown."""
    broker.topics.create("orders", 1)
    assert (await stranger.post("/topics/orders/send", {"value": "v"})).status == 403
    text = (await stranger.get("/topics/orders/send")).text
    assert "<textarea" not in text
    assert "Open the link" in text


@pytest.mark.parametrize("how", [ConsoleSettings(host="127.0.0.1", port=8080, is_read_only=True)])
async def test_a_read_only_console_sends_nothing(visitor: Visitor, broker: Broker) -> None:
    """The refusal says why."""
    broker.topics.create("orders", 1)
    assert (await visitor.post("/topics/orders/send", {"value": "v"})).status == 403
    assert "read-only" in (await visitor.get("/topics/orders/send")).text


async def test_records_of_internal_topics_are_told_in_words(
    visitor: Visitor,
    sending: AsyncKafkaProducer,
    network: MemoryNetwork,
    clock: VirtualClock,
    autojump_clock: MockClock,
) -> None:
    """By Kafka's names."""
    await fill(sending, 1)
    async with AsyncKafkaProducer(
        bootstrap_servers="broker:9092", connect=network.connect, clock=clock, transactional_id="till-1"
    ) as till:
        await till.init_transactions()
        async with till.transaction():
            await till.send("orders", b"x", partition=0)
    text = (await visitor.get("/topics/__transaction_state/messages")).text
    assert "transactionalId: till-1" in text
    assert "state: COMPLETE_COMMIT" in text
    assert '<span class="tag">commit</span>' in (await visitor.get("/topics/orders/messages")).text
