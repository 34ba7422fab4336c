"""Who leads next: a partition's state before, what has happened, its state after. Pure; rules are KRaft's.

A leader is chosen from the ISR in the order of the replicas. Where nobody of it is eligible, nobody leads
(-1), the ISR keeps its last members, and whoever of them comes back first leads again; with
``unclean.leader.election.enable`` any eligible replica does at once, as an ISR of one, and what only the
others had is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from splashdam.embedded_broker.controller.state import NOBODY, PartitionState
from splashdam.model.broker_errors import ErrorCode, error_for

IsEligible: TypeAlias = Callable[[int], bool]
"""Whether a broker may lead."""


def changed(
    before: PartitionState,
    is_eligible: IsEligible,
    *,
    isr: Iterable[int] | None = None,
    preferred: bool = False,
    unclean: bool = False,
    target: PartitionState | None = None,
) -> PartitionState:
    """The state after a change; ``before`` itself where nothing changes.

    Args:
        before: the state so far.
        is_eligible: who may lead.
        isr: the new ISR; an empty one leaves it as it is. Somebody in it, or in the present one, stays.
        preferred: the first replica is to lead, if it can; else whoever leads goes on.
        unclean: a replica that is not in sync may lead where no other can.
        target: replicas, adding and removing as a reassignment wants them.
    """
    shape = target or before
    wanted = set(before.isr if isr is None else isr)
    in_sync = tuple(node for node in shape.replicas if node in wanted)
    in_sync = in_sync or tuple(node for node in before.isr if node in shape.replicas)
    leader, in_sync = _elect(
        before.leader, shape.replicas, in_sync, is_eligible, preferred=preferred, unclean=unclean
    )
    loses_replica = not set(before.replicas) <= set(shape.replicas)
    after = before._replace(
        replicas=shape.replicas,
        isr=in_sync,
        leader=leader,
        adding_replicas=shape.adding_replicas,
        removing_replicas=shape.removing_replicas,
    )
    if after == before:
        return before
    is_new_epoch = leader != before.leader or loses_replica
    return after._replace(
        leader_epoch=before.leader_epoch + is_new_epoch, partition_epoch=before.partition_epoch + 1
    )


def _elect(
    leader: int,
    replicas: Sequence[int],
    isr: tuple[int, ...],
    is_eligible: IsEligible,
    *,
    preferred: bool,
    unclean: bool,
) -> tuple[int, tuple[int, ...]]:
    candidates = [node for node in replicas if node in isr and is_eligible(node)]
    if preferred and candidates and candidates[0] == replicas[0]:
        return replicas[0], isr
    if leader in candidates:
        return leader, isr
    if candidates:
        return candidates[0], isr
    last_resort = [node for node in replicas if unclean and is_eligible(node)]
    if last_resort:
        return last_resort[0], (last_resort[0],)
    return NOBODY, isr


def without_broker(
    before: PartitionState, node_id: int, is_eligible: IsEligible, *, unclean: bool
) -> PartitionState:
    """After a broker was lost, or is about to end: it leaves the ISR unless it is the last in it.

    ``is_eligible`` says of it that it is not.
    """
    return changed(before, is_eligible, isr=[node for node in before.isr if node != node_id], unclean=unclean)


def moved(before: PartitionState, to: int, is_eligible: IsEligible) -> PartitionState:
    """Another leader because somebody wants it, in the next epoch.

    Raises:
        BrokerResponseError: INELIGIBLE_REPLICA (107): it is down, or not in sync.
    """
    if to not in before.isr or not is_eligible(to):
        able = [node for node in before.isr if is_eligible(node)]
        text = f"node {to} cannot lead: alive and in sync are {able}; {_remedy(before, to, is_eligible)}"
        raise error_for(ErrorCode.INELIGIBLE_REPLICA, text)
    if to == before.leader:
        return before
    return before._replace(
        leader=to, leader_epoch=before.leader_epoch + 1, partition_epoch=before.partition_epoch + 1
    )


def _remedy(before: PartitionState, node: int, is_eligible: IsEligible) -> str:
    if node not in before.replicas:
        return f"its replicas are {list(before.replicas)}"
    if is_eligible(node):
        return "wait until it is in sync"
    return f"start broker {node}, and wait until it is in sync"
