"""Pushing metrics (KIP-714), one answer after the other: Kafka's table of what follows an error."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from splashdam.model.broker_errors import ErrorCode, UnsupportedVersionError
from splashdam.model.errors import IllegalStateError, KafkaConnectionError
from splashdam.record.batch import Codec
from splashdam.record.compression import decompress
from splashdam.sender.telemetry.telemetry import (
    DEFAULT_INTERVAL_MS,
    LAST_PUSH_MS,
    Telemetry,
    TelemetryEvent,
    TelemetryState,
    Wanted,
)
from splashdam.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from splashdam.wire.messages.push_telemetry import PushTelemetryResponse

SOME_ID = bytes(range(16))
INTERVAL_MS = 10_000


class Rig:
    """A telemetry whose only link keeps what is submitted, for the test to answer."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.sendable = True
        self.refusal: Exception | None = None
        self.asked: list[Any] = []
        self.identified: list[bytes] = []
        link = self
        context: Any = SimpleNamespace(
            clock=SimpleNamespace(now_ms=lambda: self.now_ms),
            random=lambda: 0.5,
            wakeup=SimpleNamespace(wake=lambda: None),
            settings=SimpleNamespace(client_id="me"),
        )
        links: Any = SimpleNamespace(any_sendable=lambda: link if self.sendable else None)
        self.telemetry = Telemetry(context, links, self.encode, self.identified.append)

    def encode(self, wanted: Wanted) -> bytes:
        return b"metrics " + ",".join(wanted.metrics).encode()

    def submit(self, _kind: Any, build: Any, on_done: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append(build(0))
        self._on_done = on_done

    def answer(self, response: Any) -> None:
        """What comes of the request under way: a response, or an error."""

        def result() -> Any:
            if isinstance(response, Exception):
                raise response
            return response

        self._on_done(SimpleNamespace(result=result))

    def subscribe(self, **changes: Any) -> None:
        self.telemetry.act(self.now_ms)
        fields = {
            "client_instance_id": SOME_ID,
            "subscription_id": 7,
            "accepted_compression_types": [int(Codec.GZIP)],
            "push_interval_ms": INTERVAL_MS,
            "requested_metrics": ["*"],
            **changes,
        }
        self.answer(GetTelemetrySubscriptionsResponse(**fields))

    def push(self) -> Any:
        self.now_ms = self.telemetry.due_ms
        self.telemetry.act(self.now_ms)
        return self.asked[-1]

    def in_ms(self) -> float:
        return self.telemetry.due_ms - self.now_ms


def test_the_usual_course() -> None:
    """Asks, pushes after the interval with jitter, then at the interval, compressed as the broker wants."""
    rig = Rig()
    rig.subscribe()
    assert rig.identified == [SOME_ID]
    assert rig.in_ms() == INTERVAL_MS  # random() is 0.5
    push = rig.push()
    assert (push.client_instance_id, push.subscription_id, push.terminating) == (SOME_ID, 7, False)
    assert decompress(Codec(push.compression_type), push.metrics) == b"metrics *"
    assert rig.in_ms() == math.inf
    rig.answer(PushTelemetryResponse())
    assert rig.in_ms() == INTERVAL_MS


def test_nothing_is_done_before_it_is_due_nor_without_a_connection() -> None:
    rig = Rig()
    rig.sendable = False
    rig.telemetry.act(0)
    assert not rig.asked
    rig.sendable = True
    rig.subscribe()
    rig.telemetry.act(INTERVAL_MS - 1)
    assert len(rig.asked) == 1


def test_who_wants_nothing_is_asked_again_after_the_interval() -> None:
    rig = Rig()
    rig.subscribe(requested_metrics=[])
    assert rig.in_ms() == INTERVAL_MS
    rig.push()
    assert rig.asked[-1].client_instance_id == SOME_ID


@pytest.mark.parametrize(
    ("code", "in_ms"),
    [
        (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, 0),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 0),
        (ErrorCode.TELEMETRY_TOO_LARGE, INTERVAL_MS),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, INTERVAL_MS),
        (ErrorCode.INVALID_REQUEST, math.inf),
        (ErrorCode.INVALID_RECORD, math.inf),
        (ErrorCode.UNSUPPORTED_VERSION, math.inf),
    ],
)
def test_what_follows_a_refused_push(code: int, in_ms: float) -> None:
    """The subscription is asked for anew, at once or after the interval; or nothing more is done."""
    rig = Rig()
    rig.subscribe()
    rig.push()
    rig.answer(PushTelemetryResponse(error_code=code))
    assert rig.in_ms() == in_ms
    assert rig.telemetry.ended == math.isinf(in_ms)
    if not rig.telemetry.ended:
        rig.now_ms = rig.telemetry.due_ms
        rig.subscribe()
        assert rig.asked[-1].client_instance_id == SOME_ID


@pytest.mark.parametrize("under_way", ["question", "push"])
def test_a_lost_connection_is_no_reason_to_hurry(under_way: str) -> None:
    rig = Rig()
    if under_way == "push":
        rig.subscribe()
        rig.push()
    else:
        rig.telemetry.act(0)
    rig.answer(KafkaConnectionError("gone"))
    assert rig.in_ms() == DEFAULT_INTERVAL_MS


def test_a_broker_that_speaks_no_such_version_is_left_alone() -> None:
    rig = Rig()
    rig.refusal = UnsupportedVersionError("no")
    rig.telemetry.act(0)
    assert rig.telemetry.ended


def test_the_last_push() -> None:
    """At the end, whenever the next one would have been due; its answer is waited for, within limits."""
    for answered in (True, False):
        rig = Rig()
        rig.subscribe()
        rig.telemetry.close(rig.now_ms)
        assert rig.asked[-1].terminating
        assert not rig.telemetry.ended
        assert rig.in_ms() == LAST_PUSH_MS
        if answered:
            rig.answer(PushTelemetryResponse())
        else:
            rig.now_ms += LAST_PUSH_MS
            rig.telemetry.close(rig.now_ms)
        assert rig.telemetry.ended


def test_closing_waits_for_a_push_under_way_and_then_pushes_the_last() -> None:
    rig = Rig()
    rig.subscribe()
    rig.push()
    rig.telemetry.close(rig.now_ms)
    assert rig.in_ms() == LAST_PUSH_MS
    rig.answer(PushTelemetryResponse())
    rig.telemetry.close(rig.now_ms)
    assert rig.asked[-1].terminating


@pytest.mark.parametrize("sendable", [True, False])
def test_closing_without_a_subscription_or_a_connection_ends_at_once(sendable: bool) -> None:
    rig = Rig()
    if not sendable:
        rig.subscribe()
        rig.sendable = False
    rig.telemetry.close(rig.now_ms)
    assert rig.telemetry.ended
    rig.telemetry.close(rig.now_ms)  # and again


@pytest.mark.parametrize(
    ("metrics", "name", "wanted"),
    [
        (["*"], "a.b", True),
        ([""], "a.b", True),
        (["a."], "a.b", True),
        (["b", "a.b.c"], "a.b", False),
        ([], "a.b", False),
    ],
)
def test_what_is_wanted(metrics: list[str], name: str, wanted: bool) -> None:
    assert Wanted(metrics, True).wants(name) is wanted


def test_unknown_codecs_are_passed_over() -> None:
    rig = Rig()
    rig.subscribe(accepted_compression_types=[99, int(Codec.GZIP)])
    assert rig.push().compression_type == Codec.GZIP
    rig = Rig()
    rig.subscribe(accepted_compression_types=[99])
    assert rig.push().metrics == b"metrics *"


def test_an_illegal_event_names_the_state() -> None:
    rig = Rig()
    with pytest.raises(IllegalStateError, match="telemetry that is ASK cannot TAKEN"):
        rig.telemetry._advance(TelemetryEvent.TAKEN)
    assert rig.telemetry._state is TelemetryState.ASK
