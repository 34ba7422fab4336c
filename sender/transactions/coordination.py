"""Sends the requests that a ``TransactionManager`` decides on, as part of the sender's turns."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import trio

from splashdam.model.errors import KafkaConnectionError, KafkaError
from splashdam.net.connection.in_flight import PendingResponse
from splashdam.sender.broker_links import BrokerLink, BrokerLinks
from splashdam.sender.completion import Completion
from splashdam.sender.context import SenderContext
from splashdam.sender.transactions.manager import TransactionManager
from splashdam.sender.transactions.requests import CoordinatorRequest
from splashdam.wire.message import Request


class Coordination:
    """The transactional part of a sender's turns."""

    def __init__(
        self,
        context: SenderContext,
        links: BrokerLinks,
        completion: Completion,
        manager: TransactionManager,
    ) -> None:
        self._context = context
        self._links = links
        self._completion = completion
        self._manager = manager
        self._is_flushing = False
        self._close_by_ms = math.inf
        self._waiting = False

    def prepare(self, now_ms: float, *, closing: bool) -> None:
        """Apply the transaction's state to the queues before they are checked. The guard is held."""
        manager, completion = self._manager, self._completion
        if closing and not self._context.accumulator.has_incomplete:
            patience_ms = self._context.settings.delivery_timeout_ms
            self._close_by_ms = min(self._close_by_ms, now_ms + patience_ms)
            # After the last batch: `close` delivers all records, and then aborts a transaction that the
            # application has left open.
            manager.abort_unattended()
        if completion.fatal is not None:
            manager.die(completion.fatal)
        elif manager.fatal_error is not None:
            completion.fatal = manager.fatal_error
        error = manager.unsent_error
        if error is not None:
            completion.abort_unsent(error, manager.sequences.unsendable)
        # A commit waits for all batches, so linger is off meanwhile, as in a flush.
        if manager.completing != self._is_flushing:
            self._is_flushing = manager.completing
            if self._is_flushing:
                self._context.accumulator.begin_flush()
            else:
                self._context.accumulator.end_flush()

    def ask(self, nursery: trio.Nursery, now_ms: float) -> float:
        """Send the request that is due. The guard is held.

        Returns:
            milliseconds until a request is due or can be retried.
        """
        self._waiting = False
        return min(self._ask(nursery, now_ms), max(self._close_by_ms - now_ms, 0.0))

    @property
    def eager(self) -> bool:
        """Whether a response, or a link that can send again, may allow the next request."""
        return self._waiting or self._manager.completing

    def finished(self) -> bool:
        """Whether closing need not wait for the end of a transaction. Needs no guard."""
        return not self._manager.ongoing or self._context.clock.now_ms() >= self._close_by_ms

    def _ask(self, nursery: trio.Nursery, now_ms: float) -> float:
        due_ms = self._manager.due_in_ms(now_ms)
        if due_ms > 0:
            return due_ms
        batches_left = self._context.accumulator.has_incomplete or bool(self._completion.in_flight)
        request = self._manager.next_request(batches_left=batches_left)
        if request is None:
            return math.inf
        link = self._link_for(request)
        if link is None or not link.sendable:
            self._waiting = True
            if link is None:
                return self._links.want_any(self._context.metadata.cluster, nursery, now_ms)
            link.want(nursery, now_ms)
            return link.delay_ms(now_ms)
        self._submit(link, request, now_ms)
        return self._manager.due_in_ms(now_ms) or math.inf

    def _link_for(self, request: CoordinatorRequest) -> BrokerLink | None:
        if request.coordinator is None:
            return self._links.any_sendable()
        node = self._manager.coordinator(request.coordinator)
        return self._links.link_to(self._context.metadata.cluster.nodes.get(node.node_id, node))

    def _submit(self, link: BrokerLink, request: CoordinatorRequest, now_ms: float) -> None:
        level = link.feature_level("transaction.version")

        def build(version: int) -> Request[Any]:
            # Here, where the version is known; if `submit` raises before this, no request counts as sent.
            self._manager.asking(request, version, level)
            return request.build(version)

        try:
            link.submit(request.request_cls, build, partial(self._answered, request), newest=request.newest)
        except KafkaConnectionError as error:
            self._manager.unanswered(request, error, now_ms)
        except KafkaError as error:
            self._manager.impossible(request, error, now_ms)
            self._context.wakeup.wake()  # this turn has checked the failing batches already

    def _answered(self, request: CoordinatorRequest, pending: PendingResponse[Any]) -> None:
        context = self._context
        now_ms = context.clock.now_ms()
        try:
            response = pending.result()
        except KafkaError as error:
            context.guard.run(self._manager.unanswered, request, error, now_ms)
        else:
            context.guard.run(self._manager.answered, request, response, now_ms)
        self._manager.run_ended()
        context.wakeup.wake()
