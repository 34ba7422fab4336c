"""The controller as a broker sees it that is some way off: news come late, questions and answers get lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from splashdam.embedded_broker.answering.answers import Address
from splashdam.embedded_broker.controller.committing import Member
from splashdam.embedded_broker.controller.controller import Controller
from splashdam.embedded_broker.controller.state import ClusterChange, ClusterState, IsrAnswer, IsrProposal
from splashdam.model.broker_errors import NetworkExceptionError
from splashdam.model.values import TopicPartition
from splashdam.storage.files.memory import PowerCutError


class DistantController:
    """What one broker knows of the controller, and the line between them.

    Args:
        controller: the controller.
        on_news: called when the broker has heard and done something.

    Attributes:
        state: what the broker has heard.
        hears: whether news arrive; those that do not wait.
        is_asked: whether questions arrive.
        answers: whether answers do.
        is_silent: the broker's end is not noticed.
    """

    def __init__(self, controller: Controller, on_news: Callable[[], None]) -> None:
        self._controller = controller
        self._on_news = on_news
        self._member: Member | None = None
        self._untold: list[ClusterChange] = []
        self.state = ClusterState()
        self.mend()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._controller, name)

    def mend(self) -> None:
        """Everything arrives again, from now on."""
        self.hears = self.is_asked = self.answers = True
        self.is_silent = False

    def catch_up(self) -> None:
        """What has waited arrives."""
        self.hears = True
        untold, self._untold = self._untold, []
        for change in untold:
            self.tell(change)

    def tell(self, change: ClusterChange) -> None:
        """News for the broker."""
        if self._member is None:
            return
        if not self.hears:
            self._untold.append(change)
            return
        self.state.apply(change)
        with suppress(PowerCutError):  # it is about to end
            self._member.apply(change)
        self._on_news()

    # --- what the broker asks -------------------------------------------------------------------------------

    def register(self, member: Member, listeners: Mapping[str, Address], rack: str | None = None) -> int:
        """The broker has started, or was taken for down."""
        self._member, self._untold, self.state = member, [], ClusterState()
        return self._controller.register(_Told(member.node_id, self), listeners, rack)

    def leave(self, node_id: int, broker_epoch: int) -> None:
        """The broker has ended."""
        self._member = None
        if not self.is_silent:
            self._controller.leave(node_id, broker_epoch)

    def begin_shutdown(self, node_id: int, broker_epoch: int) -> bool:
        """The broker is about to end, in order."""
        return self.is_asked and self._controller.begin_shutdown(node_id, broker_epoch)

    def alter_partitions(
        self, node_id: int, broker_epoch: int, proposals: Mapping[TopicPartition, IsrProposal]
    ) -> Mapping[TopicPartition, IsrAnswer]:
        """The broker says who is in sync."""
        if not self.is_asked:
            raise NetworkExceptionError("the question was lost, on purpose")
        answers = self._controller.alter_partitions(node_id, broker_epoch, proposals)
        if not self.answers:
            raise NetworkExceptionError("the answer was lost, on purpose")
        return answers


class _Told:
    """The broker, as the controller knows it."""

    def __init__(self, node_id: int, line: DistantController) -> None:
        self.node_id = node_id
        self._line = line

    def apply(self, change: ClusterChange) -> None:
        """Something has happened."""
        self._line.tell(change)
