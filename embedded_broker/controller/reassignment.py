"""Reassignment: new replicas are added first; once all are in sync, the old ones are removed.

Pure; the rules are KRaft's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from splashdam.embedded_broker.controller.election import IsEligible, changed
from splashdam.embedded_broker.controller.state import PartitionState
from splashdam.model.broker_errors import ErrorCode, error_for


def check_replicas(replicas: Sequence[int], is_known: Callable[[int], bool]) -> None:
    """Check requested replicas.

    Raises:
        BrokerResponseError: INVALID_REPLICA_ASSIGNMENT (39): the list is empty, or names a broker twice or
            one that never registered.
    """
    if not replicas:
        problem = "it names no replica"
    elif len(set(replicas)) < len(replicas):
        problem = "it names a broker twice"
    elif unknown := [node for node in replicas if not is_known(node)]:
        problem = f"there is no broker {unknown[0]}"
    else:
        return
    raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the assignment {list(replicas)}: {problem}")


def begun(before: PartitionState, replicas: Sequence[int], is_eligible: IsEligible) -> PartitionState:
    """Return the state with a reassignment begun; already complete if all new replicas are in sync.

    It replaces a reassignment that is under way. ``replicas`` must have been checked.
    """
    original = [node for node in before.replicas if node not in before.adding_replicas]
    removing = tuple(node for node in before.replicas if node not in replicas)
    target = before._replace(
        replicas=(*replicas, *removing),
        adding_replicas=tuple(node for node in replicas if node not in original),
        removing_replicas=removing,
    )
    return advanced(before, target, before.isr, is_eligible)


def advanced(
    before: PartitionState,
    target: PartitionState,
    isr: Sequence[int],
    is_eligible: IsEligible,
    *,
    unclean: bool = False,
) -> PartitionState:
    """Return the state with a new ISR, and complete the reassignment in ``target`` if it is due."""
    staying = [node for node in isr if node not in target.removing_replicas]
    if target.is_reassigning and staying and set(target.adding_replicas) <= set(staying):
        kept = tuple(node for node in target.replicas if node not in target.removing_replicas)
        target, isr = target._replace(replicas=kept, adding_replicas=(), removing_replicas=()), staying
    return changed(before, is_eligible, isr=isr, target=target, unclean=unclean)


def cancelled(before: PartitionState, is_eligible: IsEligible) -> PartitionState:
    """Return the state with the replicas of before the reassignment.

    Raises:
        BrokerResponseError: NO_REASSIGNMENT_IN_PROGRESS (85); INVALID_REPLICA_ASSIGNMENT (39): none of the
            original replicas is in sync.
    """
    if not before.is_reassigning:
        raise error_for(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is under way")
    isr = [node for node in before.isr if node not in before.adding_replicas]
    if not isr:
        raise error_for(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "none of the replicas of before the reassignment is in sync"
        )
    kept = tuple(node for node in before.replicas if node not in before.adding_replicas)
    target = before._replace(replicas=kept, adding_replicas=(), removing_replicas=())
    return changed(before, is_eligible, isr=isr, target=target)
