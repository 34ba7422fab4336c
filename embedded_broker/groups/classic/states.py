"""The life of a classic group as a table; states are Kafka's ``ClassicGroupState``."""

from __future__ import annotations

from collections.abc import Mapping

from splashdam.model.lifecycle import Stage


class GroupState(Stage):
    """Where a group is; the value is Kafka's name for it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"  # members join
    COMPLETING_REBALANCE = "CompletingRebalance"  # the leader assigns
    STABLE = "Stable"
    DEAD = "Dead"  # another broker has it, or it was deleted


class GroupEvent(Stage):
    """What happens to a group."""

    REBALANCE = "prepare a rebalance"
    JOIN = "begin a generation"
    EMPTY = "begin a generation without members"
    ASSIGN = "take its assignment"
    END = "end"


_S, _E = GroupState, GroupEvent

TRANSITIONS: Mapping[tuple[GroupState, GroupEvent], GroupState] = {
    **{
        (state, _E.REBALANCE): _S.PREPARING_REBALANCE
        for state in (_S.EMPTY, _S.COMPLETING_REBALANCE, _S.STABLE)
    },
    (_S.PREPARING_REBALANCE, _E.JOIN): _S.COMPLETING_REBALANCE,
    (_S.PREPARING_REBALANCE, _E.EMPTY): _S.EMPTY,
    (_S.COMPLETING_REBALANCE, _E.ASSIGN): _S.STABLE,
    **{(state, _E.END): _S.DEAD for state in GroupState},
}
"""(state, event) → next state; what is missing is illegal."""
