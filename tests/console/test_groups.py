"""The page with groups: members, lag, the last rebalance, a reset with a preview; and transactions."""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager

import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.consumer_group_talk import WireMember
from support.broker.consumer_group_talk import settle as settle_consumers
from support.broker.group_talk import members_of, settle
from support.broker.transaction_talk import RawProducer
from support.console.visitor import Page, Visitor, cells
from trio.testing import MockClock

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.console.pages.groups import _most_lag_first
from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.inside import BrokerInside
from splashdam.model.transactions import OffsetAndMetadata
from splashdam.model.values import TopicPartition
from splashdam.model.views.cluster import GroupPartitionView
from splashdam.net.admin.groups import commit_offsets, committed_offsets
from splashdam.net.inspector import Inspector, open_inspector
from splashdam.net.memory import MemoryNetwork
from splashdam.testing.clock import VirtualClock

READS = {TopicPartition("orders", 0): 4, TopicPartition("orders", 1): 10}


class Billing:
    """The group ``billing``: what it has committed."""

    def __init__(self, network: MemoryNetwork, clock: VirtualClock) -> None:
        self._network = network
        self._clock = clock

    async def committed(self) -> dict[TopicPartition, int]:
        """By partition."""
        async with inspector(self._network, self._clock) as asking:
            found = await asking.ask(lambda client: committed_offsets(client, "billing"))
        return {where: each.offset for where, each in found.items()}


@pytest.fixture
async def orders(
    broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> Billing:
    """Ten records in each of two partitions; the group has read four and all."""
    broker.topics.create("orders", 2)
    async with AsyncKafkaProducer(
        bootstrap_servers="broker:9092", connect=network.connect, clock=clock
    ) as sending:
        for number in range(20):
            await sending.send("orders", b"x", partition=number % 2)
        await sending.flush()
    async with inspector(network, clock) as asking:
        await asking.ask(
            lambda client: commit_offsets(
                client, "billing", {where: OffsetAndMetadata(offset) for where, offset in READS.items()}
            )
        )
    return Billing(network, clock)


def inspector(network: MemoryNetwork, clock: VirtualClock) -> AbstractAsyncContextManager[Inspector]:
    return open_inspector([("broker", 9092)], connect=network.connect, clock=clock)


async def test_without_groups_the_page_says_what_to_do(visitor: Visitor) -> None:
    """An example that makes one."""
    assert "splashdam tail TOPIC --group my-group" in (await visitor.get("/groups")).text


async def test_a_group_is_shown_with_its_lag(
    orders: Billing, visitor: Visitor, autojump_clock: MockClock
) -> None:
    """In all, and by partition, the furthest behind first."""
    row = cells((await visitor.get("/groups")).text, "billing")
    assert row.startswith("billing Empty classic orders 0 6")
    text = (await visitor.get("/groups/billing")).text
    assert cells(text, "orders-0") == "orders-0 4 10 6 nobody"
    assert cells(text, "orders-1") == "orders-1 10 10 0 nobody"
    assert text.index("orders-0") < text.index("orders-1")
    assert "/topics/orders/messages?partition=0&amp;from=4" in text


def test_a_partition_that_was_never_committed_was_listed_as_read_to_the_end() -> None:
    """Nobody knows its lag: it comes behind those that lag, and before those that do not."""
    lagging, read, unknown = (
        GroupPartitionView(
            topic_partition=TopicPartition("t", number), committed_offset=committed, end_offset=9
        )
        for number, committed in enumerate((2, 9, None))
    )
    assert sorted([read, unknown, lagging], key=_most_lag_first) == [lagging, unknown, read]


async def test_lag_is_drawn_over_the_time_that_somebody_looked(
    orders: Billing, visitor: Visitor, autojump_clock: MockClock
) -> None:
    """One point for each look."""
    for _ in range(3):
        text = (await visitor.live("/groups/billing")).text
        await trio.sleep(5)
    series = re.search(r'data-chart="([^"]+)"', text)
    assert series is not None
    assert series[1].endswith("[6, 6, 6]]")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("to=earliest", {0: 0, 1: 0}),
        ("to=latest", {0: 10, 1: 10}),
        ("to=offset&value=7", {0: 7, 1: 7}),
        ("to=shift&value=-3", {0: 1, 1: 7}),
        ("to=shift&value=100", {0: 10, 1: 10}),
        ("to=time&value=2000-01-01T00:00", {0: 0, 1: 0}),
        ("to=earliest&topic=orders", {0: 0, 1: 0}),
    ],
)
async def test_a_reset_is_shown_before_it_is_done(
    orders: Billing,
    visitor: Visitor,
    autojump_clock: MockClock,
    query: str,
    expected: dict[int, int],
) -> None:
    """The preview changes nothing; its button commits what it has shown, and not what would be true later."""
    preview = await visitor.get(f"/groups/billing/reset?{query}")
    assert await orders.committed() == READS
    assert (await press(visitor, preview)).status == 303
    wanted = {TopicPartition("orders", number): offset for number, offset in expected.items()}
    assert await orders.committed() == wanted
    assert f"{sum(10 - each for each in expected.values())}" in cells(
        (await visitor.get("/groups")).text, "billing"
    )


async def press(visitor: Visitor, preview: Page) -> Page:
    """Press the preview's button."""
    moves = re.search(r'name="moves" value="([^"]+)"', preview.text)
    assert moves is not None, preview.text
    return await visitor.post("/groups/billing/reset", {"moves": moves[1].replace("&#34;", '"')})


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("to=offset&value=-1", "is no offset"),
        ("to=offset&value=", "is no offset"),
        ("to=shift&value=x", "is no number of records"),
        ("to=time&value=", "say which time"),
        ("to=time&value=noon", "is no time"),
        ("to=nowhere", "is no offset"),
        ("to=earliest&topic=other", "has committed nothing there"),
    ],
)
async def test_a_reset_that_has_no_meaning_is_said(
    orders: Billing, visitor: Visitor, autojump_clock: MockClock, query: str, reason: str
) -> None:
    """And has no button."""
    text = (await visitor.get(f"/groups/billing/reset?{query}")).text
    assert reason in text
    assert "moves" not in text


@pytest.mark.parametrize(
    "moves", ["", "[]", "{}", "[[1,2,3]]", '[["orders",0,-1]]', '[["orders","0",1]]', "[" * 9999]
)
async def test_a_forged_reset_is_refused(
    orders: Billing,
    visitor: Visitor,
    autojump_clock: MockClock,
    moves: str,
) -> None:
    """Nothing is committed."""
    page = await visitor.post("/groups/billing/reset", {"moves": moves})
    assert "no preview of a reset" in page.text
    assert await orders.committed() == READS


ASSIGNED = b"\0\0" + b"\0\0\0\1" + b"\0\6orders" + b"\0\0\0\1" + b"\0\0\0\0" + b"\xff\xff\xff\xff"
"""Partition 0 of ``orders``, as the leader of a classic group says it."""


async def test_a_group_with_members_is_not_reset(
    orders: Billing, visitor: Visitor, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """The page says who has to stop first, and why the classic group rebalanced."""
    async with members_of(network, 1, group_id="billing") as (member,):
        await member.join()
        await member.sync({member.member_id: ASSIGNED})
        text = (await visitor.get("/groups/billing/reset?to=earliest")).text
        assert "has 1 member; stop its consumers" in text
        group = (await visitor.get("/groups/billing")).text
        # Who joins is told to come again with an id: that is how it goes, and no error of a client.
        assert "MEMBER_ID_REQUIRED" not in (await visitor.get("/")).text
    assert "is new" in group.partition("Last rebalance")[2].partition("</div>")[0]
    assert not cells(group, "orders-0").endswith("nobody")


async def test_a_member_that_talks_nonsense_hides_no_other_group(
    orders: Billing, visitor: Visitor, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """An assignment is bytes of a client: one that cannot be read is a problem of its group alone."""
    async with members_of(network, 1, group_id="odd") as (member,):
        await settle(member)
        text = (await visitor.get("/groups")).text
        assert "not told" in cells(text, "odd")
        assert cells(text, "billing").startswith("billing Empty")
        assert "cannot be decoded" in (await visitor.get("/groups/odd")).text


async def test_a_consumer_group_tells_why_its_epoch_moved(
    orders: Billing,
    broker: Broker,
    network: MemoryNetwork,
    clock: VirtualClock,
    autojump_clock: MockClock,
) -> None:
    """Who joined, who left, who was removed for its silence."""
    inside = BrokerInside(broker.server, broker.groups, clock)

    def why() -> str:
        found = inside.last_rebalance("g")
        assert found is not None
        return found.reason

    async with await network.connect("broker", 9092) as stream:
        one, other = (WireMember(Talk(stream), each, "orders") for each in ("one", "other"))
        await settle_consumers(one)
        assert why() == "member 'one' joined"
        await settle_consumers(one, other)
        assert why() == "member 'other' joined"
        await one.leave()
        assert why() == "member 'one' left"
        await trio.sleep(100)
        assert why().startswith("member 'other' was removed: it sent no heartbeat for")
    assert inside.last_rebalance("unknown") is None


async def test_an_open_transaction_holds_the_last_stable_offset_back(
    orders: Billing, visitor: Visitor, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """Until it ends: which one, from where on, and how many records nobody sees."""
    async with AsyncKafkaProducer(
        bootstrap_servers="broker:9092", connect=network.connect, clock=clock, transactional_id="till-1"
    ) as till:
        await till.init_transactions()
        await till.begin_transaction()
        for _ in range(3):
            await till.send("orders", b"x", partition=1)
        await till.flush()
        text = (await visitor.get("/transactions")).text
        assert cells(text, "orders-1").startswith("orders-1 till-1 10 3 ")
        assert cells(text, "till-1").startswith("till-1 Ongoing ")
        await till.commit_transaction()
        text = (await visitor.get("/transactions")).text
        assert "no partition has an open transaction" in text
        # The coordinator still told when the last one began, and the page that it was open.
        assert cells(text, "till-1").startswith("till-1 CompleteCommit \u2013 ")


@pytest.mark.parametrize("settings", [{"transaction.partition.verification.enable": "false"}])
async def test_no_transaction_was_said_to_hang_once_its_producer_had_ended_another(
    orders: Billing, visitor: Visitor, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """A batch comes late, as from producers before KIP-890: its coordinator has ended the transaction."""
    async with await network.connect("broker", 9092) as stream:
        late = RawProducer(Talk(stream), "till-1", uses_v2=False)
        await late.initialize()
        await late.add(0, topic="orders")
        await late.write(b"x", topic="orders")
        await late.end()
        assert await late.write(b"late", topic="orders") == 0
    text = (await visitor.get("/transactions")).text
    assert cells(text, "orders-0").startswith("orders-0 hangs producer 1, of which no coordinator knows.")
    assert cells(text, "till-1").startswith("till-1 CompleteCommit \u2013 ")


async def test_each_transactional_id_was_asked_for_however_many_there_were(
    broker: Broker, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """A thousand took seconds, in which no other page was answered; open ones come first."""
    broker.topics.create("t", 1)
    async with await network.connect("broker", 9092) as stream:
        for name in ("a", "b", "c"):
            producer = RawProducer(Talk(stream), name)
            await producer.initialize()
        await producer.write(b"x")
    async with inspector(network, clock) as asking:
        found = await asking.transactions(2)
    assert [(each.transactional_id, each.state, each.timeout_ms) for each in found] == [
        ("c", "Ongoing", 60_000),
        ("a", "Empty", 60_000),
        ("b", "Empty", -1),
    ]


async def test_a_group_that_does_not_exist_is_404(visitor: Visitor) -> None:
    """On each of its pages."""
    for path in ("/groups/none", "/groups/none/reset"):
        assert (await visitor.get(path)).status == 404
    assert (await visitor.post("/groups/none/reset")).status == 404


async def test_a_name_with_a_slash_has_a_page(
    orders: Billing, visitor: Visitor, network: MemoryNetwork, clock: VirtualClock, autojump_clock: MockClock
) -> None:
    """Group ids are any text, markup as well."""
    name = "a/b <script>?#"
    async with inspector(network, clock) as asking:
        await asking.ask(
            lambda client: commit_offsets(client, name, {TopicPartition("orders", 0): OffsetAndMetadata(1)})
        )
    text = (await visitor.get("/groups")).text
    link = re.search(r'href="(/groups/a%2Fb[^"]*)"', text)
    assert link is not None
    assert "<script>?" not in text
    assert cells((await visitor.get(link[1])).text, "orders-0") == "orders-0 1 10 9 nobody"
