"""Requests that name much, and cost the broker for each: other clients have their turns meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from broker_talk import Talk, batch, fetch_request

from splashdam.embedded_broker.broker import Broker
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
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
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest
from splashdam.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
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
EVERY = range(MANY)
MORE = range(10 * MANY)
NAMES = [f"name-{number}" for number in EVERY]

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
            * 20
        ),
        5,
    ),
    "FindCoordinator": (FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES), 4),
    "FindCoordinator of long keys": (
        FindCoordinatorRequest(key_type=0, coordinator_keys=["x" * 32_000] * 20),
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
                        PartitionProduceData(index=each % 400, records=batch(b"v")) for each in EVERY
                    ],
                )
            ],
        ),
        9,
    ),
}


@pytest.mark.parametrize("name", LARGE)
async def test_others_have_their_turns(broker: Broker, talk: Talk, network: MemoryNetwork, name: str) -> None:
    """Another client asks later, and is answered, before the large answer is there."""
    broker.topics.create("t", 400)
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
        async with trio.open_nursery() as nursery:
            await talk.send(request, version)
            nursery.start_soon(ask_for_much)
            await other.ask(ApiVersionsRequest(), 0)
            assert not is_answered


async def test_all_of_it_is_answered(broker: Broker, talk: Talk) -> None:
    """A request of several turns has every answer, in order, and its batches are in the log."""
    broker.topics.create("t", 400)
    answer = await talk.ask(*LARGE["Produce"])
    partitions = answer.responses[0].partition_responses
    assert [each.index for each in partitions] == [each % 400 for each in EVERY]
    assert [each.base_offset for each in partitions] == [each // 400 for each in EVERY]
    assert broker.logs.logs[TopicPartition("t", 0)].log_end_offset == MANY // 400
    fetched = await talk.ask(*LARGE["Fetch"])
    assert sum(bool(each.records) for each in fetched.responses[0].partitions) > 300
