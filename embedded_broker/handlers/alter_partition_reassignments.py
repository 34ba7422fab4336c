"""AlterPartitionReassignments 0–1: other replicas for partitions, or, with none, an end of what is under way.

It is answered when that has begun. Replicas to come are added, and once all are in sync the others go.
"""

from __future__ import annotations

from splashdam.embedded_broker.cluster.controller import Controller
from splashdam.embedded_broker.cluster.reassignment import begun, cancelled, check_replicas
from splashdam.embedded_broker.cluster.state import PartitionState
from splashdam.embedded_broker.registry import RequestContext, handles
from splashdam.model.broker_errors import error_for
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@handles(AlterPartitionReassignmentsRequest, versions=range(2))
def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """One code for each partition; all of them cost one turn of the disk."""
    may_resize = context.version < 1 or request.allow_replication_factor_change
    controller, altered = context.broker.controller, dict[TopicPartition, PartitionState]()
    answer = AlterPartitionReassignmentsResponse(
        error_message=None,
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _alter(topic.name, each, may_resize, controller, altered) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
    try:
        controller.change_partitions(altered)
    except BrokerResponseError as error:
        for topic_result in answer.responses:
            for each in topic_result.partitions:
                if TopicPartition(topic_result.name, each.partition_index) in altered:
                    each.error_code, each.error_message = error.code, error.message
    return answer


def _alter(
    topic: str,
    asked: ReassignablePartition,
    may_resize: bool,
    controller: Controller,
    altered: dict[TopicPartition, PartitionState],
) -> ReassignablePartitionResponse:
    result = ReassignablePartitionResponse(partition_index=asked.partition_index, error_message=None)
    where, state = TopicPartition(topic, asked.partition_index), controller.state
    try:
        before = altered.get(where) or controller.partition(where)
        if asked.replicas is None:
            altered[where] = cancelled(before, state.is_eligible)
        else:
            check_replicas(asked.replicas, state.brokers.__contains__)
            _check_size(before, asked.replicas, may_resize)
            altered[where] = begun(before, asked.replicas, state.is_eligible)
    except BrokerResponseError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _check_size(before: PartitionState, replicas: list[int], may_resize: bool) -> None:
    present = len(before.replicas) - len(before.adding_replicas)
    if not may_resize and len(replicas) != present:
        raise error_for(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {present}, and the request does not let it become {len(replicas)}",
        )
