"""Consumers of all clients share a topic in a classic group: they come, go, and nobody reads twice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient
from support.clients.foreign_members import CONSUMERS, Members

from splashdam import EmbeddedBroker, KafkaProducer

TOPIC = "shared"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    """A broker whose topics have four partitions."""
    with EmbeddedBroker(
        tmp_path / "data", fsync=False, num_partitions=4, group_initial_rebalance_delay_ms=0
    ) as broker:
        yield broker.bootstrap_servers


def write(servers: str, name: str) -> set[bytes]:
    """A hundred records over all partitions."""
    values = {f"{name} {number}".encode() for number in range(100)}
    with KafkaProducer(bootstrap_servers=servers) as producer:
        for number, value in enumerate(sorted(values)):
            producer.send(TOPIC, value, partition=number % 4)
    return values


@pytest.mark.parametrize("name", CONSUMERS)
def test_members_come_and_go(servers: str, name: str) -> None:
    """One has all partitions, two have two each, the one that is left has all; each value is read once."""
    first = write(servers, "first")
    make = partial(CONSUMERS[name], servers, "readers", TOPIC)
    with Members() as members:
        one = members.add(make)
        members.wait_assigned(4, of=[one])
        members.wait_read(first)
        two = members.add(make)
        members.wait_assigned(2, 2, of=[one, two])
        second = write(servers, "second")
        members.wait_read(first | second)
        assert sorted(one.values + two.values) == sorted(first | second)
        assert one.values
        assert two.values
        one.stop()
        members.wait_assigned(4, of=[two])
        third = write(servers, "third")
        members.wait_read(first | second | third)
        assert sorted(one.values + two.values) == sorted(first | second | third)
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        (group,) = admin.list_groups()
        assert (group["group_id"], group["group_state"]) == ("readers", "Empty")
        assert group["protocol_type"] == "consumer"
    finally:
        admin.close()


@pytest.mark.parametrize("name", ["kafka-python", "confluent-kafka"])
def test_a_static_member_goes_and_comes_back(servers: str, name: str) -> None:
    """The other keeps what it has meanwhile, and no generation begins."""
    written = write(servers, "first")
    make = partial(CONSUMERS[name], servers, "static", TOPIC)
    with Members() as members:
        one, two = (members.add(partial(make, instance_id=f"i{number}")) for number in range(2))
        members.wait_assigned(2, 2, of=[one, two])
        members.wait_read(written)
        two.stop()
        back = members.add(partial(make, instance_id="i1"))
        members.wait_assigned(2, of=[back])
        members.wait_read(written | write(servers, "second"))
        assert one.assigned == 2
