"""Client metrics (KIP-714): subscriptions, and the metrics that clients pushed.

As in Kafka, the two APIs are offered only after the first ``subscribe``, to clients that connect from then
on. Semantics are those of Kafka's ``ClientMetricsManager``.
"""

from __future__ import annotations

import uuid
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import attrs

from splashdam.embedded_broker.execution.turns import Steps
from splashdam.model.broker_errors import CorruptMessageError, ErrorCode, error_for
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.log_text import quoted
from splashdam.record.batch import Codec
from splashdam.record.compression import available, decompress

ALL_METRICS = "*"
DEFAULT_INTERVAL_MS = 300_000
MOST_CLIENTS = 16_384
MOST_PUSHES = 1_000
INTERVALS_MS = range(100, 3_600_001)
_MOST_DECOMPRESSED_BYTES = 16 * 1024 * 1024
_MOST_KEPT_BYTES = 64 * 1024 * 1024
_PREFERRED = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
_TOLERANCE_MS = 1.0  # the two clocks, and the way between them, are not exact
_NO_ID = bytes(16)
_MOST_STEPS = 20_000
"""To match a pattern with one text."""
_LONGEST_PATTERN = 1_000
"""Letters of a subscription's pattern; Kafka has no limit, but clients wait while it is compiled."""
_MATCHES = ("client_instance_id", "client_id")


@attrs.frozen(kw_only=True)
class Subscription:
    """Metrics that some clients should push: Kafka's ``client-metrics`` resource.

    Attributes:
        metrics: prefixes of metric names, ``*`` for all.
        interval_ms: push interval, 100 to 3,600,000 ms.
        match: RE2 patterns that ``client_id`` and ``client_instance_id`` have to match as a whole.
    """

    metrics: tuple[str, ...]
    interval_ms: int = DEFAULT_INTERVAL_MS
    match: Mapping[str, str] = attrs.field(factory=dict)

    def matches(self, client: Mapping[str, str]) -> Steps[bool]:
        """Whether it applies to a client with these properties."""
        for name, pattern in self.match.items():
            is_match = yield from _is_match(pattern, client[name])
            if not is_match:
                return False
        return True


@attrs.frozen(kw_only=True)
class Push:
    """One push of one client.

    Attributes:
        client_instance_id: of the client.
        client_id: of the client.
        terminating: the client is closing, and this is its last push.
        wall_ms: time of arrival.
        metrics: an OTLP ``MetricsData`` message, decompressed.
    """

    client_instance_id: uuid.UUID
    client_id: str
    terminating: bool
    wall_ms: int
    metrics: bytes

    def names(self) -> set[str]:
        """Return the names of the metrics.

        Raises:
            ImportError: ``opentelemetry-proto`` is not installed (``pip install 'splashdam[telemetry]'``).
        """
        return {metric.name for metric in _metrics_of(self.message)}

    @cached_property
    def message(self) -> Any:
        """``metrics`` as a ``MetricsData`` of ``opentelemetry-proto``; raises as ``names``."""
        from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

        return MetricsData.FromString(self.metrics)


def checked_subscription(metrics: Iterable[str], interval_ms: int, match: Mapping[str, str]) -> Subscription:
    """Return a subscription, checked.

    Raises:
        KafkaConfigurationError: the interval, a name in ``match`` or its pattern is illegal.
    """
    from splashdam.embedded_broker.groups.patterns import Pattern  # most brokers need none

    if interval_ms not in INTERVALS_MS:
        raise KafkaConfigurationError(f"interval_ms={interval_ms}: must be 100 to 3,600,000")
    for key, expression in match.items():
        if key not in _MATCHES:
            raise KafkaConfigurationError(f"match: {quoted(key)} is not one of {', '.join(_MATCHES)}")
        try:
            if len(expression) > _LONGEST_PATTERN:
                raise ValueError(f"it has more than {_LONGEST_PATTERN} letters")  # noqa: TRY301 (told below)
            Pattern(expression, frozenset())
        except ValueError as error:
            raise KafkaConfigurationError(f"match: {key}={quoted(expression)}: {error}") from error
    return Subscription(metrics=tuple(metrics), interval_ms=interval_ms, match=dict(match))


def _is_match(expression: str, text: str) -> Steps[bool]:
    """Whether a pattern matches; one that takes too many steps matches nothing."""
    from splashdam.embedded_broker.groups.patterns import Compilation, Pattern

    yield 1 + len(text) // 1024
    try:
        pattern: Pattern = yield Compilation(expression, frozenset(text))
        found = yield from pattern.matching_in_steps([text], most_steps=_MOST_STEPS)
    except ValueError:
        return False
    return bool(found)


def _metrics_of(message: Any) -> Iterable[Any]:
    for resource in message.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics


class _Client:
    """The broker's state of one client instance."""

    def __init__(self, wanted: Subscription, version: int, subscription_id: int) -> None:
        self.wanted = wanted
        self.version = version
        self.subscription_id = subscription_id
        self.asked_ms = self.pushed_ms = -float("inf")
        self.terminated = False
        self.must_ask = self.has_asked = False

    def may_ask(self, now_ms: float) -> bool:
        """Whether it may ask: after the interval, or at once if it needs a new subscription."""
        last_ms = max(self.asked_ms, self.pushed_ms)
        if not self.must_ask and now_ms - last_ms < self.wanted.interval_ms - _TOLERANCE_MS:
            return False
        self.asked_ms, self.must_ask, self.has_asked = now_ms, False, True
        return True

    def may_push(self, now_ms: float) -> bool:
        """Whether it may push: once after it has asked, then at the interval."""
        if not self.has_asked and now_ms - self.pushed_ms < self.wanted.interval_ms - _TOLERANCE_MS:
            return False
        self.pushed_ms, self.has_asked = now_ms, False
        return True


class ClientTelemetry:
    """Subscriptions and pushed metrics. ``subscribe`` and ``pushes`` may be used from any thread.

    Args:
        max_bytes: Kafka's ``telemetry.max.bytes``: largest push, compressed.

    Attributes:
        max_bytes: as above.
        pushes: the last 1,000 pushes, at most 64 MiB of them, the latest last.
        on_push: called with each push, in the broker's thread; must not raise.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.pushes: deque[Push] = deque(maxlen=MOST_PUSHES)
        self.on_push: Callable[[Push], object] = lambda push: None
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0
        self._clients: OrderedDict[bytes, _Client] = OrderedDict()

    @property
    def offered(self) -> bool:
        """Whether the two APIs are offered to clients that connect now."""
        return self._version > 0

    @property
    def codecs(self) -> list[int]:
        """Codecs for pushes, in the order of preference."""
        return [int(codec) for codec in _PREFERRED if available(codec)]

    def subscribe(
        self,
        name: str = "default",
        *,
        metrics: Iterable[str] = (ALL_METRICS,),
        interval_ms: int = DEFAULT_INTERVAL_MS,
        match: Mapping[str, str] | None = None,
    ) -> None:
        """Ask clients for metrics from now on; replaces a subscription of the same name.

        Args:
            name: of the subscription.
            metrics: prefixes of metric names, such as ``org.apache.kafka.producer.``; ``*`` for all.
            interval_ms: push interval, 100 to 3,600,000 ms.
            match: patterns (RE2) for ``client_id`` and ``client_instance_id``; default: every client.

        Raises:
            KafkaConfigurationError: the interval, a name in ``match`` or its pattern is illegal.
        """
        wanted = checked_subscription(metrics, interval_ms, match or {})
        self._subscriptions = {**self._subscriptions, name: wanted}
        self._version += 1

    def unsubscribe(self, name: str = "default") -> None:
        """End a subscription; an unknown name is ignored."""
        self._subscriptions = {key: each for key, each in self._subscriptions.items() if key != name}
        self._version += 1

    def asked(
        self, instance_id: bytes, client_id: str, now_ms: float
    ) -> Steps[tuple[bytes, int, Subscription]]:
        """Handle GetTelemetrySubscriptions.

        Returns:
            Client instance id, subscription id, and all matching subscriptions as one.

        Raises:
            BrokerResponseError: THROTTLING_QUOTA_EXCEEDED (89): the client asks too often.
        """
        if instance_id == _NO_ID:
            instance_id = uuid.uuid4().bytes
        client = yield from self._client(instance_id, client_id)
        if not client.may_ask(now_ms):
            raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "asked before the push interval was over")
        return instance_id, client.subscription_id, client.wanted

    def pushed(self, push: Push, data: bytes, codec: int, subscription_id: int, now_ms: float) -> Steps[None]:
        """Handle PushTelemetry; ``push`` has everything but the metrics, which are in ``data``.

        Raises:
            BrokerResponseError: INVALID_REQUEST (42): no client instance id, or a push after the last one;
                THROTTLING_QUOTA_EXCEEDED (89): too often; UNKNOWN_SUBSCRIPTION_ID (117);
                UNSUPPORTED_COMPRESSION_TYPE (76); TELEMETRY_TOO_LARGE (118); INVALID_RECORD (87): the data
                cannot be decompressed.
        """
        if push.client_instance_id.bytes == _NO_ID:
            raise error_for(
                ErrorCode.INVALID_REQUEST, "a push needs the client instance id that the broker gave"
            )
        client = yield from self._client(push.client_instance_id.bytes, push.client_id)
        if client.terminated:
            raise error_for(ErrorCode.INVALID_REQUEST, "this client has sent its last push before")
        if not client.may_push(now_ms) and not push.terminating:
            raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "pushed before the push interval was over")
        client.terminated = push.terminating
        if subscription_id != client.subscription_id:
            client.must_ask = True
            raise error_for(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID, f"the subscription has the id {client.subscription_id}"
            )
        if codec != Codec.NONE and codec not in self.codecs:
            client.must_ask = True
            known = f"codec {codec} is not one of {self.codecs}"
            raise error_for(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, known)
        if len(data) > self.max_bytes:
            limit = f"{len(data)} bytes, at most {self.max_bytes} are taken"
            raise error_for(ErrorCode.TELEMETRY_TOO_LARGE, limit)
        try:
            metrics = yield _Decompression(data, Codec(codec))
        except CorruptMessageError as error:
            raise error_for(ErrorCode.INVALID_RECORD, str(error)) from error
        if metrics:
            push = attrs.evolve(push, metrics=metrics)
            self._keep(push)
            self.on_push(push)

    def _keep(self, push: Push) -> None:
        """Keep a push, and drop the oldest beyond 64 MiB: a small push may decompress to 16 MiB."""
        self.pushes.append(push)
        kept_bytes = sum(len(each.metrics) for each in self.pushes)
        while kept_bytes > _MOST_KEPT_BYTES:
            kept_bytes -= len(self.pushes.popleft().metrics)

    def _client(self, instance_id: bytes, client_id: str) -> Steps[_Client]:
        """Return a client's state; created anew if it is unknown or subscriptions have changed."""
        known = self._clients.get(instance_id)
        if known is None or known.version != self._version:
            version = self._version
            wanted = yield from _wanted_of(self._subscriptions.values(), instance_id, client_id)
            known = self._clients.get(instance_id)  # another request may have come first
            if known is None or known.version != version:
                known = self._clients[instance_id] = _after(known, instance_id, wanted, version)
        self._clients.move_to_end(instance_id)
        if len(self._clients) > MOST_CLIENTS:
            self._clients.popitem(last=False)
        return known


def _after(known: _Client | None, instance_id: bytes, wanted: Subscription, version: int) -> _Client:
    """Return the state of a client for which other subscriptions count now."""
    checksum = zlib.crc32(repr(wanted).encode()) ^ zlib.crc32(instance_id)
    client = _Client(wanted, version, checksum - (1 << 32) if checksum >> 31 else checksum)
    if known is not None:  # it may ask at once
        client.pushed_ms, client.terminated, client.must_ask = known.pushed_ms, known.terminated, True
    return client


def _wanted_of(
    subscriptions: Iterable[Subscription], instance_id: bytes, client_id: str
) -> Steps[Subscription]:
    """Return all subscriptions that match a client as one."""
    client = {"client_instance_id": str(uuid.UUID(bytes=instance_id)), "client_id": client_id}
    found = []
    for each in subscriptions:
        is_match = yield from each.matches(client)
        if is_match:
            found.append(each)
    metrics = {name for each in found for name in each.metrics}
    return Subscription(
        metrics=(ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)),
        interval_ms=min((each.interval_ms for each in found), default=DEFAULT_INTERVAL_MS),
    )


@attrs.frozen
class _Decompression:
    """The decompression of pushed metrics as a `Work`."""

    data: bytes
    codec: Codec

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def do(self, max_bytes: int) -> bytes:
        return decompress(self.codec, self.data, max_bytes=min(max_bytes, _MOST_DECOMPRESSED_BYTES))
