"""The requests that any broker can answer: Metadata, and InitProducerId for idempotence."""

from __future__ import annotations

import logging
import math
from functools import partial

import trio

from splashdam.accumulator.backoff import Backoff
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_class, error_for
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.errors import KafkaError, ProtocolError, SettingText
from splashdam.model.log_text import fields
from splashdam.net.cluster.metadata_reading import read_cluster
from splashdam.net.connection.in_flight import PendingResponse
from splashdam.sender.broker_links import BrokerLink, BrokerLinks
from splashdam.sender.completion import Completion
from splashdam.sender.context import SenderContext
from splashdam.sender.idempotence import Idempotence, Identity
from splashdam.sender.metadata import MetadataWaiter, run_waiters
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

logger = logging.getLogger("splashdam.sender")

_UNUSED_TRANSACTION_TIMEOUT_MS = 60_000


class ClusterRequests:
    """Sends each request when it is due, over any usable connection, and never two of a kind at a time.

    Attributes:
        waiting: a request is due, and no connection could send it.
    """

    def __init__(
        self,
        context: SenderContext,
        links: BrokerLinks,
        completion: Completion,
        idempotence: Idempotence | None,
    ) -> None:
        self._context = context
        self._links = links
        self._completion = completion
        self._idempotence = idempotence
        settings = context.settings
        self._id_backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, context.random)
        self._id_not_before_ms = -math.inf
        recovers = settings.metadata_recovery_strategy == "rebootstrap"
        self._rebootstrap_after_ms = (
            settings.metadata_recovery_rebootstrap_trigger_ms if recovers else math.inf
        )
        self.waiting = False

    def ask(self, nursery: trio.Nursery, now_ms: float) -> float:
        """Send the requests that are due. The guard is held.

        Returns:
            milliseconds until a request is due or can be retried.
        """
        self.waiting = False
        metadata_ms = self._metadata_due_ms(now_ms)
        if metadata_ms <= 0:
            metadata_ms = self._ask_metadata(nursery, now_ms)
        idempotence = self._idempotence
        if idempotence is None or not idempotence.wants_id:
            return metadata_ms
        id_ms = self._id_due_ms(now_ms)
        if id_ms <= 0:
            id_ms = self._ask_id(nursery, now_ms)
        return min(metadata_ms, id_ms)

    def _metadata_due_ms(self, now_ms: float) -> float:
        return self._context.metadata.due_in_ms(now_ms, needed=self._needed())

    def _needed(self) -> bool:
        """Whether batches or callers wait for a response."""
        return self._context.accumulator.has_incomplete or self._context.metadata.has_waiters

    def _ask_metadata(self, nursery: trio.Nursery, now_ms: float) -> float:
        left_ms = self._rebootstrap_after_ms - self._context.metadata.trying_for_ms(now_ms)
        if left_ms < 0:
            left_ms = self._rebootstrap_after_ms
            self._rebootstrap(f"no metadata within {left_ms:g} ms", now_ms)
        link = self._links.any_sendable()
        if link is None:
            return min(self._want_link(nursery, now_ms), left_ms)
        topics = self._context.metadata.begin(now_ms, self._context.accumulator.queued_topics())
        if self._idempotence is not None:
            # In topics that have left `topics_in_use` a broker may have forgotten us.
            self._idempotence.expect_expiry(self._context.metadata.topics_in_use)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=self._context.settings.allow_auto_create_topics,
        )
        try:
            link.submit(MetadataRequest, lambda _version: request, partial(self._learn_cluster, link))
        except KafkaError as error:
            self._no_cluster(link, error, now_ms)
            return self._metadata_due_ms(now_ms)
        return math.inf

    def _want_link(self, nursery: trio.Nursery, now_ms: float) -> float:
        self.waiting = True
        return self._links.want_any(self._context.metadata.cluster, nursery, now_ms)

    def _rebootstrap(self, why: str, now_ms: float) -> None:
        """Drop the known brokers and return to the bootstrap addresses (KIP-899)."""
        metadata = self._context.metadata
        if metadata.cluster.nodes:
            about = fields(client_id=self._context.settings.client_id)
            logger.warning("%s: rebootstrapping from bootstrap_servers", why, extra=about)
        metadata.rebootstrap(now_ms)
        self._links.forget_brokers()

    def _learn_cluster(self, link: BrokerLink, pending: PendingResponse[MetadataResponse]) -> None:
        context = self._context
        try:
            found = read_cluster(pending.result())
        except KafkaError as error:
            context.guard.run(self._refused_cluster, link, error)
        else:
            run_waiters(context.guard.run(self._found_cluster, found))
        context.wakeup.wake()

    def _refused_cluster(self, link: BrokerLink, error: KafkaError) -> None:
        now_ms = self._context.clock.now_ms()
        self._no_cluster(link, error, now_ms)
        told = isinstance(error, BrokerResponseError) and error.code == ErrorCode.REBOOTSTRAP_REQUIRED
        if told and self._rebootstrap_after_ms < math.inf:
            self._rebootstrap(f"{link.node} asks for it", now_ms)

    def _found_cluster(self, found: ClusterMetadata) -> list[MetadataWaiter]:
        metadata = self._context.metadata
        metadata.apply(found, self._context.clock.now_ms())
        waiters = metadata.take_waiters()
        self._links.update(metadata.cluster)
        return waiters

    def _no_cluster(self, link: BrokerLink, error: KafkaError, now_ms: float) -> None:
        reason = SettingText("no metadata from {node}: {error}", node=link.node, error=error)
        self._context.metadata.failed(reason, now_ms, error)

    def _id_due_ms(self, now_ms: float) -> float:
        idempotence = self._idempotence
        if idempotence is None or not idempotence.wants_id or not self._needed():
            return math.inf
        return max(0.0, self._id_not_before_ms - now_ms)

    def _ask_id(self, nursery: trio.Nursery, now_ms: float) -> float:
        link = self._links.any_sendable()
        if link is None:
            return self._want_link(nursery, now_ms)
        assert self._idempotence is not None
        self._idempotence.requested()
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_UNUSED_TRANSACTION_TIMEOUT_MS
        )
        learn = partial(self._learn_id, self._idempotence)
        try:
            link.submit(InitProducerIdRequest, lambda _version: request, learn)
        except KafkaError as error:
            self._id_refused(self._idempotence, error)
            return self._id_due_ms(now_ms)
        return math.inf

    def _learn_id(self, idempotence: Idempotence, pending: PendingResponse[InitProducerIdResponse]) -> None:
        try:
            response = pending.result()
            if response.error_code:
                raise error_for(response.error_code, _refusal(response))
            if not Identity(response.producer_id, response.producer_epoch).is_one:
                raise ProtocolError(f"InitProducerIdResponse: {response.producer_id} is no producer id")
        except KafkaError as error:
            self._context.guard.run(self._id_refused, idempotence, error)
        else:
            self._context.guard.run(idempotence.granted, response.producer_id, response.producer_epoch)
            self._id_backoff.reset()
        self._context.wakeup.wake()

    def _id_refused(self, idempotence: Idempotence, error: KafkaError) -> None:
        idempotence.refused_id()
        self._id_not_before_ms = self._context.clock.now_ms() + self._id_backoff.next_ms()
        self._completion.last_failure = error
        if isinstance(error, BrokerResponseError) and not error.retriable:
            # Without a producer id no batch can be numbered, and to ask again would not help.
            self._completion.abort_unsent(error)


def _refusal(response: InitProducerIdResponse) -> str:
    kind = error_class(response.error_code)
    return f"no producer id for idempotence: {(kind.__doc__ or '').strip()}"
