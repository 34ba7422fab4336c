"""The requests that wait for answers, without a connection."""

from __future__ import annotations

import pytest

from splashdam.model.errors import ProtocolError
from splashdam.net.connection.in_flight import InFlightRequests, PendingResponse, Traffic
from splashdam.wire.header import encode_response
from splashdam.wire.messages.metadata import MetadataRequest, MetadataResponse

VERSION = MetadataRequest.VERSIONS[-1]


class HandClock:
    """Stands still until it is set."""

    now = 0.0

    def now_ms(self) -> float:
        return self.now


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def requests(clock: HandClock) -> InFlightRequests:
    return InFlightRequests(2, clock=clock, timeout_ms=1_000, traffic=Traffic(1), peer="node 1")


def ask(requests: InFlightRequests, timeout_ms: float | None = None) -> PendingResponse[MetadataResponse]:
    pending = requests.pend(MetadataRequest, VERSION, timeout_ms, None)
    requests.queue.append(pending)
    return pending


def answer(correlation_id: int, throttle_ms: int = 0) -> memoryview:
    response = MetadataResponse(throttle_time_ms=throttle_ms)
    frame = b"".join(encode_response(response, version=VERSION, correlation_id=correlation_id))
    return memoryview(frame)[4:]  # behind the size


def test_an_answer_goes_to_the_oldest_request(requests: InFlightRequests) -> None:
    first, second = ask(requests), ask(requests)
    assert not requests.can_send_more()
    requests.complete_next(answer(1))
    assert first.done()
    assert not second.done()
    assert requests.can_send_more()


def test_an_answer_of_another_request_leaves_the_queue_alone(requests: InFlightRequests) -> None:
    pending = ask(requests)
    with pytest.raises(ProtocolError, match="node 1 sent correlation id 2 instead of Metadata"):
        requests.complete_next(answer(2))
    assert requests.first() == [pending]


def test_correlation_ids_stay_positive(requests: InFlightRequests) -> None:
    """They are Kafka's int32."""
    requests.last_correlation_id = 0x7FFFFFFF
    ask(requests)
    assert requests.last_correlation_id == 0
    requests.complete_next(answer(0))
    assert requests.first() == []


def test_a_throttled_broker_is_left_alone_until_its_time(
    requests: InFlightRequests, clock: HandClock
) -> None:
    ask(requests)
    requests.complete_next(answer(1, throttle_ms=300))
    assert (requests.throttled_ms, requests.can_send_more()) == (300, False)
    clock.now = 300
    assert (requests.throttled_ms, requests.can_send_more()) == (0, True)


def test_late_is_what_had_the_shorter_time(requests: InFlightRequests, clock: HandClock) -> None:
    """Whatever the order of the requests."""
    assert requests.next_deadline_ms() == float("inf")
    ask(requests)
    hurried = ask(requests, timeout_ms=100)
    assert requests.next_deadline_ms() == 100
    assert requests.late() == []
    clock.now = 100
    assert requests.late() == [hurried]
