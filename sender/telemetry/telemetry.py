"""The client side of metrics push (KIP-714): subscription, push interval, error handling.

One telemetry request is in flight at a time. It uses the connections for records; none is opened for
telemetry, except while an application waits for its client instance id.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from enum import auto

import attrs

from splashdam.model.broker_errors import ErrorCode, UnsupportedVersionError
from splashdam.model.errors import KafkaError, UnsupportedCodecError
from splashdam.model.lifecycle import Stage, next_state
from splashdam.model.log_text import fields
from splashdam.net.connection.in_flight import PendingResponse
from splashdam.record.batch import Codec
from splashdam.record.compression import NO_COMPRESSION, Compression, available, compress
from splashdam.sender.broker_links import BrokerLink, BrokerLinks
from splashdam.sender.context import SenderContext
from splashdam.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from splashdam.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

logger = logging.getLogger("splashdam.sender")

DEFAULT_INTERVAL_MS = 300_000
"""Push interval after a lost response, or without one in the subscription."""

LAST_PUSH_MS = 1_000
"""How long closing waits for the response to the last push."""

_NO_ID = bytes(16)


class TelemetryState(Stage):
    """The next telemetry request, or the one in flight."""

    ASK = auto()
    ASKING = auto()
    PUSH = auto()
    PUSHING = auto()
    LAST_PUSHING = auto()
    OFF = auto()


class TelemetryEvent(Stage):
    """Events of the telemetry."""

    SEND = auto()
    SUBSCRIBED = auto()
    """The broker subscribes to metrics."""
    AGAIN = auto()
    """The subscription has to be requested again, now or later."""
    TAKEN = auto()
    CLOSE = auto()
    GIVE_UP = auto()


_S, _E = TelemetryState, TelemetryEvent

TRANSITIONS: dict[tuple[TelemetryState, TelemetryEvent], TelemetryState] = {
    (_S.ASK, _E.SEND): _S.ASKING,
    (_S.ASKING, _E.SUBSCRIBED): _S.PUSH,
    (_S.ASKING, _E.AGAIN): _S.ASK,
    (_S.PUSH, _E.SEND): _S.PUSHING,
    (_S.PUSH, _E.AGAIN): _S.ASK,
    (_S.PUSHING, _E.TAKEN): _S.PUSH,
    (_S.PUSHING, _E.AGAIN): _S.ASK,
    (_S.PUSH, _E.CLOSE): _S.LAST_PUSHING,
    (_S.LAST_PUSHING, _E.TAKEN): _S.OFF,
    (_S.LAST_PUSHING, _E.AGAIN): _S.OFF,
    **{(state, _E.GIVE_UP): _S.OFF for state in _S},
    # Responses after the end change nothing.
    **{(_S.OFF, event): _S.OFF for event in (_E.SUBSCRIBED, _E.AGAIN, _E.TAKEN)},
}
"""The legal events of each state."""


@attrs.frozen
class Wanted:
    """A broker's subscription.

    Attributes:
        metrics: prefixes of metric names; ``*`` or an empty one for all.
        delta: totals are sent as the increase since the last push.
    """

    metrics: Collection[str]
    delta: bool

    def wants(self, name: str) -> bool:
        """Whether the subscription includes a metric of this name."""
        return any(name.startswith(prefix) or prefix == "*" for prefix in self.metrics)


class Telemetry:
    """Requests subscriptions and pushes metrics when due. Runs in the sender's loop.

    Args:
        context: shared by all parts of the sender.
        links: the connections to brokers.
        encode: makes an OTLP ``MetricsData`` message of the subscribed metrics; raises ``ImportError``
            without ``opentelemetry-proto``.
        on_identified: called when the instance id is known.

    Attributes:
        due_ms: when ``act`` is due; infinity while a request is in flight.
        instance_id: the client instance id, 16 bytes; zeros before the first response.
    """

    def __init__(
        self,
        context: SenderContext,
        links: BrokerLinks,
        encode: Callable[[Wanted], bytes],
        on_identified: Callable[[bytes], object],
    ) -> None:
        self._context = context
        self._links = links
        self._encode = encode
        self._on_identified = on_identified
        self._state = TelemetryState.ASK
        self._link: BrokerLink | None = None
        self._wanted = Wanted((), False)
        self._subscription_id = 0
        self._compression = NO_COMPRESSION
        self._interval_ms = float(DEFAULT_INTERVAL_MS)
        self.due_ms = -math.inf
        self.instance_id = _NO_ID

    def act(self, now_ms: float) -> None:
        """Send the request that is due, if a connection is usable."""
        link = self._sendable()
        if link is None or now_ms < self.due_ms:
            return
        if self._state is TelemetryState.ASK:
            self._ask(link)
        elif self._state is TelemetryState.PUSH:
            self._push(link, last=False)
        else:
            self._give_up("the last push was not answered in time")

    def close(self, now_ms: float) -> None:
        """Push once more while the producer closes, after all records are delivered."""
        if self._state is TelemetryState.PUSH:
            link = self._sendable()
            if link is None:
                self._give_up("there is no connection for the last push")
            else:
                self._push(link, last=True)
                self.due_ms = min(self.due_ms, now_ms + LAST_PUSH_MS)
        elif self._state is TelemetryState.ASK or now_ms >= self.due_ms:
            self._give_up("the producer closes")
        elif self._state in (TelemetryState.ASKING, TelemetryState.PUSHING):
            self.due_ms = min(self.due_ms, now_ms + LAST_PUSH_MS)

    @property
    def ended(self) -> bool:
        """Whether the last push is over."""
        return self._state is TelemetryState.OFF

    def _sendable(self) -> BrokerLink | None:
        """The link of the last request, or another one if it is not sendable."""
        if self._link is None or not self._link.sendable:
            self._link = self._links.any_sendable()
        return self._link

    def _ask(self, link: BrokerLink) -> None:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self.instance_id)
        self._advance(TelemetryEvent.SEND)
        self.due_ms = math.inf
        try:
            link.submit(GetTelemetrySubscriptionsRequest, lambda _version: request, self._subscribed)
        except KafkaError as error:
            self._failed(error)

    def _subscribed(self, pending: PendingResponse[GetTelemetrySubscriptionsResponse]) -> None:
        try:
            answer = pending.result()
        except KafkaError as error:
            self._failed(error)
            return
        if answer.error_code:
            self._refused(answer.error_code)
            return
        interval_ms = answer.push_interval_ms
        self._interval_ms = float(interval_ms if interval_ms > 0 else DEFAULT_INTERVAL_MS)
        if self.instance_id == _NO_ID:
            self.instance_id = bytes(answer.client_instance_id)
            self._on_identified(self.instance_id)
        if not answer.requested_metrics:
            self._again(self._interval_ms)
            return
        self._wanted = Wanted(tuple(answer.requested_metrics), answer.delta_temporality)
        self._subscription_id = answer.subscription_id
        self._compression = _best_of(answer.accepted_compression_types)
        self._advance(TelemetryEvent.SUBSCRIBED)
        # Jitter (KIP-714): clients that were subscribed together do not push at the same time.
        self._sleep(self._interval_ms * (0.5 + self._context.random()))

    def _push(self, link: BrokerLink, *, last: bool) -> None:
        self._advance(TelemetryEvent.CLOSE if last else TelemetryEvent.SEND)
        self.due_ms = math.inf
        try:
            metrics = compress(self._encode(self._wanted), self._compression)
            request = PushTelemetryRequest(
                client_instance_id=self.instance_id,
                subscription_id=self._subscription_id,
                terminating=last,
                compression_type=int(self._compression.codec),
                metrics=metrics,
            )
            link.submit(PushTelemetryRequest, lambda _version: request, self._pushed)
        except ImportError as error:
            self._give_up(f"{error}; pip install 'splashdam[telemetry]'", logging.INFO)
        except KafkaError as error:
            self._failed(error)

    def _pushed(self, pending: PendingResponse[PushTelemetryResponse]) -> None:
        try:
            answer = pending.result()
        except KafkaError as error:
            self._failed(error)
            return
        if answer.error_code:
            self._refused(answer.error_code)
        else:
            self._advance(TelemetryEvent.TAKEN)
            self._sleep(self._interval_ms)

    def _refused(self, code: int) -> None:
        """Follow KIP-714: give up on invalid requests, request a changed subscription at once, else later."""
        if code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD):
            self._give_up(f"the broker answered error {code}")
        elif code in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
            self._again(0.0)
        else:
            self._again(self._interval_ms)

    def _failed(self, error: KafkaError) -> None:
        if isinstance(error, UnsupportedVersionError | UnsupportedCodecError):
            self._give_up(str(error))
        else:
            self._again(DEFAULT_INTERVAL_MS)

    def _again(self, delay_ms: float) -> None:
        self._advance(TelemetryEvent.AGAIN)
        self._sleep(delay_ms)

    def _give_up(self, why: str, level: int = logging.DEBUG) -> None:
        if self._state is not TelemetryState.OFF:
            about = fields(client_id=self._context.settings.client_id)
            logger.log(level, "metrics push ends: %s", why, extra=about)
        self._advance(TelemetryEvent.GIVE_UP)
        self._sleep(math.inf)

    def _sleep(self, delay_ms: float) -> None:
        self.due_ms = math.inf if self._state is _S.OFF else self._context.clock.now_ms() + delay_ms
        self._context.wakeup.wake()

    def _advance(self, event: TelemetryEvent) -> None:
        self._state = next_state(TRANSITIONS, self._state, event, "telemetry")


def _best_of(accepted: Collection[int]) -> Compression:
    """The first codec of the broker's list that is installed."""
    for number in accepted:
        if number in Codec._value2member_map_ and available(Codec(number)):
            return Compression(Codec(number))
    return NO_COMPRESSION
