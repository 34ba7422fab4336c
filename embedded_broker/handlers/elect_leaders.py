"""ElectLeaders 0–2: the preferred leader of partitions, or, unclean, any where nobody leads; as KRaft does.

A partition that needs none is 84; in a question about all partitions it is left out, and its topic is not. A
preferred leader that is down or not in sync is 80, and nobody at all who could lead 83.
"""

from __future__ import annotations

from splashdam.embedded_broker.cluster.controller import Controller
from splashdam.embedded_broker.cluster.election import IsEligible, changed
from splashdam.embedded_broker.cluster.state import NOBODY, PartitionState
from splashdam.embedded_broker.registry import RequestContext, handles
from splashdam.model.broker_errors import error_for
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_PREFERRED, _UNCLEAN = 0, 1


@handles(ElectLeadersRequest, versions=range(3))
def elect_leaders(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """One code for each partition; all elections cost one turn of the disk."""
    kind = request.election_type if context.version >= 1 else _PREFERRED
    if kind not in (_PREFERRED, _UNCLEAN):
        return _refusal(request, kind)
    if request.topic_partitions is None:
        asked = sorted(context.broker.controller.state.partitions)
    else:
        asked = [
            TopicPartition(each.topic, number)
            for each in request.topic_partitions
            for number in each.partitions
        ]
    results: dict[str, list[PartitionResult]] = {}
    for topic_partition, result in _elect_all(asked, kind, context.broker.controller):
        results.setdefault(topic_partition.topic, [])
        if request.topic_partitions is None and result.error_code == ErrorCode.ELECTION_NOT_NEEDED:
            continue
        results[topic_partition.topic].append(result)
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=each) for topic, each in results.items()
        ]
    )


def _refusal(request: ElectLeadersRequest, kind: int) -> ElectLeadersResponse:
    """Of a type of election that there is not."""
    code, text = ErrorCode.INVALID_REQUEST, f"there is no election of type {kind}, only 0 and 1"
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=number, error_code=code, error_message=text)
                    for number in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _elect_all(
    asked: list[TopicPartition], kind: int, controller: Controller
) -> list[tuple[TopicPartition, PartitionResult]]:
    results = [(each, PartitionResult(partition_id=each.partition)) for each in asked]
    elected: dict[TopicPartition, PartitionState] = {}
    for topic_partition, result in results:
        try:
            before = elected.get(topic_partition) or controller.partition(topic_partition)
            elected[topic_partition] = _elect(before, kind, controller.state.is_eligible)
        except BrokerResponseError as error:
            result.error_code, result.error_message = error.code, error.message
    try:
        controller.change_partitions(elected)
    except BrokerResponseError as error:
        for topic_partition, result in results:
            if topic_partition in elected:
                result.error_code, result.error_message = error.code, error.message
    return results


def _elect(before: PartitionState, kind: int, is_eligible: IsEligible) -> PartitionState:
    _check_needed(before, kind)
    after = changed(before, is_eligible, preferred=kind == _PREFERRED, unclean=kind == _UNCLEAN)
    _check_elected(after, kind)
    return after


def _check_needed(before: PartitionState, kind: int) -> None:
    is_right = before.leader == before.replicas[0] if kind == _PREFERRED else before.leader != NOBODY
    if is_right:
        raise error_for(ErrorCode.ELECTION_NOT_NEEDED, f"node {before.leader} leads already")


def _check_elected(after: PartitionState, kind: int) -> None:
    if kind == _PREFERRED and after.leader != after.replicas[0]:
        raise error_for(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"node {after.replicas[0]} is down or not in sync"
        )
    if after.leader == NOBODY:
        raise error_for(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is there that could lead")
