"""Leader election: the state of a partition after a change of brokers or ISR. Pure; the rules are KRaft's.

The leader is the first eligible replica of the ISR, in the order of the replicas. If none is eligible, the
partition has no leader (-1) and the ISR keeps its last members; the first of them that returns leads again.
With ``unclean.leader.election.enable`` any eligible replica becomes leader at once, as an ISR of one, and
records that only the others had are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from splashdam.embedded_broker.controller.state import NOBODY, PartitionState
from splashdam.model.broker_errors import ErrorCode, error_for

IsEligible: TypeAlias = Callable[[int], bool]
"""Tells whether a broker may lead."""


def changed(
    before: PartitionState,
    is_eligible: IsEligible,
    *,
    isr: Iterable[int] | None = None,
    preferred: bool = False,
    unclean: bool = False,
    target: PartitionState | None = None,
) -> PartitionState:
    """Return the state after a change; ``before`` itself if nothing changes.

    Args:
        before: the present state.
        is_eligible: tells who may lead.
        isr: the new ISR. If no replica of it is left, the present ISR stays: it must never be empty.
        preferred: elect the preferred (first) replica if possible; otherwise the present leader stays.
        unclean: a replica outside the ISR may lead if no other can.
        target: replicas, adding and removing replicas that a reassignment asks for.
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
    """Return the state without a broker that is down or shutting down.

    It leaves the ISR unless it is the last member. ``is_eligible`` must be false for this broker.
    """
    return changed(before, is_eligible, isr=[node for node in before.isr if node != node_id], unclean=unclean)


def moved(before: PartitionState, to: int, is_eligible: IsEligible) -> PartitionState:
    """Return the state with ``to`` as leader, in the next leader epoch.

    Raises:
        BrokerResponseError: INELIGIBLE_REPLICA (107): ``to`` is down or not in sync.
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
