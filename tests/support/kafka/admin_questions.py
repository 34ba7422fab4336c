"""What administrators ask a cluster, each in all versions: topics, configurations, ACLs, quotas, users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from splashdam.wire.message import Request
from splashdam.wire.messages import alter_client_quotas as alter_quotas
from splashdam.wire.messages import alter_configs, describe_client_quotas, incremental_alter_configs
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
    ScramCredentialUpsertion,
)
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.create_acls import AclCreation, CreateAclsRequest
from splashdam.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from splashdam.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from splashdam.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from splashdam.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from splashdam.wire.messages.describe_acls import DescribeAclsRequest
from splashdam.wire.messages.describe_cluster import DescribeClusterRequest
from splashdam.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from splashdam.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from splashdam.wire.messages.describe_quorum import AskedPartition, AskedTopic, DescribeQuorumRequest
from splashdam.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from splashdam.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from splashdam.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from splashdam.wire.messages.list_config_resources import ListConfigResourcesRequest
from splashdam.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from splashdam.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.kafka.answer_shapes import Speaker

Make: TypeAlias = Callable[[int], Request[Any]]

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
MISSING_ID = bytes(15) + b"\x07"
_PER_USER = ("user", "client-id", "ip")


def ask_about_topics(speaker: Speaker) -> None:
    """Made, made again, not made, grown, found, moved, removed; ``t2`` to ``t7`` are there after that."""
    speaker.done("new", new("t"))
    speaker.done("new, with configurations", new("s", configs={"retention.ms": "1000", "segment.ms": "7000"}))
    speaker.each("there", new("t"))
    speaker.each("too many replicas", new("u", 9))
    speaker.each("illegal name", new("a b"))
    speaker.each("unknown configuration", new("v", configs={"nope": "1"}))
    speaker.each("illegal configuration", new("v", configs={"retention.ms": "x"}))
    speaker.each("null configuration", new("v", configs={"retention.ms": None}))
    for what, name in (("there", "t7"), ("missing", "missing"), ("illegal name", "a b")):
        speaker.each(what, metadata(name))
        speaker.each(
            what, lambda _, name=name: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])
        )
    speaker.each("missing id", lambda version: by_id(MISSING_ID, version))
    speaker.each("limited", lambda _: DescribeTopicPartitionsRequest(response_partition_limit=1))
    cursor = Cursor(topic_name="t3", partition_index=0)
    speaker.each("cursor", lambda _: DescribeTopicPartitionsRequest(cursor=cursor))
    cursor = Cursor(topic_name="t3", partition_index=-1)
    speaker.each("illegal cursor", lambda _: DescribeTopicPartitionsRequest(cursor=cursor))
    speaker.done("more", lambda version: grown(f"t{version + 2}", 2))
    speaker.each("fewer", lambda _: grown("t7", 0))
    speaker.each("as many", lambda _: grown("t7", 1))
    speaker.each("missing", lambda _: grown("missing", 2))
    _ask_about_replicas(speaker)
    for version in DeleteTopicsRequest.VERSIONS:
        request = CreateTopicsRequest(topics=[CreatableTopic(name=f"d{version}", num_partitions=1)])
        request.topics[0].replication_factor = 1
        speaker.ask(f"to delete {version}", request, 7)
    speaker.done("there", lambda version: deleted(f"d{version}", version))
    speaker.each("missing", lambda version: deleted("missing", version))
    speaker.each("illegal name", lambda version: deleted("a b", version))
    by_missing_id = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=MISSING_ID)], timeout_ms=5_000)
    speaker.ask("missing id", by_missing_id, 6)
    by_both = [DeleteTopicState(name="t7", topic_id=MISSING_ID)]
    speaker.ask("id and name", DeleteTopicsRequest(topics=by_both, timeout_ms=5_000), 6)


def _ask_about_replicas(speaker: Speaker) -> None:
    speaker.each("all", lambda _: ElectLeadersRequest(topic_partitions=[], timeout_ms=5_000))
    for what, name in (("there", "t7"), ("missing", "missing")):
        chosen = [TopicPartitions(topic=name, partitions=[0])]
        speaker.each(what, lambda _, of=chosen: ElectLeadersRequest(topic_partitions=of, timeout_ms=5_000))
        for replicas in (None, [1], [9], []):
            moved = [ReassignableTopic(name=name, partitions=[ReassignablePartition(replicas=replicas)])]
            speaker.each(
                f"{what}, to {replicas}", lambda _, of=moved: AlterPartitionReassignmentsRequest(topics=of)
            )
        listed = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0])]
        speaker.each(what, lambda _, of=listed: ListPartitionReassignmentsRequest(topics=of))
        directory = [AlterReplicaLogDirTopic(name=name, partitions=[0])]
        path = [AlterReplicaLogDir(path="/nowhere", topics=directory)]
        speaker.each(what, lambda _, of=path: AlterReplicaLogDirsRequest(dirs=of))
        logs = [DescribableLogDirTopic(topic=name, partitions=[0])]
        speaker.each(what, lambda _, of=logs: DescribeLogDirsRequest(topics=of))
    speaker.each("none", lambda _: ListPartitionReassignmentsRequest(topics=None))


def ask_about_the_cluster(speaker: Speaker) -> None:
    """Asks for the brokers and for the versions of APIs."""
    speaker.each("brokers", lambda _: DescribeClusterRequest())
    speaker.each("controllers", lambda version: DescribeClusterRequest(endpoint_type=2 if version else 1))
    speaker.each("nothing", lambda _: DescribeQuorumRequest())
    for name in ("__cluster_metadata", "t7"):
        topics = [AskedTopic(topic_name=name, partitions=[AskedPartition(partition_index=0)])]
        speaker.each(name, lambda _, of=topics: DescribeQuorumRequest(topics=of))
    speaker.each("no name", lambda _: ApiVersionsRequest())
    named = ApiVersionsRequest(client_software_name="name", client_software_version="1")
    speaker.each("name", lambda _: named)


def ask_about_configurations(speaker: Speaker) -> None:
    """Configurations of topics, brokers, loggers, metrics and groups: described, replaced, altered."""
    for kind, name, key in (
        (TOPIC, "t7", "retention.ms"),
        (TOPIC, "t7", "nope"),
        (TOPIC, "missing", "retention.ms"),
        (TOPIC, "a b", "retention.ms"),
        (TOPIC, "", "retention.ms"),
        (BROKER, "1", "log.retention.ms"),
        (BROKER, "1", "log.retention.hours"),
        (BROKER, "1", "ssl.keystore.password"),
        (BROKER, "1", "ssl.keystore.location"),
        (BROKER, "1", "super.users"),
        (BROKER, "1", "authorizer.class.name"),
        (BROKER, "1", "broker.rack"),
        (BROKER, "1", "node.id"),
        (BROKER, "", "log.retention.ms"),
        (BROKER, "9", "log.retention.ms"),
        (BROKER, "x", "log.retention.ms"),
        (LOGGER, "9", "x"),
        (METRICS, "m", "interval.ms"),
        (METRICS, "", "interval.ms"),
        (GROUP, "g", "consumer.session.timeout.ms"),
        (GROUP, "", "consumer.session.timeout.ms"),
        (3, "x", "a"),
    ):
        speaker.each(f"{kind} {name}: {key}", described(kind, name, [key]))
    speaker.each("all of a topic", described(TOPIC, "t7", None))
    speaker.each("nothing of a topic", described(TOPIC, "t7", []))
    speaker.each("all kinds", lambda _: ListConfigResourcesRequest())
    for kind, name, key, value in (
        (TOPIC, "t7", "segment.ms", "7000"),
        (TOPIC, "t7", "segment.ms", "x"),
        (TOPIC, "t7", "segment.ms", None),
        (TOPIC, "t7", "nope", "1"),
        (TOPIC, "missing", "segment.ms", "7000"),
        (TOPIC, "", "segment.ms", "7000"),
        (BROKER, "1", "log.retention.ms", "9000"),
        (BROKER, "1", "node.id", "3"),
        (BROKER, "9", "log.retention.ms", "9000"),
        (BROKER, "x", "log.retention.ms", "9000"),
        (METRICS, "m", "interval.ms", "10"),
        (METRICS, "m", "interval.ms", "1000"),
        (METRICS, "m", "nope", "1"),
        (GROUP, "g", "consumer.session.timeout.ms", "50000"),
        (GROUP, "g", "consumer.session.timeout.ms", "x"),
        (LOGGER, "1", "nope", "INFO"),
        (3, "x", "a", "1"),
    ):
        speaker.each(f"{kind} {name}: {key}={value}", changed(kind, name, key, value))
        speaker.each(f"{kind} {name}: {key}={value}", replaced(kind, name, key, value))
    speaker.each("append to what is no list", changed(TOPIC, "t7", "segment.ms", "1", operation=2))
    speaker.each("delete", changed(TOPIC, "t7", "segment.ms", None, operation=1))
    speaker.each("no operation", changed(TOPIC, "t7", "segment.ms", "1", operation=9))
    metrics = [METRICS]
    speaker.each("kinds", lambda of: ListConfigResourcesRequest(resource_types=metrics if of else []))
    speaker.each("unknown kind", lambda of: ListConfigResourcesRequest(resource_types=[99] if of else []))


def ask_about_acls(speaker: Speaker) -> None:
    """Made, listed and removed; where nothing is authorized they are refused."""
    speaker.each("none", acls(name="orders"))
    speaker.each("new", acl())
    for what, fields in (
        ("no resource", {"resource_type": 1}),
        ("unknown resource", {"resource_type": 99}),
        ("no name", {"resource_name": ""}),
        ("no kind of principal", {"principal": "anna"}),
        ("no principal", {"principal": ""}),
        ("no host", {"host": ""}),
        ("any operation", {"operation": 1}),
        ("any permission", {"permission_type": 1}),
        ("any pattern", {"resource_pattern_type": 1}),
        ("match", {"resource_pattern_type": 2}),
        ("operation of another resource", {"operation": 13}),
        ("cluster of another name", {"resource_type": 4}),
    ):
        speaker.each(what, acl(**fields))
    speaker.each("one", acls(name="orders"), lambda answer: answer.resources or answer.error_code)
    speaker.each("all", acls(), lambda answer: answer.resources or answer.error_code)
    speaker.each("unknown resource", acls(kind=99))
    speaker.each("empty name", acls(name=""))
    speaker.each("none", no_acls(name="nothing"))
    speaker.each("unknown resource", no_acls(kind=99))
    for version in DeleteAclsRequest.VERSIONS:
        speaker.ask(f"to delete {version}", acl()(3), 3)
        speaker.ask("one", no_acls(name="orders")(version), version, _any_matched)


def _any_matched(answer: Any) -> bool:
    return any(each.matching_acls or each.error_code for each in answer.filter_results)


def ask_about_quotas(speaker: Speaker) -> None:
    """Quotas of users, clients and addresses, by name and by default."""
    speaker.each("none", quotas("user", "anna"))
    for name in ("anna", None):
        speaker.each(f"user {name}", quota("user", name))
        speaker.each(f"user {name}", quotas("user", name), lambda answer: answer.entries or answer.error_code)
        speaker.each(f"user {name} no more", quota("user", name, remove=True))
    for kind in _PER_USER:
        speaker.each(f"{kind}, unknown key", quota(kind, "x", key="nope"))
        speaker.each(f"{kind}, negative", quota(kind, "x", value=-1.0))
        speaker.each(f"{kind}, empty name", quota(kind, ""))
    speaker.each("ip that is none", quota("ip", "x", key="connection_creation_rate"))
    speaker.each("unknown entity", quota("nope", "x"))
    speaker.each("unknown entity", quotas("nope", "x"))
    speaker.each("no kind", quotas("", "x"))
    speaker.each("unknown match", quotas("user", "x", match_type=9))
    speaker.each("match without a name", quotas("user", None, match_type=0))
    everything = alter_quotas.EntryData(entity=[], ops=[])
    speaker.each("no entity", lambda _: alter_quotas.AlterClientQuotasRequest(entries=[everything]))
    twice = [describe_client_quotas.ComponentData(entity_type="user", match_type=2)] * 2
    speaker.each("twice", lambda _: describe_client_quotas.DescribeClientQuotasRequest(components=twice))


def ask_about_users(speaker: Speaker) -> None:
    """Their SCRAM credentials; Kafka 4.4.0 never answers who may not and asks for all by null."""
    everybody: list[UserName] | None = None if speaker.waits else []
    speaker.each("none yet", lambda _: DescribeUserScramCredentialsRequest(users=everybody))
    speaker.each("nobody", _users("nobody"))
    speaker.each("nobody", lambda _: AlterUserScramCredentialsRequest(deletions=[_deletion("nobody")]))
    for what, fields in (
        ("few iterations", {"iterations": 1}),
        ("many iterations", {"iterations": 1_000_000}),
        ("no user", {"name": ""}),
        ("unknown mechanism", {"mechanism": 9}),
        ("no mechanism", {"mechanism": 0}),
    ):
        speaker.each(what, _scram(**fields))
    twice = [_upsertion(), _upsertion()]
    speaker.each("twice", lambda _: AlterUserScramCredentialsRequest(upsertions=twice))
    mechanism = [ScramCredentialDeletion(name="anna", mechanism=9)]
    speaker.each(
        "unknown mechanism to delete", lambda _: AlterUserScramCredentialsRequest(deletions=mechanism)
    )
    speaker.done("new", _scram())
    speaker.done("one", _users("anna"))
    speaker.each("twice", _users("anna", "anna"))
    speaker.each("no name", _users(""))
    speaker.each("all", lambda _: DescribeUserScramCredentialsRequest(users=everybody))
    speaker.each("none", lambda _: DescribeUserScramCredentialsRequest(users=[]))
    speaker.done("gone", lambda _: AlterUserScramCredentialsRequest(deletions=[_deletion("anna")]))


def ask_who_i_am(speaker: Speaker, login: bytes) -> None:
    """SASL on connections of their own: an unknown mechanism, a wrong password, the right one."""
    for version in SaslHandshakeRequest.VERSIONS:
        with speaker.another() as talk:
            speaker.ask("unknown mechanism", SaslHandshakeRequest(mechanism="NOPE"), version, talk=talk)
    for version in SaslAuthenticateRequest.VERSIONS:
        for what, said in (
            ("wrong", login + b"?"),
            ("no PLAIN", b"x"),
            ("no user", b"\0\0x"),
            ("right", login),
        ):
            with speaker.another() as talk:
                speaker.ask(f"before {what}", SaslHandshakeRequest(mechanism="PLAIN"), 1, talk=talk)
                speaker.ask(what, SaslAuthenticateRequest(auth_bytes=said), version, talk=talk)


# --- requests -----------------------------------------------------------------------------------------------


def new(name: str, factor: int = 1, configs: Mapping[str, str | None] | None = None) -> Make:
    """Creates a topic of each version's own."""
    given = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]

    def make(version: int) -> CreateTopicsRequest:
        topic = CreatableTopic(
            name=f"{name}{version}", num_partitions=1, replication_factor=factor, configs=given
        )
        return CreateTopicsRequest(topics=[topic])

    return make


def metadata(name: str) -> Make:
    """Asks for a topic's metadata by its name, without creating it."""

    def make(version: int) -> MetadataRequest:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        request.allow_auto_topic_creation = version < 4
        request.include_topic_authorized_operations = version >= 8
        return request

    return make


def by_id(topic_id: bytes, version: int) -> MetadataRequest:
    """Asks for a topic's metadata by its id, if the version has ids; for no topic otherwise."""
    topics = [MetadataRequestTopic(name=None, topic_id=topic_id)] if version >= 12 else []
    return MetadataRequest(topics=topics, allow_auto_topic_creation=version < 4)


def grown(name: str, count: int) -> CreatePartitionsRequest:
    """A topic with that many partitions."""
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=5_000)


def deleted(name: str, version: int) -> DeleteTopicsRequest:
    """A topic gone, by its name."""
    if version < 6:
        return DeleteTopicsRequest(topic_names=[name], timeout_ms=5_000)
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5_000)


def described(kind: int, name: str, keys: list[str] | None) -> Make:
    """Configurations with all that can be said of them."""
    one = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return lambda version: DescribeConfigsRequest(
        resources=[one], include_synonyms=True, include_documentation=version >= 3
    )


def changed(kind: int, name: str, key: str, value: str | None, operation: int = 0) -> Make:
    """One configuration changed."""
    config = incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
    one = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    return lambda _: incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[one])


def replaced(kind: int, name: str, key: str, value: str | None) -> Make:
    """All configurations replaced by one."""
    config = alter_configs.AlterableConfig(name=key, value=value)
    one = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    return lambda _: alter_configs.AlterConfigsRequest(resources=[one])


def acl(**fields: Any) -> Make:
    """One ACL, right but for the fields given."""
    usual: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "orders",
        "principal": "User:berta",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return lambda _: CreateAclsRequest(creations=[AclCreation(**{**usual, **fields})])


def acls(kind: int = 1, name: str | None = None) -> Make:
    """All ACLs of a kind of resources and a name."""
    return lambda _: DescribeAclsRequest(
        resource_type_filter=kind,
        resource_name_filter=name,
        principal_filter=None,
        host_filter=None,
        pattern_type_filter=1,
        operation=1,
        permission_type=1,
    )


def no_acls(kind: int = 1, name: str | None = None) -> Make:
    """The same ones gone."""
    one = DeleteAclsFilter(
        resource_type_filter=kind,
        resource_name_filter=name,
        principal_filter=None,
        host_filter=None,
        pattern_type_filter=1,
        operation=1,
        permission_type=1,
    )
    return lambda _: DeleteAclsRequest(filters=[one])


def quota(
    kind: str, name: str | None, *, key: str = "producer_byte_rate", value: float = 1e6, remove: bool = False
) -> Make:
    """One quota of one entity."""
    entry = alter_quotas.EntryData(
        entity=[alter_quotas.EntityData(entity_type=kind, entity_name=name)],
        ops=[alter_quotas.OpData(key=key, value=value, remove=remove)],
    )
    return lambda _: alter_quotas.AlterClientQuotasRequest(entries=[entry])


def quotas(kind: str, name: str | None, match_type: int | None = None) -> Make:
    """The quotas of one entity, or of the default for all."""
    component = describe_client_quotas.ComponentData(
        entity_type=kind,
        match_type=(1 if name is None else 0) if match_type is None else match_type,
        match=name,
    )
    return lambda _: describe_client_quotas.DescribeClientQuotasRequest(components=[component])


def _upsertion(**fields: Any) -> ScramCredentialUpsertion:
    usual = {
        "name": "anna",
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"s" * 8,
        "salted_password": b"p" * 32,
    }
    return ScramCredentialUpsertion(**{**usual, **fields})


def _scram(**fields: Any) -> Make:
    return lambda _: AlterUserScramCredentialsRequest(upsertions=[_upsertion(**fields)])


def _deletion(name: str) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=1)


def _users(*names: str) -> Make:
    return lambda _: DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
