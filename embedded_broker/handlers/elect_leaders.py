"""ElectLeaders 0–2: elect the preferred leader, or, unclean, any replica where there is no leader; as KRaft.

A partition that needs no election is answered with 84; if the request asks for all partitions, it is left
out, though its topic is not. 80: the preferred leader is down or not in sync. 83: no replica can lead.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from splashdam.embedded_broker.controller.controller import Controller
from splashdam.embedded_broker.controller.election import IsEligible, changed
from splashdam.embedded_broker.controller.state import NOBODY, PartitionState
from splashdam.embedded_broker.execution.turns import AT_ONCE, PARTITIONS_IN_A_UNIT, Steps, in_steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_PREFERRED, _UNCLEAN = 0, 1


@handles(ElectLeadersRequest, versions=range(3))
def elect_leaders(request: ElectLeadersRequest, context: RequestContext) -> Steps[ElectLeadersResponse]:
    """Answer with a code for each partition; up to `AT_ONCE` elections share one write to disk."""
    kind = request.election_type if context.version >= 1 else _PREFERRED
    if kind not in (_PREFERRED, _UNCLEAN):
        return (yield from _refusal(request, kind))
    asked = iter(_asked(request, context.broker.controller))
    results: dict[str, list[PartitionResult]] = {}
    while some := list(islice(asked, AT_ONCE)):
        for topic_partition, result in _elect_all(some, kind, context.broker.controller):
            listed = results.setdefault(topic_partition.topic, [])
            if request.topic_partitions is not None or result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                listed.append(result)
        yield len(some) // PARTITIONS_IN_A_UNIT
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=each) for topic, each in results.items()
        ]
    )


def _asked(request: ElectLeadersRequest, controller: Controller) -> Iterable[TopicPartition]:
    if request.topic_partitions is None:
        return sorted(controller.state.partitions)
    return (
        TopicPartition(each.topic, number) for each in request.topic_partitions for number in each.partitions
    )


def _refusal(request: ElectLeadersRequest, kind: int) -> Steps[ElectLeadersResponse]:
    """Refuse an unknown type of election."""
    code, text = ErrorCode.INVALID_REQUEST, f"there is no election of type {kind}, only 0 and 1"

    def refused(number: int) -> PartitionResult:
        return PartitionResult(partition_id=number, error_code=code, error_message=text)

    answer = ElectLeadersResponse(error_code=code)
    for topic in request.topic_partitions or ():
        yield 1
        result = yield from in_steps(topic.partitions, refused)
        answer.replica_election_results.append(
            ReplicaElectionResult(topic=topic.topic, partition_result=result)
        )
    return answer


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
