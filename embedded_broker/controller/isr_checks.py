"""What a leader must get right when it says who is in sync; the order of the checks is KRaft's."""

from __future__ import annotations

from collections.abc import Sequence

from splashdam.embedded_broker.controller.election import IsEligible
from splashdam.embedded_broker.controller.state import PartitionState
from splashdam.model.broker_errors import FencedLeaderEpochError, InvalidRequestError, error_for
from splashdam.model.error_codes import ErrorCode


def check_epochs(before: PartitionState, node_id: int, leader_epoch: int, partition_epoch: int) -> None:
    """Whether a broker leads a partition, and goes by its present state.

    Raises:
        BrokerResponseError: NOT_CONTROLLER (41): epochs of the future; FENCED_LEADER_EPOCH (74);
            INVALID_REQUEST (42): it does not lead; INVALID_UPDATE_VERSION (95): it goes by an older state.
    """
    if leader_epoch > before.leader_epoch or partition_epoch > before.partition_epoch:
        raise error_for(ErrorCode.NOT_CONTROLLER, "the epochs are ahead of the controller's")
    if leader_epoch < before.leader_epoch:
        raise FencedLeaderEpochError(f"the leader epoch is {before.leader_epoch}, not {leader_epoch}")
    if node_id != before.leader:
        raise InvalidRequestError(f"node {before.leader} leads, not {node_id}")
    if partition_epoch < before.partition_epoch:
        raise error_for(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"the partition epoch is {before.partition_epoch}, not {partition_epoch}",
        )


def check_isr(before: PartitionState, new_isr: Sequence[int], is_eligible: IsEligible) -> None:
    """Whether a partition may have this ISR.

    Raises:
        BrokerResponseError: INVALID_REQUEST (42): it is none, or is without the leader; INELIGIBLE_REPLICA
            (107): somebody who would join is down, or about to end.
    """
    is_legal = len(set(new_isr)) == len(new_isr) and set(new_isr) <= set(before.replicas)
    if not is_legal or before.leader not in new_isr:
        raise InvalidRequestError(f"{list(new_isr)} is no ISR of replicas {list(before.replicas)}")
    for node in new_isr:
        if node not in before.isr and not is_eligible(node):
            raise error_for(ErrorCode.INELIGIBLE_REPLICA, f"node {node} is down or about to end")
