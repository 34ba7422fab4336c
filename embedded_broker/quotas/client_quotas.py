"""Measures the clients of a broker against their quotas, and computes throttle times.

As in Kafka, all connections that share a quota count together, on each broker separately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from splashdam.embedded_broker.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Quotas,
    connection_rate,
    quota_for,
)
from splashdam.embedded_broker.quotas.rates import Rate, TokenBucket, Windows
from splashdam.model.broker_errors import ErrorCode, error_for

_T = TypeVar("_T")

_MOST_RATES = 10_000
"""Limit of tracked rates, since clients can invent client ids; the least recently used are dropped."""


class QuotaClient(NamedTuple):
    """User and client id of a request."""

    user: str
    client_id: str


class ClientQuotas:
    """The rates of a broker's clients.

    Args:
        windows: over which rates are measured.
        now_ms: monotonic clock.
    """

    def __init__(self, windows: Windows, now_ms: Callable[[], float]) -> None:
        self._windows = windows
        self._now_ms = now_ms
        self._quotas: Quotas = {}
        self._rates: dict[tuple[str, ...], Rate] = {}
        self._buckets: dict[tuple[str, ...], TokenBucket] = {}

    def take(self, quotas: Quotas) -> None:
        self._quotas = quotas

    @property
    def is_any_set(self) -> bool:
        """Whether any quota is set."""
        return bool(self._quotas)

    def produced(self, client: QuotaClient, size_bytes: int) -> int:
        """Record a Produce; return the throttle time in milliseconds."""
        return self._recorded(PRODUCER_BYTE_RATE, client, size_bytes)

    def fetched(self, client: QuotaClient, size_bytes: int) -> int:
        """Record the answer to a Fetch; return the throttle time in milliseconds."""
        return self._recorded(CONSUMER_BYTE_RATE, client, size_bytes)

    def take_back_fetched(self, client: QuotaClient, size_bytes: int) -> None:
        """Undo ``fetched`` for an answer that is not sent."""
        self._recorded(CONSUMER_BYTE_RATE, client, -size_bytes)

    def most_fetched(self, client: QuotaClient) -> int | None:
        """Return the largest answer to a Fetch that can be within the quota, None if there is no quota."""
        quota = quota_for(self._quotas, CONSUMER_BYTE_RATE, *client)
        if quota is None:
            return None
        return int(quota.bound * (self._windows.number - 1) * self._windows.size_ms / 1000)

    def worked(self, client: QuotaClient, spent_ms: float) -> int:
        """Record the time that a request took; return the throttle time in ms, at most one window."""
        percent = spent_ms / 10  # of a second
        return min(self._recorded(REQUEST_PERCENTAGE, client, percent), self._windows.size_ms)

    def mutated(self, client: QuotaClient, count: int, *, is_strict: bool) -> None:
        """Record created or deleted partitions; ``owed_ms`` then returns the throttle time.

        Raises:
            BrokerResponseError: THROTTLING_QUOTA_EXCEEDED (89) if ``is_strict`` and the client has exceeded
                the quota before; nothing is recorded then.
        """
        quota = quota_for(self._quotas, CONTROLLER_MUTATION_RATE, *client)
        if quota is None:
            return
        key, now_ms = (CONTROLLER_MUTATION_RATE, *quota.shared_by), self._now_ms()
        bucket = self._buckets.pop(key, None) or TokenBucket(self._windows)
        _keep(self._buckets, key, bucket)
        if is_strict and bucket.left(quota.bound, now_ms) < 0:
            raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        bucket.take(count, quota.bound, now_ms)

    def owed_ms(self, client: QuotaClient) -> int:
        """Return the throttle time for creating and deleting partitions."""
        quota = quota_for(self._quotas, CONTROLLER_MUTATION_RATE, *client)
        bucket = quota and self._buckets.get((CONTROLLER_MUTATION_RATE, *quota.shared_by))
        return bucket.throttle_ms(quota.bound, self._now_ms()) if quota and bucket else 0

    def connected(self, ip: str) -> int:
        """Record a connection; return the throttle time of the address, in which case it is not counted."""
        bound, now_ms = connection_rate(self._quotas, ip), self._now_ms()
        if bound is None:
            return 0
        rate = self._rate(("ip", ip))
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(bound, now_ms), self._windows.size_ms)
        if throttle_ms:
            # The connection is closed, so it does not count against the next one.
            rate.record(-1, now_ms)
        return throttle_ms

    def _recorded(self, key: str, client: QuotaClient, value: float) -> int:
        quota = quota_for(self._quotas, key, *client)
        if quota is None:
            return 0
        rate, now_ms = self._rate((key, *quota.shared_by)), self._now_ms()
        rate.record(value, now_ms)
        return rate.throttle_ms(quota.bound, now_ms)

    def _rate(self, key: tuple[str, ...]) -> Rate:
        rate = self._rates.pop(key, None) or Rate(self._windows)
        _keep(self._rates, key, rate)
        return rate


def _keep(kept: dict[tuple[str, ...], _T], key: tuple[str, ...], value: _T) -> None:
    kept[key] = value  # moves to the end: the first key is the least recently used one
    if len(kept) > _MOST_RATES:
        del kept[next(iter(kept))]
