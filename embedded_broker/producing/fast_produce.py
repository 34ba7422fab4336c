"""The fast path of Produce requests: nothing is decoded, and the answer takes one ``pack``.

Most requests differ from an earlier one only in client, correlation id and batch. They are recognized by
their bytes (``wire.produce_template``), whichever client sent the first one, and go straight to the log.
Others, and those whose answer has to wait, are decoded and handled as usual.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from splashdam.embedded_broker.producing.appending import (
    ATTRIBUTES_LOW_BYTE,
    BatchValidation,
    TakesBatches,
    append_batch,
    check_attributes,
    is_appended_as_sent,
    refuse,
)
from splashdam.embedded_broker.transactions.verification import Enrols, enrol
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.options import MAX_LONG
from splashdam.record.batch import TRANSACTIONAL_BIT
from splashdam.record.compression import OverLimitError
from splashdam.storage.topic_names import INTERNAL_TOPICS
from splashdam.wire.fields import Part
from splashdam.wire.header import encode_response
from splashdam.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from splashdam.wire.primitives import IllegalBytes
from splashdam.wire.produce_template import (
    REQUEST_START,
    TEMPLATE_AT,
    ProduceTemplate,
    template_of,
    template_size,
)

if TYPE_CHECKING:
    from splashdam.embedded_broker.execution.turns import Turns
    from splashdam.embedded_broker.security.authorizer import StandardAuthorizer
    from splashdam.storage.log import AppendResult, Log
    from splashdam.wire.message import Request

_MAX_TEMPLATES = 8192
"""Templates kept for one version; about a kilobyte each."""

_NONE: dict[bytes, ProduceTemplate] = {}
"""Of a version of which no request was learned yet."""
_LEARNED_WHEN_FULL = 8
_MAX_FAILURES = 64
"""Requests that fit no template (several partitions each) after which a client's requests are not learned."""


class ProduceTemplates:
    """The templates of all clients' requests, by version and bytes.

    Learning a template costs more than answering a request. So once there is no room, only every eighth
    unknown request is learned, in place of the oldest template: most of the known ones stay useful.

    Attributes:
        by_version: the templates of each version, by their keys.
    """

    def __init__(self) -> None:
        self.by_version: dict[int, dict[bytes, ProduceTemplate]] = {}
        self._passed = 0

    def wants(self, version: int) -> bool:
        """Whether to learn the template of an unknown request."""
        if len(self.by_version.get(version, _NONE)) < _MAX_TEMPLATES:
            return True
        self._passed += 1
        return self._passed % _LEARNED_WHEN_FULL == 0

    def add(self, template: ProduceTemplate) -> None:
        templates = self.by_version.setdefault(template.version, {})
        if len(templates) >= _MAX_TEMPLATES:
            del templates[next(iter(templates))]
        templates[template.key] = template


class TakesFastProduce(TakesBatches, Enrols, Protocol):
    """What the fast path needs of the broker; the attributes are those of `Broker`."""

    turns: Turns
    authorizer: StandardAuthorizer | None


class FastProduce:
    """One client's produce requests.

    Args:
        broker: the broker that the client is connected to.
        templates: the templates of all its clients.
        refused: called with each answer that holds an error.

    Attributes:
        is_heavy: the batch of the last request turned out to be too much for a turn.
    """

    def __init__(
        self,
        broker: TakesFastProduce,
        templates: ProduceTemplates,
        refused: Callable[[ProduceResponse], None],
    ) -> None:
        self.is_heavy = False
        self._refused = refused
        self._broker = broker
        self._templates = templates
        self._size = 0  # of the template met last
        self._is_on = False
        self._failures_left = _MAX_FAILURES
        self._is_known = False  # whether the frame looked at last has one of the templates
        self.resume()

    def stop(self) -> None:
        """Leave every request to its handler: the fast path does not measure for quotas."""
        self._is_on = False

    def resume(self) -> None:
        """Use the fast path again, unless there are ACLs: it does not authorize."""
        self._is_on = self._broker.authorizer is None

    def answer(self, frame: memoryview) -> list[Part] | None:
        """Append the batch of a request with a known template; return the answer's frame, else None."""
        self._is_known = self.is_heavy = False
        if len(frame) <= TEMPLATE_AT or not self._is_on:
            return None
        api_key, version, correlation_id, client_id_size = REQUEST_START.unpack_from(frame)
        if api_key != ProduceRequest.API_KEY:
            return None
        start = TEMPLATE_AT + client_id_size if client_id_size > 0 else TEMPLATE_AT
        templates = self._templates.by_version.get(version, _NONE)
        template = templates.get(bytes(frame[start : start + self._size])) or self._of_other_size(
            templates, frame, version, start
        )
        if template is None:
            return None
        self._is_known = True
        batch = template.records_of(frame, start + self._size)
        log = self._broker.logs.logs.get(template.topic_partition)
        if (
            batch is None
            or log is None
            or log.replication is not None
            or template.topic_id not in (None, log.topic_id)  # the topic was deleted and created again
            or log.settings.flush_messages != MAX_LONG
        ):
            return None
        try:
            appended = self._append(log, batch, version)
        except BrokerResponseError as error:
            response = _refusal(template, error, self._broker)
            self._refused(response)
            return encode_response(response, version=template.version, correlation_id=correlation_id)
        return None if appended is None else [_answer(template, appended, correlation_id)]

    def _append(self, log: Log, batch: memoryview, version: int) -> AppendResult | None:
        """Append the batch; return None if it is too much for a turn of the loop."""
        check_attributes(batch, version)
        validated = None
        if not is_appended_as_sent(batch, log.settings):
            try:
                validated = self._broker.turns.attempt(
                    BatchValidation.of(batch, log.settings, self._broker.clock.wall_ms())
                )
            except OverLimitError:
                self.is_heavy = True
                return None
        if batch[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
            # A template has no transactional id, so this refuses the batch (53), as its handler would.
            enrol(self._broker, None, batch, log, version)
        return append_batch(log, batch, self._broker, validated)

    def _of_other_size(
        self, templates: dict[bytes, ProduceTemplate], frame: memoryview, version: int, start: int
    ) -> ProduceTemplate | None:
        try:
            self._size = max(0, template_size(frame, version, start))
        except (IllegalBytes, IndexError, struct.error):
            return None
        return templates.get(bytes(frame[start : start + self._size]))

    def learn(self, frame: memoryview, request: Request[Any] | None, version: int) -> None:
        """Learn the template of a request that ``answer`` has just left to its handler."""
        if self._is_known or not (self._is_on and self._failures_left):
            return
        if not isinstance(request, ProduceRequest) or not self._templates.wants(version):
            return
        template = template_of(frame, request, version)
        if (
            template is None
            or not template.topic_partition.topic
            or template.topic_partition.topic in INTERNAL_TOPICS
        ):
            self._failures_left -= 1
            return
        self._templates.add(template)


def _answer(template: ProduceTemplate, appended: AppendResult, correlation_id: int) -> Part:
    base_offset, _, appended_ms, start_offset, _ = appended
    return template.answer(correlation_id, base_offset, appended_ms, start_offset)


def _refusal(template: ProduceTemplate, error: BrokerResponseError, broker: TakesBatches) -> ProduceResponse:
    topic, partition = template.topic_partition
    answer = PartitionProduceResponse(index=partition)
    refuse(answer, template.topic_partition, error, broker)
    topic_response = TopicProduceResponse(
        name=topic, topic_id=template.topic_id or bytes(16), partition_responses=[answer]
    )
    return ProduceResponse(responses=[topic_response])
