"""DescribeProducers, DescribeTransactions and ListTransactions: what kafka-transactions shows."""

from __future__ import annotations

import pytest
import trio
from support.broker.broker_talk import Talk, batch, produce
from support.broker.turn_count import count_turns
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.execution.turns import INLINE_BYTES
from splashdam.embedded_broker.groups.patterns import Compilation
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from splashdam.wire.messages.describe_transactions import DescribeTransactionsRequest
from splashdam.wire.messages.list_transactions import ListTransactionsRequest


async def begun(talk: Talk, broker: Broker, transactional_id: str) -> int:
    """A producer with a batch in an open transaction, and its id."""
    producer_id, epoch = broker.transactions.initialize(transactional_id, 60_000)
    broker.transactions.add_partitions(transactional_id, producer_id, epoch, [TopicPartition("t", 0)])
    records = batch(b"a", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
    assert (await produce(talk, "t", records, transactional_id=transactional_id)).error_code == 0
    return producer_id


async def listed(talk: Talk, **filters: object) -> list[str]:
    answer = await talk.ask(ListTransactionsRequest(**filters), 2)
    assert answer.error_code == 0
    return sorted(each.transactional_id for each in answer.transaction_states)


async def test_producers(talk: Talk, broker: Broker) -> None:
    """Those of the partition, with what they have open; 3 and 17 for what is no partition."""
    broker.topics.create("t")
    producer_id = await begun(talk, broker, "x")
    asked = [TopicRequest(name=name, partition_indexes=[0]) for name in ("t", "no", "a/b")]
    found, missing, illegal = (await talk.ask(DescribeProducersRequest(topics=asked), 0)).topics
    (producer,) = found.partitions[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (producer_id, 0, 0)
    assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (0, -1)
    assert (missing.partitions[0].error_code, illegal.partitions[0].error_code) == (3, 17)


async def test_a_transaction(talk: Talk, broker: Broker) -> None:
    """State, times, partitions; 105 for an id that nobody knows, 42 for none."""
    broker.topics.create("t")
    producer_id = await begun(talk, broker, "x")
    request = DescribeTransactionsRequest(transactional_ids=["x", "y", ""])
    found, unknown, empty = (await talk.ask(request, 0)).transaction_states
    assert (found.transaction_state, found.producer_id, found.transaction_timeout_ms) == (
        "Ongoing",
        producer_id,
        60_000,
    )
    assert found.transaction_start_time_ms == broker.clock.wall_ms()
    assert [(each.topic, each.partitions) for each in found.topics] == [("t", [0])]
    assert (unknown.error_code, empty.error_code) == (105, 42)


async def test_lists(talk: Talk, broker: Broker, autojump_clock: MockClock) -> None:
    """By state, producer, age and pattern; the answer names states that Kafka does not know."""
    broker.topics.create("t")
    old = await begun(talk, broker, "old-1")
    await trio.sleep(5)
    await begun(talk, broker, "young-1")
    broker.transactions.initialize("idle", 1000)
    assert await listed(talk) == ["idle", "old-1", "young-1"]
    assert await listed(talk, state_filters=["Ongoing", "Nonsense"]) == ["old-1", "young-1"]
    assert await listed(talk, producer_id_filters=[old]) == ["old-1"]
    assert await listed(talk, duration_filter=3000, state_filters=["Ongoing"]) == ["old-1"]
    assert await listed(talk, transactional_id_pattern=".*-1") == ["old-1", "young-1"]
    answer = await talk.ask(ListTransactionsRequest(state_filters=["Nonsense"]), 1)
    assert answer.unknown_state_filters == ["Nonsense"]
    assert answer.transaction_states == []
    assert (await talk.ask(ListTransactionsRequest(transactional_id_pattern="("), 2)).error_code == 128


@pytest.mark.parametrize(
    ("ids", "pattern", "matched"),
    [
        ([f"x-{number}" for number in range(2_500)], None, 2_500),
        ([f"{'a' * 3000}{n}" for n in range(20)], ".*1", 2),
    ],
    ids=["many", "long ones and a pattern"],
)
async def test_all_transactions_were_listed_in_one_step(
    talk: Talk,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    *,
    ids: list[str],
    pattern: str | None,
    matched: int,
) -> None:
    """However many there are, and however long it takes to try a pattern with their ids."""
    for each in ids:
        broker.transactions.initialize(each, 60_000)
    await listed(talk)
    turns = count_turns(broker, monkeypatch)
    assert len(await listed(talk, transactional_id_pattern=pattern)) == matched
    assert turns


async def test_all_states_that_a_client_named_were_looked_at_in_one_step(
    talk: Talk, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that Kafka does not know are in the answer, in their order."""
    names = [f"state {number}" for number in range(3_000)]
    await listed(talk)
    turns = count_turns(broker, monkeypatch)
    answer = await talk.ask(ListTransactionsRequest(state_filters=names), 1)
    assert answer.unknown_state_filters == names
    assert turns


def test_a_pattern_was_compiled_in_the_loop_for_all_letters_of_all_ids() -> None:
    """That is done beside the loop, unless letters and pattern are few."""
    assert Compilation("a.*", frozenset("abc")).size_bytes == 0
    assert Compilation(".{0,1000}.{0,1000}", frozenset("abc")).size_bytes > INLINE_BYTES
    large = Compilation(r"\pL" * 40, frozenset(map(chr, range(5000))))
    assert large.size_bytes > INLINE_BYTES
    assert large.do(0).matching(["a" * 40]) == {"a" * 40}
