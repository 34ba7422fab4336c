"""AlterPartitionReassignments 0–1: give partitions other replicas; null replicas cancel a reassignment.

The answer comes when the reassignment has begun. New replicas are added first; once all are in sync, the old
ones are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from splashdam.embedded_broker.controller.controller import Controller
from splashdam.embedded_broker.controller.reassignment import begun, cancelled, check_replicas
from splashdam.embedded_broker.controller.state import PartitionState
from splashdam.embedded_broker.execution.turns import AT_ONCE, PARTITIONS_IN_A_UNIT, Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
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
) -> Steps[AlterPartitionReassignmentsResponse]:
    """Answer with a code for each partition; up to `AT_ONCE` changes share one write to disk."""
    may_resize = context.version < 1 or request.allow_replication_factor_change
    answer = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    for topic in request.topics:
        result = ReassignableTopicResponse(name=topic.name)
        answer.responses.append(result)
        asked = iter(topic.partitions)
        yield 1
        while some := list(islice(asked, AT_ONCE)):
            result.partitions.extend(_alter_all(topic.name, some, may_resize, context.broker.controller))
            yield len(some) // PARTITIONS_IN_A_UNIT
    return answer


def _alter_all(
    topic: str, asked: Sequence[ReassignablePartition], may_resize: bool, controller: Controller
) -> list[ReassignablePartitionResponse]:
    altered: dict[TopicPartition, PartitionState] = {}
    results = [_alter(topic, each, may_resize, controller, altered) for each in asked]
    try:
        controller.change_partitions(altered)
    except BrokerResponseError as error:
        for each in results:
            if TopicPartition(topic, each.partition_index) in altered:
                each.error_code, each.error_message = error.code, error.message
    return results


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
