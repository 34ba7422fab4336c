"""Carries out what a ``TransactionManager`` decides: its questions on links, and the rest of a turn."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import trio

from splashdam.model.errors import KafkaConnectionError, KafkaError
from splashdam.net.connection.in_flight import PendingResponse
from splashdam.sender.completion import Completion
from splashdam.sender.context import SenderContext
from splashdam.sender.links import BrokerLink, LinkDirectory
from splashdam.sender.transactions.manager import TransactionManager
from splashdam.sender.transactions.questions import Question
from splashdam.wire.message import Request


class Coordination:
    """The transactional part of a sender's turns."""

    def __init__(
        self,
        context: SenderContext,
        links: LinkDirectory,
        completion: Completion,
        manager: TransactionManager,
    ) -> None:
        self._context = context
        self._links = links
        self._completion = completion
        self._manager = manager
        self._hurried = False
        self._close_by_ms = math.inf
        self._waiting = False

    def prepare(self, now_ms: float, *, closing: bool) -> None:
        """What comes before the queues are looked at. The guard is held."""
        manager, completion = self._manager, self._completion
        if closing and not self._context.accumulator.has_incomplete:
            patience_ms = self._context.settings.delivery_timeout_ms
            self._close_by_ms = min(self._close_by_ms, now_ms + patience_ms)
            manager.abort_unattended()
        if completion.fatal is not None:
            manager.die(completion.fatal)
        elif manager.fatal_error is not None:
            completion.fatal = manager.fatal_error
        doom = manager.dooms
        if doom is not None:
            completion.abort_unsent(doom, manager.sequences.hopeless)
        if manager.completing != self._hurried:
            self._hurried = manager.completing
            if self._hurried:
                self._context.accumulator.begin_flush()
            else:
                self._context.accumulator.end_flush()

    def ask(self, nursery: trio.Nursery, now_ms: float) -> float:
        """Asks what is due. The guard is held.

        Returns:
            how long until something is due, or can be tried again.
        """
        self._waiting = False
        return min(self._ask(nursery, now_ms), max(self._close_by_ms - now_ms, 0.0))

    @property
    def eager(self) -> bool:
        """Whether answers, or room on a link, may let the next question go."""
        return self._waiting or self._manager.completing

    def finished(self) -> bool:
        """Whether nobody has to wait for a transaction's end any more. Needs no guard."""
        return not self._manager.ongoing or self._context.clock.now_ms() >= self._close_by_ms

    def _ask(self, nursery: trio.Nursery, now_ms: float) -> float:
        due_ms = self._manager.due_in_ms(now_ms)
        if due_ms > 0:
            return due_ms
        batches_left = self._context.accumulator.has_incomplete or bool(self._completion.in_flight)
        question = self._manager.next_question(batches_left=batches_left)
        if question is None:
            return math.inf
        link = self._link_for(question)
        if link is None or not link.sendable:
            self._waiting = True
            if link is None:
                return self._links.want_any(self._context.metadata.cluster, nursery, now_ms)
            link.want(nursery, now_ms)
            return link.delay_ms(now_ms)
        self._submit(link, question, now_ms)
        return self._manager.due_in_ms(now_ms) or math.inf

    def _link_for(self, question: Question) -> BrokerLink | None:
        if question.coordinator is None:
            return self._links.any_sendable()
        node = self._manager.coordinator(question.coordinator)
        return self._links.link_to(self._context.metadata.cluster.nodes.get(node.node_id, node))

    def _submit(self, link: BrokerLink, question: Question, now_ms: float) -> None:
        level = link.feature_level("transaction.version")

        def build(version: int) -> Request[Any]:
            self._manager.asking(question, version, level)
            return question.build(version)

        try:
            link.submit(
                question.request_cls, build, partial(self._answered, question), newest=question.newest
            )
        except KafkaConnectionError as error:
            self._manager.unanswered(question, error, now_ms)
        except KafkaError as error:
            self._manager.impossible(question, error, now_ms)
            self._context.wakeup.wake()  # this turn has looked for what fails with the transaction already

    def _answered(self, question: Question, pending: PendingResponse[Any]) -> None:
        context = self._context
        now_ms = context.clock.now_ms()
        try:
            response = pending.result()
        except KafkaError as error:
            context.guard.run(self._manager.unanswered, question, error, now_ms)
        else:
            context.guard.run(self._manager.answered, question, response, now_ms)
        self._manager.run_ended()
        context.wakeup.wake()
