"""The straight way of produce requests: nothing is decoded, and the answer takes one ``pack``.

Most requests differ from an earlier one of the same client in correlation id and batch alone. Those are
known by their bytes (``wire.produce_form``) and go straight to the log; all others, and those whose answer
has to wait, take the way of every request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from splashdam.embedded_broker.dispatch import Dispatched
from splashdam.embedded_broker.handlers.produce import (
    ATTRIBUTES_LOW_BYTE,
    append_batch,
    check_attributes,
    refuse,
)
from splashdam.embedded_broker.internal_topics import INTERNAL_TOPICS
from splashdam.embedded_broker.topic_configs import options_of
from splashdam.embedded_broker.transactions.enrolment import enrol
from splashdam.model.errors import BrokerResponseError
from splashdam.model.options import MAX_LONG
from splashdam.record.batch import TRANSACTIONAL_BIT
from splashdam.wire.fields import Part
from splashdam.wire.header import encode_response
from splashdam.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from splashdam.wire.produce_form import FORM_AT, REQUEST_START, ProduceForm, form_of

if TYPE_CHECKING:
    from splashdam.embedded_broker.broker import Broker

_MAX_FORMS = 256
_MAX_LENGTHS = 4
_MAX_FAILURES = 64
"""A client whose requests have no form, many partitions each, is not studied for ever."""


class StraightProduce:
    """The forms of one client's produce requests."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._forms: dict[bytes, ProduceForm] = {}
        self._ends: list[int] = []
        self._failures_left = 0
        self._is_known = False  # whether the frame looked at last has one of the forms
        self.resume()

    def stop(self) -> None:
        """Leaves every request to the long way, which asks what this one does not: quotas."""
        self._forms.clear()
        self._ends.clear()
        self._failures_left = 0

    def resume(self) -> None:
        """Learns again, unless somebody has to be asked whether each request is allowed."""
        self._failures_left = 0 if self._broker.authorizer is not None else _MAX_FAILURES

    def answer(self, frame: memoryview) -> list[Part] | None:
        """Appends the batch of a request whose form is known and returns the answer's frame, else None."""
        self._is_known = False
        if len(frame) <= FORM_AT:
            return None
        api_key, version, correlation_id = REQUEST_START.unpack_from(frame)
        if api_key != ProduceRequest.API_KEY:
            return None
        for end in self._ends:
            form = self._forms.get(bytes(frame[FORM_AT:end]))
            if form is not None and form.version == version:
                break
        else:
            return None
        self._is_known = True
        batch = form.records_of(frame)
        log = self._broker.logs.logs.get(form.topic_partition)
        if (
            batch is None
            or log is None
            or log.replication is not None
            or form.topic_id not in (None, log.topic_id)  # that topic is gone, another one bears its name
            or options_of(log).flush_messages != MAX_LONG
        ):
            return None
        try:
            check_attributes(batch, version)
            if batch[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
                enrol(self._broker, None, batch, log, version)
            base_offset, _, appended_ms, start_offset, _ = append_batch(log, batch, self._broker)
        except BrokerResponseError as error:
            return _refusal(form, error, correlation_id)
        return [form.answer(correlation_id, base_offset, appended_ms, start_offset)]

    def learn(self, frame: memoryview, dispatched: Dispatched) -> None:
        """Takes note of the form of the request that ``answer`` has just left to the long way."""
        request = dispatched.request
        if self._is_known or not self._failures_left or not isinstance(request, ProduceRequest):
            return
        form = form_of(frame, request, dispatched.version)
        if form is None or not form.topic_partition.topic or form.topic_partition.topic in INTERNAL_TOPICS:
            self._failures_left -= 1
            return
        if form.end not in self._ends:
            if len(self._ends) == _MAX_LENGTHS:
                self._forms.clear()
                self._ends.clear()
            self._ends.append(form.end)
        if len(self._forms) == _MAX_FORMS:
            self._forms.clear()
        self._forms[form.key] = form


def _refusal(form: ProduceForm, error: BrokerResponseError, correlation_id: int) -> list[Part]:
    topic, partition = form.topic_partition
    answer = PartitionProduceResponse(index=partition)
    refuse(answer, form.topic_partition, error)
    topic_response = TopicProduceResponse(
        name=topic, topic_id=form.topic_id or bytes(16), partition_responses=[answer]
    )
    response = ProduceResponse(responses=[topic_response])
    return encode_response(response, version=form.version, correlation_id=correlation_id)
