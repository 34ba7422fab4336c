"""ListPartitionReassignments 0: the partitions under reassignment, with replicas to be added and removed."""

from __future__ import annotations

from collections.abc import Iterable

from splashdam.embedded_broker.execution.turns import PARTITIONS_IN_A_UNIT, Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


@handles(ListPartitionReassignmentsRequest, versions=range(1))
def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> Steps[ListPartitionReassignmentsResponse]:
    """Answer for the partitions asked for, or all; those without a reassignment are left out."""
    partitions = context.broker.controller.state.partitions
    asked: Iterable[TopicPartition]
    if request.topics is None:
        asked = sorted(partitions)
    else:
        asked = (
            TopicPartition(each.name, number) for each in request.topics for number in each.partition_indexes
        )
    found: dict[str, list[OngoingPartitionReassignment]] = {}
    for number, topic_partition in enumerate(asked):
        if number % PARTITIONS_IN_A_UNIT == PARTITIONS_IN_A_UNIT - 1:
            yield 1
        state = partitions.get(topic_partition)
        if state is not None and state.is_reassigning:
            found.setdefault(topic_partition.topic, []).append(
                OngoingPartitionReassignment(
                    partition_index=topic_partition.partition,
                    replicas=list(state.replicas),
                    adding_replicas=list(state.adding_replicas),
                    removing_replicas=list(state.removing_replicas),
                )
            )
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[OngoingTopicReassignment(name=name, partitions=each) for name, each in found.items()],
    )
