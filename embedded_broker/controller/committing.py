"""One change after the other: made durable, made to count, and told to every broker in that order."""

from __future__ import annotations

import logging
from collections import deque
from typing import Protocol

from splashdam.embedded_broker.controller.journal import Keeps
from splashdam.embedded_broker.controller.state import ClusterChange, ClusterState
from splashdam.model.broker_errors import ErrorCode, KafkaStorageError, error_for

_log = logging.getLogger(__name__)


class Member(Protocol):
    """A running broker, as its controller sees it."""

    @property
    def node_id(self) -> int:
        """Its id."""
        ...

    def apply(self, change: ClusterChange) -> None:
        """Something has happened, and counts already; what asks the controller sees it.

        May call the controller, which then tells what comes of that later, in order.
        """
        ...


class Committing:
    """The part of a controller that keeps its state.

    Args:
        journal: keeps what must not be forgotten.

    Attributes:
        state: what is the case; everybody may read it.
        changes: how many there have been since it began.
        has_ended: nothing changes any more.
        is_alone: there is one broker, and what it cannot do does not happen.
    """

    is_alone = False

    def __init__(self, journal: Keeps) -> None:
        self.state = ClusterState()
        self.changes = 0
        self.has_ended = False
        self._journal = journal
        self._members: dict[int, Member] = {}
        self._untold: deque[ClusterChange] = deque()
        self._is_telling = False

    def _commit(self, change: ClusterChange) -> None:
        if not change:
            return
        if self.has_ended:
            raise error_for(ErrorCode.NOT_CONTROLLER, "the cluster is about to end")
        self._keep(change)
        self.state.apply(change)
        self.changes += 1
        self._untold.append(change)
        if not self._is_telling:
            self._tell()

    def _keep(self, change: ClusterChange) -> None:
        try:
            self._journal.keep(change, self.state)
        except KafkaStorageError as error:
            if not any(broker.is_fenced for broker in change.brokers.values()):
                raise
            _log.error("that a broker is down is not on disk: %s", error.message)  # it is down all the same

    def _tell(self) -> None:
        self._is_telling = True
        try:
            while self._untold:
                change = self._untold.popleft()
                for member in list(self._members.values()):
                    self._tell_one(member, change)
        finally:
            self._is_telling = False

    def _tell_one(self, member: Member, change: ClusterChange) -> None:
        """What goes wrong in one of several brokers keeps nothing from the others."""
        try:
            member.apply(change)
        except Exception:
            if self.is_alone:
                raise
            _log.exception("node %d could not do all that has changed", member.node_id)
