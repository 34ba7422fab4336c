"""An authorizer over the wire: every API has a guard, and refusals are Kafka's codes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import copy
from typing import Any

import pytest
import trio
from support.broker.broker_talk import (
    Talk,
    batch,
    create_request,
    fetch_request,
    fetched,
    produce,
    produce_request,
)
from support.broker.steps import at_once
from trio.testing import MockClock

from splashdam.embedded_broker.authorization import topics
from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.configs.security import AUTHORIZER
from splashdam.embedded_broker.security.acls import Acl
from splashdam.embedded_broker.serving.registry import registered_apis, registered_guards
from splashdam.model.acls import Operation, PatternType, Permission, ResourceType
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages import alter_configs, incremental_alter_configs
from splashdam.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from splashdam.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from splashdam.wire.messages.create_acls import AclCreation, CreateAclsRequest
from splashdam.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from splashdam.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from splashdam.wire.messages.describe_acls import DescribeAclsRequest
from splashdam.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from splashdam.wire.messages.describe_groups import DescribeGroupsRequest
from splashdam.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from splashdam.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest
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
from splashdam.wire.messages.sync_group import SyncGroupRequest
from splashdam.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

Op, R = Operation, ResourceType
TOPIC, GROUP, CLUSTER, TXN = 29, 30, 31, 53


@pytest.fixture
async def guarded(
    files: MemoryFiles, network: MemoryNetwork, autojump_clock: MockClock
) -> AsyncIterator[Broker]:
    """A broker with an authorizer and no ACLs, and the topics ``mine`` and ``theirs``."""
    async with open_broker(
        "/data",
        host="broker",
        port=9092,
        listen=network.listen,
        clock=VirtualClock(autojump_clock),
        files=files,
        authorizer_class_name=AUTHORIZER,
    ) as broker:
        broker.topics.create("mine")
        broker.topics.create("theirs")
        yield broker


@pytest.fixture
async def asker(guarded: Broker, network: MemoryNetwork) -> AsyncIterator[Talk]:
    """A client that is User:ANONYMOUS."""
    async with await network.connect("broker", 9092) as stream:
        yield Talk(stream)


def allow(
    broker: Broker, operation: Operation, kind: ResourceType = R.TOPIC, name: str = "mine", **fields: Any
) -> None:
    """Allows everybody something."""
    acl = Acl(kind, name, PatternType.LITERAL, "User:*", "*", operation, Permission.ALLOW)
    at_once(broker.access.acls.add([acl]))


def test_every_api_has_a_guard() -> None:
    """One that is added without is refused where there is an authorizer; this says so before."""
    assert registered_apis().keys() <= registered_guards().keys()


async def test_produce(asker: Talk, guarded: Broker) -> None:
    """29 beside what is written, 53 for the id; with acks=0 the connection ends."""
    assert (await produce(asker, "mine", batch(b"a"))).error_code == TOPIC
    assert (await produce(asker, "no-such-topic", batch(b"a"))).error_code == TOPIC
    allow(guarded, Op.WRITE)
    for _ in range(3):  # nothing is learnt that would not ask
        assert (await produce(asker, "mine", batch(b"a"))).error_code == 0
    request = produce_request("mine", batch(b"a"))
    request.topic_data += produce_request("theirs", batch(b"a")).topic_data
    answer = await asker.ask(request, 9)
    assert [(each.name, each.partition_responses[0].error_code) for each in answer.responses] == [
        ("mine", 0),
        ("theirs", TOPIC),
    ]
    assert answer.responses[1].partition_responses[0].base_offset == -1
    assert (await produce(asker, "mine", batch(b"a"), transactional_id="x")).error_code == TXN
    guarded.access.acls.delete(guarded.access.acls.all)
    assert (await produce(asker, "mine", batch(b"a"))).error_code == TOPIC
    await asker.send(produce_request("mine", batch(b"a"), acks=0), 9, answered=False)
    assert await asker.is_closed()


async def test_fetch_and_offsets(asker: Talk, guarded: Broker) -> None:
    """READ for records, at once; READ implies DESCRIBE, which offsets need."""
    allow(guarded, Op.WRITE)
    await produce(asker, "mine", batch(b"a"))
    start = trio.current_time()
    refused = await asker.ask(fetch_request("mine", 0, max_wait_ms=5000, min_bytes=1000), 11)
    assert trio.current_time() - start < 4
    assert fetched(refused)[0].error_code == TOPIC
    assert bytes(fetched(refused)[0].records) == b""
    asked = [
        ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=-1)])
        for name in ("mine", "theirs")
    ]
    answer = await asker.ask(ListOffsetsRequest(replica_id=-1, topics=asked), 5)
    assert {each.name: each.partitions[0].error_code for each in answer.topics} == {
        "mine": 0,
        "theirs": TOPIC,
    }
    allow(guarded, Op.READ)
    assert fetched(await asker.ask(fetch_request("mine", 0), 11))[0].error_code == 0
    theirs = guarded.topics.get("theirs")
    assert theirs is not None
    by_id = await asker.ask(fetch_request("", 0, topic_id=theirs.topic_id), 13)
    assert fetched(by_id)[0].error_code == TOPIC


async def test_a_client_that_is_no_broker_cannot_move_the_high_watermark(
    asker: Talk, guarded: Broker
) -> None:
    """Replication never hears of a replica's fetch that a client makes up: it would count as in sync."""
    heard = []
    guarded.replicas.on_fetch = lambda log, fetch: heard.append(fetch)  # type: ignore[method-assign]
    allow(guarded, Op.READ)
    asked = fetch_request("mine", 0, replica_id=2)
    assert [each.error_code for each in fetched(await asker.ask(asked, 11))] == [TOPIC]
    assert heard == []
    allow(guarded, Op.CLUSTER_ACTION, R.CLUSTER, "kafka-cluster")
    await asker.ask(asked, 11)
    assert len(heard) == 1


async def test_groups_that_cannot_be_described(asker: Talk, guarded: Broker) -> None:
    """30 where it is not allowed; what one may do is told of groups that are there alone."""
    allow(guarded, Op.DESCRIBE, R.GROUP, "g")
    asked = DescribeGroupsRequest(groups=["g", "theirs"], include_authorized_operations=True)
    found = {each.group_id: each for each in (await asker.ask(asked, 6)).groups}
    assert (found["g"].error_code, found["theirs"].error_code) == (69, GROUP)
    assert {each.authorized_operations for each in found.values()} == {-(2**31)}
    new = ConsumerGroupDescribeRequest(group_ids=["g", "theirs"], include_authorized_operations=True)
    assert [each.error_code for each in (await asker.ask(new, 0)).groups] == [69, GROUP]


async def test_a_session_ends_no_check(asker: Talk, guarded: Broker) -> None:
    """A reader that loses its right learns that in the next answer of its fetch session."""
    allow(guarded, Op.READ)
    opened = await asker.ask(fetch_request("mine", 0, session_epoch=0), 11)
    assert opened.session_id
    guarded.access.acls.delete(guarded.access.acls.all)
    allow(guarded, Op.WRITE)
    await produce(asker, "mine", batch(b"a"))
    following = fetch_request("mine", 0, session_id=opened.session_id, session_epoch=1)
    following.topics = []
    answer = await asker.ask(following, 11)
    assert [each.error_code for each in fetched(answer)] == [TOPIC]


@pytest.mark.parametrize("version", [0, 1, 9, 13])
async def test_metadata(asker: Talk, guarded: Broker, version: int) -> None:
    """All topics are those one may describe; a name that one may not is 29, be there such a topic or not."""
    request = MetadataRequest(topics=[] if version == 0 else None)
    assert (await asker.ask(request, version)).topics == []
    allow(guarded, Op.DESCRIBE)
    assert [each.name for each in (await asker.ask(request, version)).topics] == ["mine"]
    asked = [MetadataRequestTopic(name=name) for name in ("theirs", "missing")]
    answer = await asker.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True), version)
    assert [(each.name, each.error_code) for each in answer.topics] == [("theirs", TOPIC), ("missing", TOPIC)]
    allow(guarded, Op.DESCRIBE, name="missing")
    answer = await asker.ask(MetadataRequest(topics=asked[1:], allow_auto_topic_creation=True), version)
    assert [each.error_code for each in answer.topics] == [TOPIC]
    allow(guarded, Op.CREATE, name="missing")
    answer = await asker.ask(MetadataRequest(topics=asked[1:], allow_auto_topic_creation=True), version)
    assert [each.error_code for each in answer.topics] == [0]


@pytest.mark.parametrize("names", [["victim"], ["victim", "victim-2"]])
async def test_a_topic_deleted_after_the_guard_is_not_created_again(
    asker: Talk, guarded: Broker, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    """A request for a topic is allowed; when its turn comes the topic is gone."""
    for name in names:
        allow(guarded, Op.DESCRIBE, name=name)
    monkeypatch.setattr(topics, "_may_create", lambda *_: lambda _: True)  # the guard saw them
    asked = [MetadataRequestTopic(name=name) for name in names]
    answer = await asker.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True), 9)
    assert [each.error_code for each in answer.topics] == [TOPIC] * len(names)
    assert guarded.topics.get("victim") is None
    allow(guarded, Op.CREATE, R.CLUSTER, "kafka-cluster")
    answer = await asker.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True), 9)
    assert [each.error_code for each in answer.topics] == [0] * len(names)


async def test_bits_of_authorized_operations(asker: Talk, guarded: Broker) -> None:
    """READ with the DESCRIBE that it implies; of the cluster nothing without DESCRIBE on it."""
    allow(guarded, Op.READ)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="mine")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = await asker.ask(request, 9)
    assert answer.topics[0].topic_authorized_operations == 1 << Op.READ | 1 << Op.DESCRIBE
    assert answer.cluster_authorized_operations == 0
    allow(guarded, Op.DESCRIBE, R.CLUSTER, "kafka-cluster")
    assert (await asker.ask(request, 9)).cluster_authorized_operations == 1 << Op.DESCRIBE


async def test_topics_made_and_deleted(asker: Talk, guarded: Broker) -> None:
    """CREATE on the name or the cluster; DELETE on the topic, whose name an id does not disclose."""
    assert (await asker.ask(create_request("new"), 7)).topics[0].error_code == TOPIC
    allow(guarded, Op.CREATE, name="new")
    made = (await asker.ask(create_request("new"), 7)).topics[0]
    assert (made.error_code, made.topic_config_error_code, made.configs) == (0, TOPIC, [])
    allow(guarded, Op.CREATE, R.CLUSTER, "kafka-cluster")
    allow(guarded, Op.DESCRIBE_CONFIGS, name="new2")
    made = (await asker.ask(create_request("new2"), 7)).topics[0]
    assert (made.error_code, made.topic_config_error_code, made.num_partitions) == (0, 0, 1)
    theirs = guarded.topics.get("theirs")
    assert theirs is not None
    asked = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=theirs.topic_id)])
    refused = (await asker.ask(asked, 6)).responses[0]
    assert (refused.name, refused.topic_id, refused.error_code) == (None, theirs.topic_id, TOPIC)
    old = await asker.ask(DeleteTopicsRequest(topic_names=["theirs"]), 4)
    assert (old.responses[0].name, old.responses[0].error_code) == ("theirs", TOPIC)
    allow(guarded, Op.DELETE, name="theirs")
    assert (await asker.ask(asked, 6)).responses[0].error_code == 0


async def test_groups_and_offsets(asker: Talk, guarded: Broker) -> None:
    """READ to commit, DESCRIBE to look; 30 for the group, 29 for its topics."""
    commit = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[OffsetCommitRequestPartition(committed_offset=1, committed_metadata="")],
            )
            for name in ("mine", "theirs")
        ],
    )
    fetch = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="g",
                topics=[
                    OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("mine", "theirs")
                ],
            )
        ]
    )
    refused = await asker.ask(commit, 8)
    assert [each.partitions[0].error_code for each in refused.topics] == [GROUP, GROUP]
    assert (await asker.ask(fetch, 8)).groups[0].error_code == GROUP
    found = await asker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    assert found.coordinators[0].error_code == GROUP
    allow(guarded, Op.READ, R.GROUP, "g")
    allow(guarded, Op.READ)
    answer = await asker.ask(commit, 8)
    assert {each.name: each.partitions[0].error_code for each in answer.topics} == {
        "mine": 0,
        "theirs": TOPIC,
    }
    (group,) = (await asker.ask(fetch, 8)).groups
    assert {
        each.name: (each.partitions[0].committed_offset, each.partitions[0].error_code)
        for each in group.topics
    } == {
        "mine": (1, 0),
        "theirs": (-1, TOPIC),
    }


async def test_producers(asker: Talk, guarded: Broker) -> None:
    """An id for who may write anywhere, the transactional id for who may use it; all topics or none."""
    idempotent = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    assert (await asker.ask(idempotent, 4)).error_code == CLUSTER
    allow(guarded, Op.WRITE)
    assert (await asker.ask(idempotent, 4)).error_code == 0
    transactional = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
    assert (await asker.ask(transactional, 4)).error_code == TXN
    allow(guarded, Op.WRITE, R.TRANSACTIONAL_ID, "x")
    producer = await asker.ask(transactional, 4)
    assert producer.error_code == 0
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("mine", "theirs")
        ],
    )
    codes = {
        each.name: each.results_by_partition[0].partition_error_code
        for each in (await asker.ask(request, 3)).results_by_topic_v3_and_below
    }
    assert codes == {"mine": 55, "theirs": TOPIC}
    assert (await asker.ask(AddPartitionsToTxnRequest(), 4)).error_code == CLUSTER


@pytest.mark.parametrize("wrong", [{"host": ""}, {"principal": ""}, {"principal": "anna"}], ids=str)
async def test_an_acl_without_principal_or_host_is_refused(
    asker: Talk, guarded: Broker, wrong: dict[str, str]
) -> None:
    """42 in every version, as on Kafka 4.4; the right one beside it is made."""
    allow(guarded, Op.ALTER, R.CLUSTER, "kafka-cluster")
    before = {*guarded.access.acls.all}
    for version in CreateAclsRequest.VERSIONS:
        right = AclCreation(resource_type=2, resource_name=f"x{version}", operation=3, permission_type=3)
        right.principal, right.host = "User:anna", "*"
        bad = copy(right)
        for name, text in wrong.items():
            setattr(bad, name, text)
        creations = [bad, right]
        answer = await asker.ask(CreateAclsRequest(creations=creations), version)
        assert [each.error_code for each in answer.results] == [42, 0]
    made = {*guarded.access.acls.all} - before
    assert {each.resource_name for each in made} == {"x1", "x2", "x3"}
    assert {(each.principal, each.host) for each in made} == {("User:anna", "*")}


async def test_a_page_of_topics_does_not_name_a_forbidden_one(asker: Talk, guarded: Broker) -> None:
    """As the cursor of the next page."""
    for name in ("a", "b", "zzz"):
        guarded.topics.create(name)
    for name in ("a", "mine", "zzz"):
        allow(guarded, Op.DESCRIBE, name=name)
    pages: list[list[str | None]] = []
    cursor = None
    while not pages or cursor is not None:
        request = DescribeTopicPartitionsRequest(response_partition_limit=1, cursor=cursor)
        answer = await asker.ask(request, 0)
        pages.append([each.name for each in answer.topics])
        cursor = answer.next_cursor
        assert cursor is None or cursor.topic_name not in {"b", "theirs"}
    assert pages == [["a"], ["mine"], ["zzz"]]


async def test_an_unauthorized_writer_of_markers_gets_an_answer(asker: Talk, guarded: Broker) -> None:
    """Each partition is refused."""
    topics = [WritableTxnMarkerTopic(name="mine", partition_indexes=[0, 1])]
    marker = WritableTxnMarker(producer_id=7, producer_epoch=0, transaction_result=True, topics=topics)
    answer = await asker.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    (result,) = answer.markers
    assert result.producer_id == 7
    assert [(each.partition_index, each.error_code) for each in result.topics[0].partitions] == [
        (0, CLUSTER),
        (1, CLUSTER),
    ]


async def test_refused_elements_are_in_the_answer(asker: Talk) -> None:
    """Each user and each partition stands in the answer, as in Kafka, and nothing about it."""
    users = [UserName(name="anna"), UserName(name="anna")]
    described = await asker.ask(DescribeUserScramCredentialsRequest(users=users), 0)
    results = [(each.user, each.error_code, each.error_message) for each in described.results]
    assert (described.error_code, results) == (CLUSTER, [("", CLUSTER, None)] * 2)
    assert (await asker.ask(DescribeUserScramCredentialsRequest(users=None), 0)).results == []
    topics = [ListPartitionReassignmentsTopics(name="theirs", partition_indexes=[0, 7])]
    listed = await asker.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
    (topic,) = listed.topics
    partitions = [(each.partition_index, each.replicas) for each in topic.partitions]
    assert (listed.error_code, topic.name, partitions) == (CLUSTER, "theirs", [(0, []), (7, [])])
    assert (await asker.ask(ListPartitionReassignmentsRequest(topics=None), 0)).topics == []


@pytest.mark.parametrize("name", ["theirs", "missing"])
async def test_invalid_requests_are_invalid_before_they_are_refused(
    asker: Talk, guarded: Broker, name: str
) -> None:
    """As in Kafka; that a topic is missing is not told."""
    known = guarded.topics.get("theirs")
    assert known is not None
    both = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=known.topic_id)])
    assert [each.error_code for each in (await asker.ask(both, 6)).responses] == [42]
    assert guarded.topics.get("theirs") is known
    for kind, value, code in ((2, None, 42), (2, "1", TOPIC), (4, "1", CLUSTER), (3, "1", 42), (8, "1", 42)):
        config = alter_configs.AlterableConfig(name="segment.ms", value=value)
        one = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
        (answer,) = (await asker.ask(alter_configs.AlterConfigsRequest(resources=[one]), 2)).responses
        assert (answer.error_code, bool(answer.error_message)) == (code, True), kind


@pytest.mark.parametrize(
    ("kind", "operation", "code"), [(2, 0, 42), (2, 1, TOPIC), (8, 0, 42), (8, 1, CLUSTER), (3, 1, 42)]
)
async def test_only_a_deletion_has_no_value(asker: Talk, kind: int, operation: int, code: int) -> None:
    """Any other change without a value is refused, whatever the client may do; loggers can be altered."""
    config = incremental_alter_configs.AlterableConfig(name="x", config_operation=operation, value=None)
    one = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name="1", configs=[config]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[one])
    assert [each.error_code for each in (await asker.ask(request, 1)).responses] == [code]


async def test_a_question_about_no_kind_of_resource_was_refused(asker: Talk) -> None:
    """42 beside what is refused; loggers are a kind."""
    asked = [DescribeConfigsResource(resource_type=kind, resource_name="1") for kind in (2, 3, 8)]
    answer = await asker.ask(DescribeConfigsRequest(resources=asked), 4)
    codes = {each.resource_type: each.error_code for each in answer.results}
    assert codes == {2: TOPIC, 3: 42, 8: CLUSTER}


async def test_a_sync_that_names_no_protocol_was_refused(asker: Talk) -> None:
    """23 from version 5 on, for everybody."""
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m")
    assert [(await asker.ask(request, version)).error_code for version in (4, 5)] == [GROUP, 23]
    request.protocol_type = request.protocol_name = "range"
    assert (await asker.ask(request, 5)).error_code == GROUP


async def test_acls_over_the_wire(asker: Talk, guarded: Broker) -> None:
    """ALTER on the cluster to change them, DESCRIBE to see them; what is wrong is told one by one."""
    creation = AclCreation(
        resource_type=R.TOPIC,
        resource_name="theirs",
        resource_pattern_type=4,
        principal="User:ben",
        host="*",
        operation=Op.READ,
        permission_type=3,
    )
    assert (await asker.ask(CreateAclsRequest(creations=[creation]), 3)).results[0].error_code == CLUSTER
    allow(guarded, Op.ALTER, R.CLUSTER, "kafka-cluster")
    wrong = AclCreation(
        resource_type=99, resource_name="x", principal="User:a", host="*", operation=3, permission_type=3
    )
    answer = await asker.ask(CreateAclsRequest(creations=[wrong, creation]), 2)
    assert [each.error_code for each in answer.results] == [42, 0]
    everything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    found = await asker.ask(
        DescribeAclsRequest(
            **everything, resource_name_filter="theirs", principal_filter=None, host_filter=None
        ),
        3,
    )
    (resource,) = found.resources
    assert (resource.resource_name, resource.pattern_type, resource.acls[0].principal) == (
        "theirs",
        4,
        "User:ben",
    )
    filters = [
        DeleteAclsFilter(
            **everything, resource_name_filter=None, principal_filter="User:ben", host_filter=None
        ),
        DeleteAclsFilter(
            **{**everything, "operation": 77},
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
        ),
    ]
    deleted = await asker.ask(DeleteAclsRequest(filters=filters), 3)
    assert [(each.error_code, len(each.matching_acls)) for each in deleted.filter_results] == [
        (0, 1),
        (42, 0),
    ]


async def test_many_acls_are_described_in_steps(
    asker: Talk, guarded: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 of them kept the loop for a quarter of a second."""
    allow(guarded, Op.ALTER, R.CLUSTER, "kafka-cluster")
    theirs = [
        Acl(R.TOPIC, f"t{number:04}", PatternType.LITERAL, "User:b", "*", Op.READ, Permission.ALLOW)
        for number in range(2100)
    ]
    at_once(guarded.access.acls.add(theirs))
    every = {"pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    whose = {"resource_name_filter": None, "principal_filter": "User:b", "host_filter": None}
    turns: list[int] = []
    begin = guarded.turns.begin
    monkeypatch.setattr(guarded.turns, "begin", lambda: (turns.append(1), begin()))
    found = await asker.ask(DescribeAclsRequest(resource_type_filter=1, **every, **whose), 3)
    assert [each.resource_name for each in found.resources] == [each.resource_name for each in theirs]
    assert len(turns) >= 3
    turns.clear()
    filters = [DeleteAclsFilter(resource_type_filter=kind, **every, **whose) for kind in (1, 2, 3)]
    deleted = await asker.ask(DeleteAclsRequest(filters=filters), 3)
    assert [len(each.matching_acls) for each in deleted.filter_results] == [2100, 2100, 0]
    assert len(turns) >= 5
    assert [each.resource_type for each in guarded.access.acls.all] == [R.CLUSTER]


async def test_without_an_authorizer(talk: Talk, broker: Broker) -> None:
    """54, as Kafka, and everything is allowed."""
    request = DescribeAclsRequest(
        resource_type_filter=1,
        operation=1,
        permission_type=1,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
    )
    assert (await talk.ask(request, 1)).error_code == 54
    assert (await talk.ask(CreateAclsRequest(creations=[AclCreation()]), 1)).results[0].error_code == 54
    assert broker.authorizer is None
