"""Error messages and empty lists in answers: null where Kafka has null, a string where Kafka has a string.

Clients in languages without null fail on a wrong null; clients that raise every message fail on a wrong
string.
"""

from __future__ import annotations

from functools import partial

from splashdam.model.broker_errors import ErrorCode
from splashdam.testing.contract.behaviour import Run, behaviour, expect
from splashdam.testing.contract.raw_connection import (
    TRANSACTION,
    RawConnection,
    connected,
    coordinator_of,
    leader_of,
    retried,
)
from splashdam.testing.contract.vocabulary import NOT_IN_CLIENT, PROTOCOL, Refused
from splashdam.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from splashdam.wire.messages.delete_groups import DeleteGroupsRequest
from splashdam.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from splashdam.wire.messages.describe_quorum import AskedPartition, AskedTopic, DescribeQuorumRequest
from splashdam.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from splashdam.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from splashdam.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest
from splashdam.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from splashdam.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from splashdam.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

_METADATA_LOG = "__cluster_metadata"
_UNKNOWN_ELECTION = 9


def _offered(conn: RawConnection, kind: type[ApiVersionsRequest], version: int) -> None:
    """Leave the behaviour out if the cluster does not offer this version."""
    if conn.version_of(kind) < version:
        raise Refused(NOT_IN_CLIENT, f"the cluster does not offer {kind.NAME} {version}")


@behaviour(PROTOCOL)
def created_topics_have_no_error_message(run: Run) -> None:
    """CreateTopics, every version: the error message is null, not the empty string."""
    with connected(run) as conn:
        for version in CreateTopicsRequest.VERSIONS:
            asked = CreatableTopic(name=run.new_topic(), num_partitions=1, replication_factor=1)
            (answer,) = conn.ask(CreateTopicsRequest(topics=[asked]), version).topics
            expect(
                (answer.error_code, answer.error_message), (0, None), f"code and text of version {version}"
            )


@behaviour(PROTOCOL)
def a_coordinator_is_found_without_an_error(run: Run) -> None:
    """FindCoordinator: the error message is "NONE" up to version 3, then the empty string; never null."""
    with connected(run) as conn:
        for version in (1, 2, 3):
            asked = FindCoordinatorRequest(key=run.group())
            one = retried(partial(conn.ask, asked, version), lambda answer: answer.error_code)
            expect((one.error_code, one.error_message), (0, "NONE"), f"code and text of version {version}")
        many = conn.ask(FindCoordinatorRequest(coordinator_keys=[run.group()]), 4)
        (found,) = many.coordinators
        expect((found.error_code, found.error_message), (0, ""), "code and text of version 4")


@behaviour(PROTOCOL)
def unneeded_reassignments_have_no_error_message(run: Run) -> None:
    """The error messages of the answer and of its partitions are null."""
    topic = run.topic()
    with leader_of(run, topic) as conn:
        listed = conn.ask(ListPartitionReassignmentsRequest(topics=None), 0)
        expect((listed.error_code, listed.error_message), (0, None), "code and text of the list")
        (state,) = conn.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 8).topics
        same = ReassignablePartition(partition_index=0, replicas=state.partitions[0].replica_nodes)
        asked = [ReassignableTopic(name=topic, partitions=[same])]
        answer = conn.ask(AlterPartitionReassignmentsRequest(topics=asked), 0)
        expect((answer.error_code, answer.error_message), (0, None), "code and text of the change")
        (partition,) = answer.responses[0].partitions
        expect((partition.error_code, partition.error_message), (0, None), "code and text of the partition")


@behaviour(PROTOCOL)
def empty_descriptions_have_an_empty_error_message(run: Run) -> None:
    """Client quotas and SCRAM credentials: error code 0 with an empty error message."""
    with connected(run) as conn:
        quotas = conn.ask(DescribeClientQuotasRequest(components=[], strict=False), 0)
        expect((quotas.error_code, quotas.error_message), (0, ""), "code and text of the quotas")
        users = conn.ask(DescribeUserScramCredentialsRequest(users=None), 0)
        expect((users.error_code, users.error_message), (0, ""), "code and text of the credentials")


@behaviour(PROTOCOL)
def an_unneeded_election_lists_its_topics(run: Run) -> None:
    """For all partitions: each topic without partitions. For an unknown type: each requested partition."""
    topic = run.topic()
    with leader_of(run, topic) as conn:
        everything = conn.ask(ElectLeadersRequest(topic_partitions=None, timeout_ms=5_000), 2)
        found = {each.topic: len(each.partition_result) for each in everything.replica_election_results}
        expect(found.get(topic), 0, "partitions of the topic")
        one = [TopicPartitions(topic=topic, partitions=[0])]
        asked = ElectLeadersRequest(election_type=_UNKNOWN_ELECTION, topic_partitions=one, timeout_ms=5_000)
        unknown = conn.ask(asked, 2)
        (result,) = unknown.replica_election_results
        codes = [each.error_code for each in result.partition_result]
        expect(
            (unknown.error_code, codes),
            (ErrorCode.INVALID_REQUEST, [ErrorCode.INVALID_REQUEST]),
            "error codes",
        )


@behaviour(PROTOCOL)
def offsets_of_a_missing_partition_cannot_be_deleted(run: Run) -> None:
    """UNKNOWN_TOPIC_OR_PARTITION for the partition, as for a missing topic."""
    topic, group = run.topic(), run.group()
    run.helper.commit(group, topic, {0: (1, "")})
    numbers = [OffsetDeleteRequestPartition(partition_index=each) for each in (0, 7)]
    asked = OffsetDeleteRequestTopic(name=topic, partitions=numbers)
    with coordinator_of(run, group) as conn:
        (answer,) = conn.ask(OffsetDeleteRequest(group_id=group, topics=[asked]), 0).topics
    codes = {each.partition_index: each.error_code for each in answer.partitions}
    expect(codes, {0: 0, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, "error codes")


@behaviour(PROTOCOL)
def missing_partitions_have_no_aborted_transactions(run: Run) -> None:
    """Fetch of a missing partition: the list is empty, not null."""
    topic = run.topic()
    missing = FetchPartition(partition=7, fetch_offset=0, partition_max_bytes=1_000)
    asked = [FetchTopic(topic=topic, partitions=[missing])]
    with leader_of(run, topic) as conn:
        answer = conn.ask(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1_000, topics=asked), 11)
    (partition,) = answer.responses[0].partitions
    found = (partition.error_code, partition.aborted_transactions)
    expect(found, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []), "code and aborted transactions")


@behaviour(PROTOCOL)
def the_metadata_log_has_a_quorum(run: Run) -> None:
    """DescribeQuorum: the leader is one of the voters, and each voter has an address."""
    with connected(run) as conn:
        asked = [AskedTopic(topic_name=_METADATA_LOG, partitions=[AskedPartition()])]
        for version in DescribeQuorumRequest.VERSIONS:
            answer = conn.ask(DescribeQuorumRequest(topics=asked), version)
            (quorum,) = answer.topics[0].partitions
            expect((answer.error_code, quorum.error_code), (0, 0), f"error codes of version {version}")
            voters = {each.replica_id for each in quorum.current_voters}
            expect(quorum.leader_id in voters, True, "the leader votes")
        expect(voters <= {each.node_id for each in answer.nodes}, True, "voters have addresses")
        asked = [AskedTopic(topic_name="other", partitions=[AskedPartition()])]
        (other,) = conn.ask(DescribeQuorumRequest(topics=asked), 2).topics[0].partitions
        expect(other.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "error code of another topic")


@behaviour(PROTOCOL)
def a_client_of_another_broker_must_bootstrap_again(run: Run) -> None:
    """ApiVersions 5 (KIP-1242): another cluster or node id is REBOOTSTRAP_REQUIRED; one alone is invalid."""
    with connected(run) as conn:
        _offered(conn, ApiVersionsRequest, 5)
        cluster = conn.ask(MetadataRequest(topics=[]), 8)
        node = cluster.controller_id if len(cluster.brokers) == 1 else None

        def code(cluster_id: str | None, node_id: int) -> int:
            asked = ApiVersionsRequest(
                client_software_name="contract",
                client_software_version="1",
                cluster_id=cluster_id,
                node_id=node_id,
            )
            return conn.ask(asked, 5).error_code

        if node is not None:
            expect(code(cluster.cluster_id, node), 0, "error code for this broker")
        expect(code(cluster.cluster_id, 10**6), ErrorCode.REBOOTSTRAP_REQUIRED, "error code for another node")
        expect(code("another", 1), ErrorCode.REBOOTSTRAP_REQUIRED, "error code for another cluster")
        expect(code("another", -1), ErrorCode.INVALID_REQUEST, "error code for a cluster without a node")
        expect(code(None, 1), ErrorCode.INVALID_REQUEST, "error code for a node without a cluster")


@behaviour(PROTOCOL)
def offsets_of_a_transaction_need_a_group(run: Run) -> None:
    """TxnOffsetCommit with an empty group id is INVALID_GROUP_ID."""
    topic, transactional_id = run.topic(), run.name()
    partition = TxnOffsetCommitRequestPartition(committed_offset=1, committed_metadata=None)
    asked = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id="",
        producer_id=1,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )

    def code(conn: RawConnection) -> int:
        return conn.ask(asked, 3).topics[0].partitions[0].error_code

    run.helper.commit(run.group(), topic, {0: (1, "")})
    with coordinator_of(run, transactional_id, TRANSACTION) as conn:
        expect(code(conn), ErrorCode.INVALID_GROUP_ID, "error code")


@behaviour(PROTOCOL)
def deleting_a_missing_group_has_no_error_message(run: Run) -> None:
    """DeleteGroups of a missing group: GROUP_ID_NOT_FOUND, and a null error message from version 3 on."""
    group = run.group()
    with coordinator_of(run, group) as conn:
        for version in range(conn.version_of(DeleteGroupsRequest) + 1):
            (answer,) = conn.ask(DeleteGroupsRequest(groups_names=[group]), version).results
            found = (answer.error_code, answer.error_message)
            expect(found, (ErrorCode.GROUP_ID_NOT_FOUND, None), f"code and text of version {version}")
