"""What clients tell of themselves (KIP-714): who is asked for which metrics, and what they pushed.

As in Kafka the broker offers the two APIs only where somebody wants metrics: after the first ``subscribe``,
to clients that connect then. Semantics are those of Kafka's ``ClientMetricsManager``.
"""

from __future__ import annotations

import uuid
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.model.broker_errors import CorruptMessageError, ErrorCode, error_for
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.log_text import quoted
from splashdam.record.batch import Codec
from splashdam.record.compression import available, decompress

if TYPE_CHECKING:
    from splashdam.embedded_broker.groups.patterns import Pattern

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
_MATCHES = ("client_instance_id", "client_id")


@attrs.frozen(kw_only=True)
class Subscription:
    """Which metrics are wanted of which clients: Kafka's ``client-metrics`` resource.

    Attributes:
        metrics: beginnings of names, ``*`` for all.
        interval_ms: how often, 100 to 3,600,000.
        match: patterns in RE2's syntax; the ``client_id`` and ``client_instance_id`` match them in full.
    """

    metrics: tuple[str, ...]
    interval_ms: int = DEFAULT_INTERVAL_MS
    match: Mapping[str, str] = attrs.field(factory=dict)

    def matches(self, client: Mapping[str, str]) -> bool:
        """Whether it is for a client with these properties."""
        return all(_is_match(pattern, client[name]) for name, pattern in self.match.items())


@attrs.frozen(kw_only=True)
class Push:
    """What one client pushed at one time.

    Attributes:
        client_instance_id: which client.
        client_id: what it calls itself.
        terminating: it closes, and this is the last one.
        wall_ms: when it came.
        metrics: an OTLP ``MetricsData`` message, decompressed.
    """

    client_instance_id: uuid.UUID
    client_id: str
    terminating: bool
    wall_ms: int
    metrics: bytes

    def names(self) -> set[str]:
        """The names of the metrics.

        Raises:
            ImportError: ``opentelemetry-proto`` is not installed (``pip install splashdam[telemetry]``).
        """
        return {metric.name for metric in _metrics_of(self.message)}

    @cached_property
    def message(self) -> Any:
        """``metrics`` as a ``MetricsData`` of ``opentelemetry-proto``; raises as ``names``."""
        from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

        return MetricsData.FromString(self.metrics)


def checked_subscription(metrics: Iterable[str], interval_ms: int, match: Mapping[str, str]) -> Subscription:
    """A subscription of these, as ``ClientTelemetry.subscribe`` takes them.

    Raises:
        KafkaConfigurationError: the interval, a name in ``match`` or its expression is illegal.
    """
    if interval_ms not in INTERVALS_MS:
        raise KafkaConfigurationError(f"interval_ms={interval_ms}: must be 100 to 3,600,000")
    for key, expression in match.items():
        if key not in _MATCHES:
            raise KafkaConfigurationError(f"match: {quoted(key)} is not one of {', '.join(_MATCHES)}")
        try:
            _pattern(expression, "")
        except ValueError as error:
            raise KafkaConfigurationError(f"match: {key}={quoted(expression)}: {error}") from error
    return Subscription(metrics=tuple(metrics), interval_ms=interval_ms, match=dict(match))


def _is_match(expression: str, text: str) -> bool:
    """In bounded time: one that would take longer matches nothing."""
    try:
        return bool(_pattern(expression, text).matching([text]))
    except ValueError:
        return False


def _pattern(expression: str, text: str) -> Pattern:
    """Raises ValueError where it is none."""
    from splashdam.embedded_broker.groups.patterns import Pattern  # most brokers need none

    return Pattern(expression, frozenset(text))


def _metrics_of(message: Any) -> Iterable[Any]:
    for resource in message.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics


class _Client:
    """One client instance, as far as the broker remembers it."""

    def __init__(self, wanted: Subscription, version: int, subscription_id: int) -> None:
        self.wanted = wanted
        self.version = version
        self.subscription_id = subscription_id
        self.asked_ms = self.pushed_ms = -float("inf")
        self.terminated = False
        self.must_ask = self.has_asked = False

    def may_ask(self, now_ms: float) -> bool:
        """Not before the interval is over, but for one whose push was refused for what it has to ask anew."""
        last_ms = max(self.asked_ms, self.pushed_ms)
        if not self.must_ask and now_ms - last_ms < self.wanted.interval_ms - _TOLERANCE_MS:
            return False
        self.asked_ms, self.must_ask, self.has_asked = now_ms, False, True
        return True

    def may_push(self, now_ms: float) -> bool:
        """Once after it has asked, and then at the interval."""
        if not self.has_asked and now_ms - self.pushed_ms < self.wanted.interval_ms - _TOLERANCE_MS:
            return False
        self.pushed_ms, self.has_asked = now_ms, False
        return True


class ClientTelemetry:
    """Subscriptions, and what came of them. ``subscribe`` and ``pushes`` may be used from any thread.

    Args:
        max_bytes: Kafka's ``telemetry.max.bytes``: most bytes of one push as it is sent.

    Attributes:
        max_bytes: as above.
        pushes: what was pushed, the latest last; the last 1,000 are kept, and at most 64 MiB of them.
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
        """Whether clients that connect now are told of the two APIs."""
        return self._version > 0

    @property
    def codecs(self) -> list[int]:
        """What pushes may be compressed with, the best first."""
        return [int(codec) for codec in _PREFERRED if available(codec)]

    def subscribe(
        self,
        name: str = "default",
        *,
        metrics: Iterable[str] = (ALL_METRICS,),
        interval_ms: int = DEFAULT_INTERVAL_MS,
        match: Mapping[str, str] | None = None,
    ) -> None:
        """Asks clients for metrics from now on; another subscription of the same name is replaced.

        Args:
            name: of the subscription.
            metrics: beginnings of names, as ``org.apache.kafka.producer.``; ``*`` for all.
            interval_ms: how often, 100 to 3,600,000 ms.
            match: patterns (RE2) for ``client_id`` and ``client_instance_id``; default: every client.

        Raises:
            KafkaConfigurationError: the interval, a name in ``match`` or its expression is illegal.
        """
        wanted = checked_subscription(metrics, interval_ms, match or {})
        self._subscriptions = {**self._subscriptions, name: wanted}
        self._version += 1

    def unsubscribe(self, name: str = "default") -> None:
        """Ends a subscription; one that does not exist is no error."""
        self._subscriptions = {key: each for key, each in self._subscriptions.items() if key != name}
        self._version += 1

    def asked(self, instance_id: bytes, client_id: str, now_ms: float) -> tuple[bytes, int, Subscription]:
        """A client asks what is wanted of it.

        Returns:
            its instance id, the id of its subscription, and what is wanted.

        Raises:
            BrokerResponseError: 89, it asks too often.
        """
        if instance_id == _NO_ID:
            instance_id = uuid.uuid4().bytes
        client = self._client(instance_id, client_id)
        if not client.may_ask(now_ms):
            raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "asked before the push interval was over")
        return instance_id, client.subscription_id, client.wanted

    def pushed(self, push: Push, data: bytes, codec: int, subscription_id: int, now_ms: float) -> None:
        """A client pushes; ``push`` has everything but the metrics, which are in ``data``.

        Raises:
            BrokerResponseError: 42, it has no id, or has said before that it was its last push; 89, it pushes
                too often; 117, it does not know the present subscription; 76, the codec is none of ours; 118,
                there are too many bytes; 87, they do not decompress.
        """
        if push.client_instance_id.bytes == _NO_ID:
            raise error_for(
                ErrorCode.INVALID_REQUEST, "a push needs the client instance id that the broker gave"
            )
        client = self._client(push.client_instance_id.bytes, push.client_id)
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
            metrics = decompress(Codec(codec), data, max_bytes=_MOST_DECOMPRESSED_BYTES)
        except CorruptMessageError as error:
            raise error_for(ErrorCode.INVALID_RECORD, str(error)) from error
        if metrics:
            push = attrs.evolve(push, metrics=metrics)
            self._keep(push)
            self.on_push(push)

    def _keep(self, push: Push) -> None:
        """With as many earlier ones as have room: a megabyte may hold many of zeros."""
        self.pushes.append(push)
        kept_bytes = sum(len(each.metrics) for each in self.pushes)
        while kept_bytes > _MOST_KEPT_BYTES:
            kept_bytes -= len(self.pushes.popleft().metrics)

    def _client(self, instance_id: bytes, client_id: str) -> _Client:
        """As we know it, or anew where it is not known or subscriptions have changed."""
        known = self._clients.get(instance_id)
        if known is not None and known.version == self._version:
            self._clients.move_to_end(instance_id)
            return known
        wanted = self._wanted_of(instance_id, client_id)
        checksum = zlib.crc32(repr(wanted).encode()) ^ zlib.crc32(instance_id)
        client = _Client(wanted, self._version, checksum - (1 << 32) if checksum >> 31 else checksum)
        if known is not None:  # what has changed is the subscription, and it may ask for it at once
            client.pushed_ms, client.terminated, client.must_ask = known.pushed_ms, known.terminated, True
        self._clients[instance_id] = client
        self._clients.move_to_end(instance_id)
        if len(self._clients) > MOST_CLIENTS:
            self._clients.popitem(last=False)
        return client

    def _wanted_of(self, instance_id: bytes, client_id: str) -> Subscription:
        """All subscriptions that match, as one."""
        client = {"client_instance_id": str(uuid.UUID(bytes=instance_id)), "client_id": client_id}
        found = [each for each in self._subscriptions.values() if each.matches(client)]
        metrics = {name for each in found for name in each.metrics}
        return Subscription(
            metrics=(ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)),
            interval_ms=min((each.interval_ms for each in found), default=DEFAULT_INTERVAL_MS),
        )
