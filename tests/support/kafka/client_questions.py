"""What clients ask a cluster, each in all versions: records, groups, offsets, transactions, telemetry."""

from __future__ import annotations

from typing import Any

from splashdam.model.broker_errors import ErrorCode
from splashdam.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from splashdam.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from splashdam.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from splashdam.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from splashdam.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from splashdam.wire.messages.delete_groups import DeleteGroupsRequest
from splashdam.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from splashdam.wire.messages.describe_groups import DescribeGroupsRequest
from splashdam.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from splashdam.wire.messages.describe_transactions import DescribeTransactionsRequest
from splashdam.wire.messages.end_txn import EndTxnRequest
from splashdam.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest
from splashdam.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from splashdam.wire.messages.heartbeat import HeartbeatRequest
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest
from splashdam.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from splashdam.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from splashdam.wire.messages.list_groups import ListGroupsRequest
from splashdam.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from splashdam.wire.messages.list_transactions import ListTransactionsRequest
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from splashdam.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from splashdam.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
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
from splashdam.wire.messages.push_telemetry import PushTelemetryRequest
from splashdam.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
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
from support.broker.broker_talk import batch
from support.kafka.admin_questions import MISSING_ID, Make
from support.kafka.answer_shapes import Speaker

RECORDS, COMPACTED, MISSING = "records", "compacted", "missing"
_KINDS = (RECORDS, MISSING)
_TRANSACTION = 1


def _is_led(answer: FetchResponse) -> bool:
    """A topic is there before its leader has heard of it."""
    codes = {each.error_code for topic in answer.responses for each in topic.partitions}
    return ErrorCode.NOT_LEADER_OR_FOLLOWER not in codes


def ask_about_records(speaker: Speaker) -> None:
    """Written, refused, read, looked for and removed."""
    for name, key, value in ((COMPACTED, "cleanup.policy", "compact"), (RECORDS, "retention.ms", "-1")):
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        topic.configs = [CreatableTopicConfig(name=key, value=value)]
        speaker.ask(name, CreateTopicsRequest(topics=[topic]), 7)
    ids = {name: _id_of(speaker, name) for name in (RECORDS, COMPACTED)} | {MISSING: MISSING_ID}
    speaker.each("nothing yet", _fetched(RECORDS, ids), _is_led)
    speaker.each("no producers", _producers(RECORDS))
    keyed = batch(b"v", producer_id=7_000, producer_epoch=0, base_sequence=0)
    speaker.done("records", _produced(RECORDS, ids, batch(b"v")))
    speaker.each("twice the same", _produced(RECORDS, ids, keyed))
    speaker.each("no key", _produced(COMPACTED, ids, batch(b"v")))
    speaker.each("damaged", _produced(RECORDS, ids, batch(b"v")[:-1] + b"?"))
    speaker.each("missing", _produced(MISSING, ids, batch(b"v")))
    speaker.each("no such acks", _produced(RECORDS, ids, batch(b"v"), acks=2))
    for isolation in (0, 1):
        for what, name, offset in (
            ("there", RECORDS, 0),
            ("end", RECORDS, 1 + len(ProduceRequest.VERSIONS)),
            ("beyond", RECORDS, 10_000),
            ("missing", MISSING, 0),
        ):
            speaker.each(f"{what}, isolation {isolation}", _fetched(name, ids, offset, isolation))
    for name in _KINDS:
        speaker.each(f"{name}", _producers(name))
        speaker.each(f"{name}, no partition", _producers(name, 9))
        for timestamp in (-1, -2, -3, 10**15):
            asked = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=timestamp)])
            speaker.each(
                f"{name} at {timestamp}", lambda _, of=asked: ListOffsetsRequest(replica_id=-1, topics=[of])
            )
        epoch = OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition(leader_epoch=0)])
        speaker.each(name, lambda _, of=epoch: OffsetForLeaderEpochRequest(topics=[of]))
        for end in (1, 10_000):
            gone = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(offset=end)])
            speaker.each(
                f"{name} to {end}", lambda _, of=gone: DeleteRecordsRequest(topics=[of], timeout_ms=5_000)
            )


def ask_about_groups(speaker: Speaker) -> None:
    """Classic members that come, stay and go; members of the newer protocol; nobody."""
    speaker.each("group", lambda version: _coordinator("g", version))
    speaker.each("transaction", lambda version: _coordinator("x", version, _TRANSACTION))
    speaker.each("no such key", lambda version: _coordinator("x", version, 9))
    speaker.each("no group", lambda _: DescribeGroupsRequest(groups=["g"]))
    speaker.each("no group", lambda _: ConsumerGroupDescribeRequest(group_ids=["g", ""]))
    speaker.each(
        "nobody", lambda _: JoinGroupRequest(group_id="g", session_timeout_ms=10_000, member_id="nobody")
    )
    speaker.each("no name", lambda _: JoinGroupRequest(group_id="", session_timeout_ms=10_000))
    speaker.each("nobody", lambda _: SyncGroupRequest(group_id="g", generation_id=1, member_id="nobody"))
    speaker.each("nobody", lambda _: HeartbeatRequest(group_id="g", generation_id=1, member_id="nobody"))
    speaker.each("nobody", lambda version: _left("g", "nobody", None, version))
    speaker.each("no group", lambda _: DeleteGroupsRequest(groups_names=["g", ""]))
    for static in (None, "instance"):
        _ask_as_classic_member(speaker, static)
    _ask_as_consumer(speaker)
    speaker.each("all", lambda _: ListGroupsRequest())


def _ask_as_classic_member(speaker: Speaker, static: str | None) -> None:
    kind = f"{static or 'dynamic'}"
    member = generation = None
    for version in JoinGroupRequest.VERSIONS:
        if version < 5 and static:
            continue
        group = f"{kind}{version}"
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            group_instance_id=static,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
        )
        answer = speaker.ask(f"{kind} comes", request, version)
        request.member_id = answer.member_id
        answer = speaker.ask(f"{kind} joins", request, version)
        member, generation = answer.member_id, answer.generation_id
    assigned = [SyncGroupRequestAssignment(member_id=member or "", assignment=b"a")]
    for version in SyncGroupRequest.VERSIONS:
        if version < 3 and static:
            continue
        synced = SyncGroupRequest(group_id=group, generation_id=generation or 0, member_id=member or "")
        synced.group_instance_id, synced.assignments = static, assigned
        if version >= 5:
            synced.protocol_type, synced.protocol_name = "consumer", "range"
        speaker.ask(f"{kind}", synced, version)
    other = SyncGroupRequest(group_id=group, generation_id=generation or 0, member_id=member or "")
    other.group_instance_id, other.protocol_type, other.protocol_name = static, "other", "other"
    speaker.ask(f"{kind}, other protocol", other, 5)
    speaker.each(f"{kind}", lambda _: DescribeGroupsRequest(groups=[group]))
    speaker.each(f"{kind}", lambda _: ConsumerGroupDescribeRequest(group_ids=[group]))
    speaker.each(f"{kind} is there", lambda _: DeleteGroupsRequest(groups_names=[group]))
    speaker.each(f"{kind} is not nobody", lambda version: _left(group, "nobody", static, version))
    for version in range(3, 6):
        speaker.ask(f"{kind}, first or again", _left(group, member or "", static, version), version)
    for version in DeleteGroupsRequest.VERSIONS:
        speaker.ask(f"{kind} is left", DeleteGroupsRequest(groups_names=[group]), version)


def _ask_as_consumer(speaker: Speaker) -> None:
    for instance in (None, "instance"):
        group = f"consumers {instance}"
        for version in ConsumerGroupHeartbeatRequest.VERSIONS:
            joins = ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id="" if version == 0 else "AAAAAAAAAAAAAAAAAAAAAQ",
                instance_id=None if instance is None else f"{instance}{version}",
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=["t6"],
                topic_partitions=[],
            )
            answer = speaker.ask(f"{group} joins", joins, version)
            stays = ConsumerGroupHeartbeatRequest(group_id=group, member_id=answer.member_id or "")
            stays.member_epoch, stays.instance_id = answer.member_epoch, joins.instance_id
            speaker.ask(f"{group} stays", stays, version)
            stays.member_epoch = 99
            speaker.ask(f"{group} of another epoch", stays, version)
        speaker.each(group, lambda _, of=group: ConsumerGroupDescribeRequest(group_ids=[of]))
        speaker.each(group, lambda _, of=group: DescribeGroupsRequest(groups=[of]))
    nobody = ConsumerGroupHeartbeatRequest(group_id="consumers None", member_id="nobody", member_epoch=3)
    speaker.each("nobody", lambda _: nobody)
    speaker.each("no group", lambda _: ConsumerGroupHeartbeatRequest(group_id="", member_id="x"))
    assignor = ConsumerGroupHeartbeatRequest(group_id="c", member_id="x", server_assignor="nope")
    assignor.rebalance_timeout_ms, assignor.topic_partitions = 10_000, []
    assignor.subscribed_topic_names = ["t6"]
    speaker.each("no such assignor", lambda _: assignor)
    regex = ConsumerGroupHeartbeatRequest(group_id="c", member_id="x", subscribed_topic_regex="(")
    regex.rebalance_timeout_ms, regex.topic_partitions = 10_000, []
    speaker.ask("no expression", regex, 1)


def ask_about_offsets(speaker: Speaker) -> None:
    """Offsets of a group without members: committed with and without metadata, fetched, deleted."""
    ids = {RECORDS: _id_of(speaker, RECORDS), MISSING: MISSING_ID}
    speaker.each("nothing committed", lambda version: _offsets("g", [], ids, version))
    speaker.each("nobody's, asked for", lambda version: _offsets("g", [RECORDS], ids, version))
    for words in (None, "", "words"):
        for name in _KINDS:
            speaker.each(
                f"{name} {words!r}",
                lambda version, of=name, said=words: _committed("o", of, ids, said, version),
            )
        speaker.each(f"one, {words!r}", lambda version: _offsets("o", [RECORDS], ids, version))
        speaker.each(
            f"all, {words!r}", lambda version: _offsets("o", None if version > 1 else [], ids, version)
        )
    speaker.each("missing", lambda version: _offsets("o", [MISSING], ids, version))
    for group in ("o", "nobody"):
        for name in _KINDS:
            partitions = [OffsetDeleteRequestPartition(partition_index=0)]
            topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions)]
            speaker.each(
                f"{group} {name}", lambda _, of=group, at=topics: OffsetDeleteRequest(group_id=of, topics=at)
            )


def ask_about_transactions(speaker: Speaker) -> None:
    """Transactions of a new producer and of an unknown one: ended, listed and described."""
    ids = {RECORDS: _id_of(speaker, RECORDS)}
    speaker.each(
        "no id", lambda _: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=5_000)
    )
    speaker.each("an id", lambda _: InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=5_000))
    _ask_in_a_transaction(speaker)
    speaker.each(
        "empty id", lambda _: InitProducerIdRequest(transactional_id="", transaction_timeout_ms=5_000)
    )
    speaker.each(
        "too long", lambda _: InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=10**9)
    )
    who: dict[str, Any] = {"transactional_id": "x", "producer_id": 999_999, "producer_epoch": 0}
    topics = [AddPartitionsToTxnTopic(name=RECORDS, partitions=[0])]

    def added(version: int) -> AddPartitionsToTxnRequest:
        if version >= 4:
            one = AddPartitionsToTxnTransaction(**who, topics=topics)
            return AddPartitionsToTxnRequest(transactions=[one])
        old = {f"v3_and_below_{name}": value for name, value in who.items()}
        return AddPartitionsToTxnRequest(**old, v3_and_below_topics=topics)

    speaker.each("nobody", added)
    speaker.each("nobody", lambda _: AddOffsetsToTxnRequest(**who, group_id="g"))
    speaker.each("nobody", lambda _: EndTxnRequest(**who, committed=True))
    partitions = [TxnOffsetCommitRequestPartition(committed_metadata=None)]
    offsets = [TxnOffsetCommitRequestTopic(name=RECORDS, topic_id=ids[RECORDS], partitions=partitions)]
    speaker.each("nobody", lambda _: TxnOffsetCommitRequest(**who, group_id="g", topics=offsets))
    marker = WritableTxnMarker(producer_id=999_999, producer_epoch=0, transaction_result=True)
    marker.topics = [WritableTxnMarkerTopic(name=MISSING, partition_indexes=[0])]
    speaker.each("missing", lambda _: WriteTxnMarkersRequest(markers=[marker]))
    speaker.each("ids", lambda _: DescribeTransactionsRequest(transactional_ids=["x", "nobody", ""]))
    speaker.each("all", lambda _: ListTransactionsRequest())
    speaker.each("states", lambda _: ListTransactionsRequest(state_filters=["Empty", "nope"]))


def _ask_in_a_transaction(speaker: Speaker) -> None:
    who = InitProducerIdRequest(transactional_id="open", transaction_timeout_ms=60_000)
    answer = speaker.ask("open", who, 3)
    added = AddPartitionsToTxnRequest(v3_and_below_transactional_id="open")
    added.v3_and_below_producer_id = answer.producer_id
    added.v3_and_below_producer_epoch = answer.producer_epoch
    added.v3_and_below_topics = [AddPartitionsToTxnTopic(name=RECORDS, partitions=[0])]
    speaker.ask("open", added, 3)
    speaker.each("open", lambda _: DescribeTransactionsRequest(transactional_ids=["open"]))
    speaker.each("one", lambda _: ListTransactionsRequest(state_filters=["Ongoing"]))
    ended = EndTxnRequest(transactional_id="open", producer_id=answer.producer_id)
    ended.producer_epoch = answer.producer_epoch
    speaker.ask("open", ended, 3)


def ask_about_telemetry(speaker: Speaker) -> None:
    """Telemetry of a client without a subscription."""
    speaker.each("nobody", lambda _: GetTelemetrySubscriptionsRequest())
    pushed = PushTelemetryRequest(client_instance_id=MISSING_ID, subscription_id=7)
    speaker.each("unknown", lambda _: pushed)


# --- requests -----------------------------------------------------------------------------------------------


def _id_of(speaker: Speaker, name: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    found = speaker.ask(f"id of {name}", request, 12, lambda answer: not answer.topics[0].error_code)
    return bytes(found.topics[0].topic_id)


def _produced(name: str, ids: dict[str, bytes], records: bytes, acks: int = -1) -> Make:
    one = TopicProduceData(
        name=name, topic_id=ids[name], partition_data=[PartitionProduceData(records=records)]
    )
    return lambda _: ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[one])


def _fetched(name: str, ids: dict[str, bytes], offset: int = 0, isolation: int = 0) -> Make:
    partition = FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)
    one = FetchTopic(topic=name, topic_id=ids[name], partitions=[partition])
    return lambda _: FetchRequest(topics=[one], isolation_level=isolation)


def _producers(name: str, partition: int = 0) -> Make:
    return lambda _: DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[partition])])


def _coordinator(key: str, version: int, kind: int = 0) -> FindCoordinatorRequest:
    kind = kind if version else 0
    if version < 4:
        return FindCoordinatorRequest(key=key, key_type=kind)
    return FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)


def _left(group: str, member: str, static: str | None, version: int) -> LeaveGroupRequest:
    if version < 3:
        return LeaveGroupRequest(group_id=group, member_id=member)
    return LeaveGroupRequest(
        group_id=group, members=[MemberIdentity(member_id=member, group_instance_id=static)]
    )


def _offsets(group: str, names: list[str] | None, ids: dict[str, bytes], version: int) -> OffsetFetchRequest:
    if version < 8:
        old = [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in names or []]
        return OffsetFetchRequest(group_id=group, topics=None if names is None else old)
    new = [
        OffsetFetchRequestTopics(name=name, topic_id=ids[name], partition_indexes=[0]) for name in names or []
    ]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None if names is None else new)]
    )


def _committed(
    group: str, name: str, ids: dict[str, bytes], words: str | None, version: int
) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(committed_offset=3, committed_metadata=words)
    topic = OffsetCommitRequestTopic(name=name, topic_id=ids[name], partitions=[partition])
    del version
    return OffsetCommitRequest(group_id=group, topics=[topic])
