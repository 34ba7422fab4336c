"""Guards of requests about the cluster and its configuration, and of requests that need no permission."""

from __future__ import annotations

from typing import Any

from splashdam.embedded_broker.authorization.refusals import CODES, REASONS, add_refused, refused, split, then
from splashdam.embedded_broker.dynamic_configs.changes import Operation as ConfigOperation
from splashdam.embedded_broker.dynamic_configs.resources import RESOURCES
from splashdam.embedded_broker.dynamic_configs.resources import ResourceType as ConfigType
from splashdam.embedded_broker.execution.answers import Answer
from splashdam.embedded_broker.execution.turns import Steps, in_steps, parted
from splashdam.embedded_broker.serving.registry import PlainHandler, RequestContext, guards
from splashdam.model.acls import CLUSTER_NAME, Operation, ResourceType
from splashdam.model.broker_errors import ErrorCode
from splashdam.wire.message import Request, Response
from splashdam.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from splashdam.wire.messages.alter_configs import AlterConfigsRequest
from splashdam.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from splashdam.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from splashdam.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from splashdam.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from splashdam.wire.messages.create_acls import CreateAclsRequest
from splashdam.wire.messages.delete_acls import DeleteAclsRequest
from splashdam.wire.messages.describe_acls import DescribeAclsRequest
from splashdam.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from splashdam.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from splashdam.wire.messages.describe_configs import DescribeConfigsRequest
from splashdam.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from splashdam.wire.messages.describe_producers import DescribeProducersRequest
from splashdam.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from splashdam.wire.messages.describe_transactions import DescribeTransactionsRequest
from splashdam.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from splashdam.wire.messages.elect_leaders import (
    ElectLeadersRequest,
)
from splashdam.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from splashdam.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from splashdam.wire.messages.list_config_resources import ListConfigResourcesRequest
from splashdam.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from splashdam.wire.messages.list_transactions import ListTransactionsRequest
from splashdam.wire.messages.push_telemetry import PushTelemetryRequest
from splashdam.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest
from splashdam.wire.registry import api_for

_CLUSTER = CODES[ResourceType.CLUSTER]
_WHOLE: dict[type[Request[Any]], Operation] = {
    AlterPartitionReassignmentsRequest: Operation.ALTER,
    ListPartitionReassignmentsRequest: Operation.DESCRIBE,
    ElectLeadersRequest: Operation.ALTER,
    DescribeLogDirsRequest: Operation.DESCRIBE,
    ListConfigResourcesRequest: Operation.DESCRIBE_CONFIGS,
}
_CONFIGS: dict[type[Request[Any]], tuple[Operation, str]] = {
    DescribeConfigsRequest: (Operation.DESCRIBE_CONFIGS, "results"),
    AlterConfigsRequest: (Operation.ALTER_CONFIGS, "responses"),
    IncrementalAlterConfigsRequest: (Operation.ALTER_CONFIGS, "responses"),
}


@guards(
    ApiVersionsRequest,
    SaslHandshakeRequest,
    SaslAuthenticateRequest,
    GetTelemetrySubscriptionsRequest,
    PushTelemetryRequest,
)
def free(request: Any, context: RequestContext, handler: PlainHandler) -> Answer:
    """No permission is needed."""
    return handler(request, context)


@guards(
    DescribeAclsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeClientQuotasRequest,
    AlterClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
    AlterUserScramCredentialsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupDescribeRequest,
)
def asks_itself(request: Any, context: RequestContext, handler: PlainHandler) -> Answer:
    """The handler authorizes itself."""
    return handler(request, context)


@guards(*_WHOLE)
def whole(request: Any, context: RequestContext, handler: PlainHandler) -> Steps[Answer]:
    """One operation on the cluster."""
    if context.authorize(_WHOLE[type(request)], ResourceType.CLUSTER):
        return handler(request, context)
    answer: Any = api_for(request.API_KEY).response()
    if not (isinstance(request, ElectLeadersRequest) and context.version == 0):
        answer.error_code = _CLUSTER
    if hasattr(answer, "error_message"):
        answer.error_message = REASONS[_CLUSTER]
    if isinstance(request, ElectLeadersRequest):
        yield from add_refused(request.topic_partitions or (), _CLUSTER, "replica_election_results")(answer)
    if isinstance(request, AlterPartitionReassignmentsRequest):
        yield from add_refused(request.topics, _CLUSTER, "responses")(answer)
    if isinstance(request, ListPartitionReassignmentsRequest):
        for topic in request.topics or ():
            answer.topics.append((yield from _none_ongoing(topic)))
            yield 1
    refusal: Response = answer
    return refusal


def _none_ongoing(asked: ListPartitionReassignmentsTopics) -> Steps[OngoingTopicReassignment]:
    """Return the asked partitions without replicas: they have no error code of their own."""
    partitions = yield from in_steps(
        asked.partition_indexes, lambda number: OngoingPartitionReassignment(partition_index=number)
    )
    return OngoingTopicReassignment(name=asked.name, partitions=partitions)


@guards(AlterReplicaLogDirsRequest)
def alter_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext, handler: PlainHandler
) -> Steps[Answer]:
    """ALTER on the cluster."""
    if context.authorize(Operation.ALTER, ResourceType.CLUSTER):
        return handler(request, context)
    answer = AlterReplicaLogDirsResponse()
    for topic in (topic for directory in request.dirs for topic in directory.topics):
        refusals = yield from refused(AlterReplicaLogDirPartitionResult, topic.partitions, _CLUSTER)
        answer.results.append(AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=refusals))
        yield 1
    return answer


@guards(*_CONFIGS)
def configs(request: Any, context: RequestContext, handler: PlainHandler) -> Steps[Answer]:
    """The operation on each topic or group, and on the cluster for what belongs to brokers.

    Illegal requests get INVALID_REQUEST (42) without any permission, as in Kafka.
    """
    operation, answered = _CONFIGS[type(request)]

    def kind_of(resource: Any) -> ResourceType:
        if resource.resource_type == ConfigType.TOPIC:
            return ResourceType.TOPIC
        return ResourceType.GROUP if resource.resource_type == ConfigType.GROUP else ResourceType.CLUSTER

    def is_allowed(resource: Any) -> bool:
        kind = kind_of(resource)
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
        return context.authorize(operation, kind, name)

    request.resources, others = split(request.resources, is_allowed)

    def change(answer: Any) -> Steps[None]:
        for resource in others:
            fault = yield from _fault(resource, request)
            code = CODES[kind_of(resource)] if fault is None else ErrorCode.INVALID_REQUEST
            yield from add_refused([resource], code, answered)(answer)
            if fault is not None:
                getattr(answer, answered)[-1].error_message = fault
            yield 1

    return (yield from then(handler(request, context), change, context))


def _fault(resource: Any, request: Any) -> Steps[str | None]:
    """Return the error message for an illegal resource, None if it is legal."""
    has_loggers = not isinstance(request, AlterConfigsRequest)
    is_logger = resource.resource_type == ConfigType.BROKER_LOGGER
    if not (resource.resource_type in RESOURCES or (is_logger and has_loggers)):
        return f"resources of type {resource.resource_type} are not known here"
    if isinstance(request, DescribeConfigsRequest):
        return None
    without, _ = yield from parted(resource.configs, _lacks_value)
    return f"{without[0].name} has no value" if without else None


def _lacks_value(config: Any) -> bool:
    if config.value is not None:
        return False
    return getattr(config, "config_operation", ConfigOperation.SET) != ConfigOperation.DELETE


@guards(DescribeQuorumRequest)
def describe_quorum(request: DescribeQuorumRequest, context: RequestContext, handler: PlainHandler) -> Answer:
    """DESCRIBE on the cluster."""
    if context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER):
        return handler(request, context)
    return DescribeQuorumResponse(error_code=_CLUSTER, error_message=REASONS[_CLUSTER])


@guards(DescribeClusterRequest)
def describe_cluster(
    request: DescribeClusterRequest, context: RequestContext, handler: PlainHandler
) -> Steps[Answer]:
    """No permission is needed; authorized operations are added with DESCRIBE on the cluster."""

    def change(answer: DescribeClusterResponse) -> Steps[None]:
        if request.include_cluster_authorized_operations:
            may_describe = context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER)
            answer.cluster_authorized_operations = (
                context.authorized_operations(ResourceType.CLUSTER) if may_describe else 0
            )
        yield 1

    return (yield from then(handler(request, context), change, context))
