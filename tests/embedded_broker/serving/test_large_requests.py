"""Requests that name much, and cost the broker for each: other clients have their turns meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from support.broker.broker_talk import Talk, batch, fetch_request, produce_request
from support.broker.steps import at_once
from support.broker.turn_count import count_turns
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.configs.security import AUTHORIZER
from splashdam.embedded_broker.execution.turns import PARTITIONS_IN_A_UNIT
from splashdam.embedded_broker.fetching.sessions import SessionPartition
from splashdam.embedded_broker.handlers import fetch, offset_fetch, produce
from splashdam.embedded_broker.quotas import store
from splashdam.embedded_broker.security.acls import Acl
from splashdam.embedded_broker.serving.dispatch import TURN_ELEMENTS
from splashdam.model.acls import Operation, PatternType, Permission, ResourceType
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock
from splashdam.wire.message import Request
from splashdam.wire.messages import incremental_alter_configs
from splashdam.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from splashdam.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from splashdam.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from splashdam.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from splashdam.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from splashdam.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from splashdam.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from splashdam.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from splashdam.wire.messages.delete_groups import DeleteGroupsRequest
from splashdam.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from splashdam.wire.messages.delete_topics import DeleteTopicsRequest
from splashdam.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from splashdam.wire.messages.describe_groups import DescribeGroupsRequest
from splashdam.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from splashdam.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from splashdam.wire.messages.describe_topic_partitions import TopicRequest as TopicRequestOfPage
from splashdam.wire.messages.describe_transactions import DescribeTransactionsRequest
from splashdam.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from splashdam.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from splashdam.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest
from splashdam.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from splashdam.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from splashdam.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from splashdam.wire.messages.list_groups import ListGroupsRequest
from splashdam.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from splashdam.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from splashdam.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from splashdam.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from splashdam.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from splashdam.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from splashdam.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from splashdam.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

MANY = 4_000
PARTITIONS = 100
EVERY = range(MANY)
MORE = range(5 * MANY)
NAMES = [f"name-{number}" for number in EVERY]

REFUSED_AS_A_WHOLE = {
    "AddPartitionsToTxn of long ids",
    "AddPartitionsToTxn of many transactions",
    "LeaveGroup",
    "OffsetFetch",
}
"""With one code, or none, which costs nothing."""

NAMES_FEW = {"CreateTopics", "FindCoordinator of long keys"}
"""Refusing costs the same for each name, however long."""

LARGE: dict[str, tuple[Request[Any], int]] = {
    "Metadata": (
        MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in NAMES], allow_auto_topic_creation=False
        ),
        9,
    ),
    "ListOffsets": (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name="t",
                    partitions=[ListOffsetsPartition(partition_index=each, timestamp=-1) for each in EVERY],
                )
            ],
        ),
        7,
    ),
    "OffsetForLeaderEpoch": (
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic="t", partitions=[OffsetForLeaderPartition(partition=each) for each in EVERY]
                )
            ]
        ),
        4,
    ),
    "DescribeProducers": (
        DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=list(EVERY))]),
        0,
    ),
    "DeleteRecords": (
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="t",
                    partitions=[DeleteRecordsPartition(partition_index=each, offset=0) for each in EVERY],
                )
            ]
        ),
        2,
    ),
    "WriteTxnMarkers": (
        WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=7,
                    topics=[WritableTxnMarkerTopic(name="t", partition_indexes=list(EVERY))],
                )
            ]
        ),
        1,
    ),
    "OffsetFetch": (
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[OffsetFetchRequestTopics(name="t", partition_indexes=list(MORE))],
                )
            ]
        ),
        8,
    ),
    "DeleteTopics": (DeleteTopicsRequest(topic_names=NAMES), 5),
    "CreateTopics": (
        CreateTopicsRequest(
            topics=[
                CreatableTopic(name=f"n{number}", num_partitions=1, replication_factor=1)
                for number in range(400)
            ],
            validate_only=True,
        ),
        5,
    ),
    "CreatePartitions": (
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=1) for name in NAMES]),
        3,
    ),
    "DescribeConfigs": (
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=2, resource_name=name) for name in NAMES]
        ),
        4,
    ),
    "ElectLeaders": (
        ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=list(MORE))]),
        2,
    ),
    "ElectLeaders of no type": (
        ElectLeadersRequest(
            election_type=7, topic_partitions=[TopicPartitions(topic="t", partitions=list(MORE))]
        ),
        2,
    ),
    "AddPartitionsToTxn": (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(MORE))],
        ),
        3,
    ),
    "AddPartitionsToTxn of many transactions": (
        AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=name,
                    producer_id=1,
                    producer_epoch=0,
                    verify_only=True,
                    topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
                )
                for name in NAMES
            ]
        ),
        5,
    ),
    "AddPartitionsToTxn of long ids": (
        AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id="x" * 32_000, producer_id=1, producer_epoch=0, verify_only=True
                )
            ]
            * 100
        ),
        5,
    ),
    "LeaveGroup": (
        LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=name) for name in NAMES]),
        5,
    ),
    "FindCoordinator": (FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES), 4),
    "FindCoordinator of long keys": (
        FindCoordinatorRequest(key_type=0, coordinator_keys=["x" * 32_000] * 100),
        4,
    ),
    "DeleteGroups": (DeleteGroupsRequest(groups_names=NAMES), 2),
    "DescribeGroups": (DescribeGroupsRequest(groups=NAMES), 5),
    "ConsumerGroupDescribe": (ConsumerGroupDescribeRequest(group_ids=NAMES), 0),
    "DescribeTransactions": (DescribeTransactionsRequest(transactional_ids=NAMES), 0),
    "DescribeTopicPartitions": (
        DescribeTopicPartitionsRequest(topics=[TopicRequestOfPage(name=name) for name in NAMES]),
        0,
    ),
    "OffsetCommit": (
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=each, committed_offset=0)
                        for each in MORE
                    ],
                )
            ],
        ),
        8,
    ),
    "TxnOffsetCommit": (
        TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=1,
            producer_epoch=0,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=0)
                        for each in MORE
                    ],
                )
            ],
        ),
        4,
    ),
    "AlterReplicaLogDirs": (
        AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path="/data", topics=[AlterReplicaLogDirTopic(name="t", partitions=list(EVERY))]
                )
            ]
        ),
        2,
    ),
    "AlterPartitionReassignments": (
        AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name="t",
                    partitions=[ReassignablePartition(partition_index=each, replicas=[0]) for each in EVERY],
                )
            ]
        ),
        0,
    ),
    "ListPartitionReassignments": (
        ListPartitionReassignmentsRequest(
            topics=[ListPartitionReassignmentsTopics(name="t", partition_indexes=list(MORE))]
        ),
        0,
    ),
    "AlterConfigs": (
        AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=2, resource_name=name) for name in NAMES]
        ),
        1,
    ),
    "IncrementalAlterConfigs": (
        IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(resource_type=2, resource_name=name)
                for name in NAMES
            ]
        ),
        1,
    ),
    "AlterClientQuotas": (
        AlterClientQuotasRequest(
            entries=[
                EntryData(
                    entity=[EntityData(entity_type="user", entity_name=name)],
                    ops=[OpData(key="producer_byte_rate", value=1.0)],
                )
                for name in NAMES
            ],
            validate_only=True,
        ),
        1,
    ),
    "AlterUserScramCredentials": (
        AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name=name, mechanism=1) for name in NAMES]
        ),
        0,
    ),
    "DescribeUserScramCredentials": (
        DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in NAMES]),
        0,
    ),
    "Fetch": (fetch_request("t", 0, partitions=MORE, max_wait_ms=0), 12),
    "Produce": (
        ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name="t",
                    partition_data=[
                        PartitionProduceData(index=each % PARTITIONS, records=batch(b"v")) for each in EVERY
                    ],
                )
            ],
        ),
        9,
    ),
}


@pytest.mark.parametrize("name", LARGE)
async def test_others_have_their_turns(
    broker: Broker, talk: Talk, network: MemoryNetwork, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client asks later, and is answered, before the large answer is there.

    ElectLeaders of 49,000 partitions was one step of 0.2 s, and so were requests of many other APIs.
    """
    broker.topics.create("t", PARTITIONS)
    request, version = LARGE[name]
    is_answered = False

    async def ask_for_much() -> None:
        nonlocal is_answered
        answer = await talk.answer()
        is_answered = True
        assert answer is not None

    async with await network.connect("broker", 9092) as stream:
        other = Talk(stream)
        await other.ask(ApiVersionsRequest(), 0)
        await talk.ask(ApiVersionsRequest(), 0)
        turns = count_turns(broker, monkeypatch)
        async with trio.open_nursery() as nursery:
            await talk.send(request, version)
            nursery.start_soon(ask_for_much)
            await other.ask(ApiVersionsRequest(), 0)
            assert not is_answered
        assert turns


@asynccontextmanager
async def guarded_broker(
    files: MemoryFiles, network: MemoryNetwork, clock: MockClock
) -> AsyncIterator[tuple[Broker, Talk]]:
    """A broker that refuses everything, with the topic ``t`` of some partitions, and a connection to it."""
    async with (
        open_broker(
            "/data",
            host="broker",
            port=9092,
            listen=network.listen,
            clock=VirtualClock(clock),
            files=files,
            authorizer_class_name=AUTHORIZER,
        ) as broker,
        await network.connect("broker", 9092) as stream,
    ):
        broker.topics.create("t", PARTITIONS)
        talk = Talk(stream)
        await talk.ask(ApiVersionsRequest(), 0)
        yield broker, talk


@pytest.mark.parametrize("name", sorted(LARGE.keys() - REFUSED_AS_A_WHOLE - NAMES_FEW))
async def test_refusals_were_made_in_one_step(
    files: MemoryFiles,
    network: MemoryNetwork,
    autojump_clock: MockClock,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client without any right held the loop with many names, each of which was refused separately."""
    async with guarded_broker(files, network, autojump_clock) as (broker, talk):
        turns = count_turns(broker, monkeypatch)
        answer = await talk.ask(*LARGE[name])
        assert answer is not None
        assert turns


async def test_batches_with_acks_0_are_written_before_the_connection_ends(
    files: MemoryFiles, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """Many partitions that are allowed take several turns; those after the first were thrown away."""
    async with guarded_broker(files, network, autojump_clock) as (broker, talk):
        everybody = ("User:*", "*", Operation.WRITE, Permission.ALLOW)
        at_once(broker.access.acls.add([Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, *everybody)]))
        request, version = LARGE["Produce"]
        assert isinstance(request, ProduceRequest)
        theirs = produce_request("theirs", batch(b"v")).topic_data
        await talk.send(
            ProduceRequest(acks=0, timeout_ms=1000, topic_data=request.topic_data + theirs),
            version,
            answered=False,
        )
        assert await talk.is_closed()
        ends = {log.log_end_offset for log in broker.logs.logs.values()}
        assert ends == {MANY // PARTITIONS}


async def test_many_leave_a_group(broker: Broker, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are gone, each with its code, after several turns."""
    broker.topics.create("t")
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    given = [(await talk.ask(join, 5)).member_id for _ in range(1500)]
    members = [MemberIdentity(member_id=each) for each in [*given[:700], "nobody", *given[700:]]]
    turns = count_turns(broker, monkeypatch)
    answer = await talk.ask(LeaveGroupRequest(group_id="g", members=members), 5)
    assert [each.member_id for each in answer.members] == [each.member_id for each in members]
    codes = [each.error_code for each in answer.members]
    assert codes == [0] * 700 + [ErrorCode.UNKNOWN_MEMBER_ID] + [0] * 800
    assert turns
    again = await talk.ask(LeaveGroupRequest(group_id="g", members=members), 5)
    assert {each.error_code for each in again.members} == {ErrorCode.UNKNOWN_MEMBER_ID}


async def test_the_quotas_of_many_were_written_for_each_of_them(
    broker: Broker, talk: Talk, files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 entities wrote the file of all 2,000 times: 52 s, in which others waited for up to a second."""
    written: list[str] = []
    write = files.write_atomic

    def counted(path: str, *arguments: Any, **options: Any) -> None:
        written.append(path)
        write(path, *arguments, **options)

    monkeypatch.setattr(files, "write_atomic", counted)
    request, _ = LARGE["AlterClientQuotas"]
    assert isinstance(request, AlterClientQuotasRequest)
    wrong = EntryData(entity=[EntityData(entity_type="ip", entity_name="no address")])
    answer = await talk.ask(AlterClientQuotasRequest(entries=[*request.entries, wrong]), 1)
    assert [each.error_code for each in answer.entries] == [0] * MANY + [ErrorCode.INVALID_REQUEST]
    assert len(written) == 1
    assert len(broker.access.quotas.quotas) == MANY
    encoded = []
    monkeypatch.setattr(store, "_line", lambda *given: encoded.append(given) or "{}")
    one = EntryData(
        entity=[EntityData(entity_type="user", entity_name="one more")],
        ops=[OpData(key="producer_byte_rate", value=1.0)],
    )
    assert (await talk.ask(AlterClientQuotasRequest(entries=[one]), 1)).entries[0].error_code == 0
    assert len(encoded) == 1


async def test_all_groups_were_listed_in_one_step(
    broker: Broker, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there are, in several turns."""
    broker.topics.create("t")
    topics = [
        OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(committed_offset=1)])
    ]
    for name in NAMES[:2100]:
        await talk.ask(OffsetCommitRequest(group_id=name, topics=topics), 8)
    turns = count_turns(broker, monkeypatch)
    answer = await talk.ask(ListGroupsRequest(), 4)
    assert sorted(each.group_id for each in answer.groups) == sorted(NAMES[:2100])
    assert turns


@pytest.mark.parametrize("version", [1, 6, 8])
async def test_the_answer_of_many_offsets_was_made_in_one_step(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The answer's list of 40,000 partitions took 26 ms of the loop, after the last step."""
    partition_indexes = list(MORE)
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=partition_indexes)]
        request = OffsetFetchRequest(group_id="g", topics=topics)
    else:
        named = [OffsetFetchRequestTopics(name="t", partition_indexes=partition_indexes)]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=named)])
    made = 0

    def counted(kind: type[Any]) -> Callable[..., Any]:
        def make(**fields: Any) -> Any:
            nonlocal made
            made += 1
            return kind(**fields)

        return make

    name = "OffsetFetchResponsePartition" if version < 8 else "OffsetFetchResponsePartitions"
    monkeypatch.setattr(offset_fetch, name, counted(getattr(offset_fetch, name)))
    context: Any = SimpleNamespace(broker=broker, version=version)  # all that the handler reads
    steps, longest, before = offset_fetch.offset_fetch(request, context), 0, 0
    try:
        while True:
            next(steps)
            longest, before = max(longest, made - before), made
    except StopIteration as end:
        answer = end.value
    partitions = answer.topics[0].partitions if version < 8 else answer.groups[0].topics[0].partitions
    assert [each.partition_index for each in partitions] == list(MORE)
    assert made == len(MORE)
    assert max(longest, made - before) <= PARTITIONS_IN_A_UNIT


async def test_the_partitions_of_a_fetch_were_unpacked_in_one_step(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of 49,000 took a tenth of a second, before the first one was read."""
    made = 0

    def counted(*fields: Any) -> SessionPartition:
        nonlocal made
        made += 1
        return SessionPartition(*fields)

    monkeypatch.setattr(fetch, "SessionPartition", counted)
    request = FetchRequest(
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=each) for each in MORE])]
    )
    context: Any = SimpleNamespace(broker=broker, version=12)  # all that the handler reads
    steps, before = fetch.fetch(request, context), 0
    while made < len(MORE):
        next(steps)
        assert made - before <= PARTITIONS_IN_A_UNIT
        before = made
    steps.close()


async def test_logs_to_sync_were_looked_up_in_one_step(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transactional Produce of 44,000 batches took 20 ms of the loop before its first batch."""
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=each) for each in MORE])
    request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1000, topic_data=[topic])
    placed = 0

    def place(*fields: Any) -> Any:
        nonlocal placed
        placed += 1
        return original(*fields)

    original = produce._Place
    monkeypatch.setattr(produce, "_Place", place)
    context: Any = SimpleNamespace(broker=broker, version=9)
    longest, before = 0, 0
    for _ in produce._state_to_sync(produce._Asked(request, context)):
        longest, before = max(longest, placed - before), placed
    assert placed == len(MORE)
    assert max(longest, placed - before) <= PARTITIONS_IN_A_UNIT


async def test_a_large_request_was_decoded_in_one_step(broker: Broker, talk: Talk) -> None:
    """50,000 elements took 130 ms of the loop; they are decoded beside it, and their answer is encoded there.

    What is small pays for no thread. Requests are answered in their order.
    """
    broker.topics.create("t")
    small = DescribeGroupsRequest(groups=["g"] * 1000)
    few = DescribeGroupsRequest(groups=["g"] * TURN_ELEMENTS)
    many = DescribeGroupsRequest(groups=["g"] * (TURN_ELEMENTS + 1))
    assert len((await talk.ask(small, 5)).groups) == 1000
    assert broker.turns.beside == 0
    assert len((await talk.ask(few, 5)).groups) == TURN_ELEMENTS
    assert broker.turns.beside == 1  # only its answer
    await talk.send(produce_request("t", batch(b"x")), 9)
    await talk.send(many, 5)
    assert (await talk.answer()).responses[0].partition_responses[0].base_offset == 0
    assert len((await talk.answer()).groups) == TURN_ELEMENTS + 1
    assert broker.turns.beside == 3


async def test_too_large_a_request_is_refused_beside_the_loop(broker: Broker, talk: Talk) -> None:
    """Nobody can tell before it is decoded; what was asked before it is answered still."""
    broker.topics.create("t")
    await talk.send(produce_request("t", batch(b"x")), 9)
    await talk.send(DescribeGroupsRequest(groups=["g"] * 50_001), 5)
    assert (await talk.answer()).responses[0].partition_responses[0].base_offset == 0
    with pytest.raises(EOFError):
        await talk.answer()
    assert broker.turns.beside == 1


async def test_all_of_it_is_answered(broker: Broker, talk: Talk) -> None:
    """A request of several turns has every answer, in order, and its batches are in the log."""
    broker.topics.create("t", PARTITIONS)
    answer = await talk.ask(*LARGE["Produce"])
    partitions = answer.responses[0].partition_responses
    assert [each.index for each in partitions] == [each % PARTITIONS for each in EVERY]
    assert [each.base_offset for each in partitions] == [each // PARTITIONS for each in EVERY]
    assert broker.logs.logs[TopicPartition("t", 0)].log_end_offset == MANY // PARTITIONS
    fetched = await talk.ask(*LARGE["Fetch"])
    assert sum(bool(each.records) for each in fetched.responses[0].partitions) > PARTITIONS * 3 // 4
