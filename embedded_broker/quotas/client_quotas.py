"""Holds the clients of a broker to their quotas: records what they ask for, says how long they have to wait.

As in Kafka, requests of all connections that a quota is shared by count together; a broker counts for itself.
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
"""Client ids are made up by clients; the rates of those that were heard last are kept."""


class Asking(NamedTuple):
    """Who asks, as quotas know clients."""

    user: str
    client_id: str


class ClientQuotas:
    """The rates of a broker's clients.

    Args:
        windows: over what rates are measured.
        now_ms: monotonic clock.
    """

    def __init__(self, windows: Windows, now_ms: Callable[[], float]) -> None:
        self._windows = windows
        self._now_ms = now_ms
        self._quotas: Quotas = {}
        self._rates: dict[tuple[str, ...], Rate] = {}
        self._buckets: dict[tuple[str, ...], TokenBucket] = {}

    def take(self, quotas: Quotas) -> None:
        """Holds clients to these quotas from now on."""
        self._quotas = quotas

    @property
    def is_any_set(self) -> bool:
        """Whether there is a quota at all."""
        return bool(self._quotas)

    def produced(self, asking: Asking, size_bytes: int) -> int:
        """Records a Produce; milliseconds to wait."""
        return self._recorded(PRODUCER_BYTE_RATE, asking, size_bytes)

    def fetched(self, asking: Asking, size_bytes: int) -> int:
        """Records the answer to a Fetch; milliseconds to wait."""
        return self._recorded(CONSUMER_BYTE_RATE, asking, size_bytes)

    def take_back_fetched(self, asking: Asking, size_bytes: int) -> None:
        """An answer that was recorded is not sent."""
        self._recorded(CONSUMER_BYTE_RATE, asking, -size_bytes)

    def most_fetched(self, asking: Asking) -> int | None:
        """Most bytes that the answer to a Fetch should have, so that it can ever be within its quota."""
        quota = quota_for(self._quotas, CONSUMER_BYTE_RATE, *asking)
        if quota is None:
            return None
        return int(quota.bound * (self._windows.number - 1) * self._windows.size_ms / 1000)

    def worked(self, asking: Asking, spent_ms: float) -> int:
        """Records what time a request took of the broker's; milliseconds to wait, one window at most."""
        percent = spent_ms / 10  # of a second
        return min(self._recorded(REQUEST_PERCENTAGE, asking, percent), self._windows.size_ms)

    def mutated(self, asking: Asking, count: int, *, is_strict: bool) -> None:
        """Records partitions that are made or removed; what is owed then is ``owed_ms``.

        Raises:
            BrokerResponseError: THROTTLING_QUOTA_EXCEEDED (89) where it ``is_strict`` and the client owes for
                earlier ones; nothing is recorded then.
        """
        quota = quota_for(self._quotas, CONTROLLER_MUTATION_RATE, *asking)
        if quota is None:
            return
        key, now_ms = (CONTROLLER_MUTATION_RATE, *quota.shared_by), self._now_ms()
        bucket = self._buckets.pop(key, None) or TokenBucket(self._windows)
        _keep(self._buckets, key, bucket)
        if is_strict and bucket.left(quota.bound, now_ms) < 0:
            raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        bucket.take(count, quota.bound, now_ms)

    def owed_ms(self, asking: Asking) -> int:
        """How long the client has to wait before it may make or remove partitions again."""
        quota = quota_for(self._quotas, CONTROLLER_MUTATION_RATE, *asking)
        bucket = quota and self._buckets.get((CONTROLLER_MUTATION_RATE, *quota.shared_by))
        return bucket.throttle_ms(quota.bound, self._now_ms()) if quota and bucket else 0

    def connected(self, ip: str) -> int:
        """Records a connection; milliseconds that the address has to wait, and then it is not counted."""
        bound, now_ms = connection_rate(self._quotas, ip), self._now_ms()
        if bound is None:
            return 0
        rate = self._rate(("ip", ip))
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(bound, now_ms), self._windows.size_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
        return throttle_ms

    def _recorded(self, key: str, asking: Asking, value: float) -> int:
        quota = quota_for(self._quotas, key, *asking)
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
    kept[key] = value  # behind all others, which were heard before
    if len(kept) > _MOST_RATES:
        del kept[next(iter(kept))]
