"""The same requests about offsets to a real Kafka and to ours: the same answers, code by code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.offset_talk import commit, commit_in_transaction, fetch
from support.broker.transaction_talk import RawProducer
from support.clients.foreign_groups import COMMIT, Committed
from support.kafka.kafka_jars import kafka_broker
from support.kafka.kafka_reading import make_topic

from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
MEMBER = {"generation_id_or_member_epoch": 3, "member_id": "m"}
TXN_MEMBER = {"generation_id_or_member_epoch": 3, "member_id": "m"}


async def plain(talk: Talk) -> list[Any]:
    """Commits from outside of the group, by unknown members, and beyond the limits."""
    said: list[Any] = []
    for version in range(2, 10):
        group = f"v{version}"
        said.append(await commit(talk, group, {0: 1}, version, **MEMBER))
        said.append(await commit(talk, group, {0: 1, 7: 1}, version, metadata="m"))
        said.append(await commit(talk, group, {0: 2}, version, **MEMBER))
        said.append(await commit(talk, group, {0: 2}, version, member_id="m"))
        said.append(await commit(talk, group, {0: 2}, version, metadata="\U0001f600" * 2049))
        said.append(await commit(talk, group, {0: 3}, version, metadata="\U0001f600" * 2048))
        said.append(await commit(talk, group, {0: 3}, version, topic="missing"))
        said += [await fetch(talk, group, [0, 7], each) for each in range(1, 10)]
        said += [await fetch(talk, group, None, each) for each in range(2, 10)]
        said.append(await fetch(talk, "nobody", [0], version))
    return said


async def transactional(talk: Talk) -> list[Any]:
    """Offsets in transactions, of the older protocol: pending, committed, aborted, refused."""
    said: list[Any] = []
    producer = RawProducer(talk, uses_v2=False)
    while await producer.initialize():  # a real broker makes the topic of transactions when it is asked for
        await talk.ask(FindCoordinatorRequest(key=producer.transactional_id, key_type=1), 3)
        await trio.sleep(0.1)
    for version in range(5):
        said += await commit_in_transaction(producer, "other", {0: 1}, version)
    for version in range(5):
        group = f"t{version}"
        for is_commit in (True, False):
            said.append(await settled(producer.add_offsets, group))
            said.append(await commit_in_transaction(producer, group, {0: version, 7: 1}, version))
            said.append(await fetch(talk, group, [0, 1], require_stable=True))
            said.append(await fetch(talk, group, [0, 1]))
            said.append(await fetch(talk, group, None, require_stable=True))
            said.append(await settled(producer.end, is_commit=is_commit))
            said.append(await settled(fetch, talk, group, [0], require_stable=True))
        said.append(await settled(producer.add_offsets, group))
        if version >= 3:
            said.append(await commit_in_transaction(producer, group, {0: 5}, version, **TXN_MEMBER))
            said.append(await commit_in_transaction(producer, "new", {0: 5}, version, **TXN_MEMBER))
        said.append(await commit_in_transaction(producer, group, {0: 5}, version, producer_id=999))
        said.append(await commit_in_transaction(producer, group, {0: 5}, version, producer_epoch=99))
        said.append(await settled(producer.end))
    return said


async def settled(ask: Any, *args: Any, **fields: Any) -> Any:
    """A real broker writes its markers a moment later: 51 and 88 mean that."""
    while True:
        said = await ask(*args, **fields)
        if said != 51 and not (isinstance(said, list) and said[0][-1] == 88):
            return said
        await trio.sleep(0.05)


async def answers(servers: str) -> list[Any]:
    """Everything that is asked of one broker."""
    ((host, port),) = parse_bootstrap_servers(servers)
    async with await trio.open_tcp_stream(host, port) as stream:
        return [*await plain(Talk(stream)), *await transactional(Talk(stream))]


def test_offsets_are_answered_alike(version: str, tmp_path: Path) -> None:
    """Every version of OffsetCommit and OffsetFetch, TxnOffsetCommit up to 4."""
    if version.startswith("3."):
        pytest.skip("the coordinator before Kafka 4 says 22 and 25 in other places")
    with (
        kafka_broker(version, tmp_path / "kafka") as theirs,
        EmbeddedBroker(tmp_path / "ours", offsets_topic_num_partitions=1) as ours,
    ):
        said = []
        for servers in (theirs.bootstrap_servers, ours.bootstrap_servers):
            make_topic(servers, "t")
            COMMIT["kafka-python"](servers, "first", "t", Committed(1, ""))  # makes the topic of offsets
            said.append(trio.run(answers, servers))
    assert [
        (number, *pair) for number, pair in enumerate(zip(*said, strict=True)) if pair[0] != pair[1]
    ] == []
