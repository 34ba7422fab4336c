"""The offsets in a directory that a real Kafka wrote are what that Kafka answered for them."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.kafka.kafka_offsets import MEMBERS, MOVED, PLAIN
from support.kafka.make_golden import GOLDEN

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.groups.classic.membership import ClassicMembership
from splashdam.embedded_broker.groups.group import Group
from splashdam.embedded_broker.transactions.markers import write_marker
from splashdam.model.values import TopicPartition
from splashdam.storage.topic_names import CONSUMER_OFFSETS
from splashdam.storage.transaction_marker import TransactionMarker

SOURCE = GOLDEN / "offsets-4.3.1"
WEEK_MS = 7 * 24 * 3_600_000
PENDING = TopicPartition("others", 0)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker on a copy of Kafka's files."""
    shutil.copytree(SOURCE, tmp_path / "data", copy_function=shutil.copyfile)
    async with open_broker(tmp_path / "data", port=None) as opened:
        yield opened


def group_of(broker: Broker, name: str) -> Group:
    group = broker.groups.find(name)
    assert group is not None
    return group


@pytest.mark.parametrize("name", [PLAIN, MOVED, MEMBERS])
async def test_offsets_equal_those_of_kafka(broker: Broker, name: str) -> None:
    """Without the zero that confluent-kafka adds to metadata, and takes off again."""
    expected = json.loads((SOURCE / "offsets.json").read_text())[name]
    found = {
        place.topic: [stored.committed.offset, stored.committed.metadata.rstrip("\0") or None]
        for place, stored in group_of(broker, name).offsets.items()
    }
    assert found == expected


@pytest.mark.parametrize("commit", [True, False])
async def test_the_open_transaction_is_pending(broker: Broker, commit: bool) -> None:
    """Its marker decides."""
    group = group_of(broker, MOVED)
    log = broker.logs.logs[TopicPartition(CONSUMER_OFFSETS, 0)]
    (producer,) = log.producers
    assert group.open_transactions == {PENDING: {producer.producer_id}}
    write_marker(
        broker, log.topic_partition, TransactionMarker(producer.producer_id, producer.epoch, commit, 0)
    )
    assert group.open_transactions == {}
    assert (PENDING in group.offsets) == commit
    if commit:
        assert group.offsets[PENDING].committed.offset == 13


async def test_offsets_go_a_week_after_the_last_member_left(broker: Broker) -> None:
    """Kafka's record tells when that was; what is pending stays."""
    membership = group_of(broker, MEMBERS).membership
    assert isinstance(membership, ClassicMembership)
    assert (membership.state_name, membership.generation_id, membership.members.by_id) == ("Empty", 2, {})
    assert membership.state_since_ms is not None
    broker.offsets.expire(membership.state_since_ms + WEEK_MS - 1)
    assert group_of(broker, MEMBERS).membership is membership
    broker.offsets.expire(membership.state_since_ms + WEEK_MS)
    assert broker.groups.find(MEMBERS) is None
    broker.offsets.expire(10**15)
    assert broker.groups.find(PLAIN) is None
    assert set(group_of(broker, MOVED).open_transactions) == {PENDING}
