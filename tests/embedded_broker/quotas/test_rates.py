"""Rates over windows and buckets of tokens, against restatements of Kafka's classes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.running.examples import examples

from splashdam.embedded_broker.quotas.entities import (
    check_entity,
    check_quota,
    connection_rate,
    entity,
    quota_for,
)
from splashdam.embedded_broker.quotas.rates import Rate, TokenBucket, Windows
from splashdam.model.broker_errors import InvalidRequestError

WINDOWS = Windows(3, 1000)


class KafkaRate:
    """``SampledStat`` with its ring of samples, and ``Rate.windowSize``."""

    def __init__(self) -> None:
        self.samples: list[list[float]] = []  # start, last event, value
        self.current = 0

    def record(self, value: float, now: float) -> None:
        if not self.samples:
            self.samples.append([now, now, 0.0])
        if now - self.samples[self.current][0] >= 1000:
            self.current = (self.current + 1) % 4
            if self.current >= len(self.samples):
                self.samples.append([now, now, 0.0])
            else:
                self.samples[self.current] = [now, now, 0.0]
        self.samples[self.current][1] = now
        self.samples[self.current][2] += value

    def measure(self, now: float) -> float:
        for sample in self.samples:
            if now - sample[1] >= 3000:
                sample[:] = [now, now, 0.0]
        elapsed = now - min(sample[0] for sample in self.samples)
        full = int(elapsed / 1000)
        span = max(elapsed + max(2 - full, 0) * 1000, 1)
        return sum(sample[2] for sample in self.samples) / span * 1000


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 900), st.integers(1, 1000)), min_size=1, max_size=30))
def test_rates_are_kafkas(events: list[tuple[int, int]]) -> None:
    """For a client that is never silent for longer than a window."""
    ours, theirs, now = Rate(WINDOWS), KafkaRate(), 5_000
    for delay, value in events:
        now += delay
        ours.record(value, now)
        theirs.record(value, now)
        assert ours.per_second(now) == pytest.approx(theirs.measure(now))


def test_how_long_to_wait() -> None:
    """(O - T) / T · W: 6000 in the first of three windows are 3000 a second, over two seconds."""
    rate = Rate(WINDOWS)
    rate.record(6000, 0)
    assert rate.throttle_ms(1000, 0) == 4000
    assert rate.throttle_ms(3000, 0) == 0
    assert rate.throttle_ms(1500, 500) == 1500  # 2400 a second by now


def test_old_windows_do_not_count() -> None:
    """A client that was silent for all windows begins anew."""
    rate = Rate(WINDOWS)
    rate.record(6000, 0)
    assert rate.per_second(0) == 3000
    assert rate.per_second(2999) > 0
    assert rate.per_second(3000) == 0


def test_a_bucket() -> None:
    """It is full at first; what is taken beyond is owed, and comes back at the rate."""
    bucket = TokenBucket(WINDOWS)
    assert bucket.left(10, 0) == 30
    bucket.take(50, 10, 0)
    assert bucket.throttle_ms(10, 0) == 2000
    assert bucket.left(10, 1000) == -10
    assert bucket.throttle_ms(10, 2500) == 0
    assert bucket.left(10, 1_000_000) == 30


def test_a_tiny_quota_asked_for_more_time_than_an_answer_can_say() -> None:
    """Bounds of a millionth of a byte are legal; the client was hung up on."""
    rate, bucket = Rate(Windows()), TokenBucket(Windows())
    rate.record(1e6, 0)
    bucket.take(1e6, 1e-6, 0)
    assert rate.throttle_ms(1e-6, 0) == bucket.throttle_ms(1e-6, 0) == 2**31 - 1
    assert rate.throttle_ms(5e-324, 0) == 2**31 - 1


def test_precedence() -> None:
    """Kafka's order: user and client id, user, client id, each by name before its default."""
    orders = [
        (entity(user="u", client_id="c"), ("u", "c")),
        (entity(user="u", client_id=None), ("u", "c")),
        (entity(user="u"), ("u", "")),
        (entity(user=None, client_id="c"), ("u", "c")),
        (entity(user=None, client_id=None), ("u", "c")),
        (entity(user=None), ("u", "")),
        (entity(client_id="c"), ("", "c")),
        (entity(client_id=None), ("", "c")),
    ]
    quotas = {of: {"producer_byte_rate": float(number)} for number, (of, _) in enumerate(orders)}
    for number, (of, shared_by) in enumerate(orders):
        quota = quota_for(quotas, "producer_byte_rate", "u", "c")
        assert quota is not None
        assert quota == (number, shared_by)
        del quotas[of]
    assert quota_for(quotas, "producer_byte_rate", "u", "c") is None


def test_a_client_without_an_id_has_its_users_quota() -> None:
    """Client ids' defaults are not theirs."""
    quotas = {entity(client_id=None): {"x": 1.0}, entity(user="u"): {"x": 2.0}}
    found = quota_for(quotas, "x", "u", "")
    assert found is not None
    assert found.bound == 2
    assert quota_for(quotas, "x", "v", "") is None


def test_addresses() -> None:
    """By address before the default."""
    rates = {
        entity(ip=None): {"connection_creation_rate": 5.0},
        entity(ip="::1"): {"connection_creation_rate": 1.0},
    }
    assert connection_rate(rates, "::1") == 1
    assert connection_rate(rates, "127.0.0.1") == 5
    assert connection_rate({}, "127.0.0.1") is None


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [("user", "a"), ("user", "b")],
        [("ip", "::1"), ("user", "a")],
        [("group", "g")],
        [("ip", "host")],
        [("user", "")],
    ],
)
def test_invalid_entities(pairs: list[tuple[str, str]]) -> None:
    """42 for each."""
    with pytest.raises(InvalidRequestError):
        check_entity(pairs)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("producer_byte_rate", 0.0),
        ("producer_byte_rate", 1.5),
        ("producer_byte_rate", float("nan")),
        ("request_percentage", float("inf")),
        ("connection_creation_rate", 1.0),
        ("speed", 1.0),
    ],
)
def test_invalid_quotas_of_a_user(key: str, value: float) -> None:
    """42 for each."""
    with pytest.raises(InvalidRequestError):
        check_quota(entity(user="u"), key, value)
