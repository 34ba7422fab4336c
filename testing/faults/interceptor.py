"""The interceptor of a broker with faults or a request log: it applies faults, and logs requests.

Fetch sessions (KIP-227): an incremental fetch does not name its partitions, so a fault could not match it.
While a fault names a topic or partition of Fetch, or answers Fetch with an error, there are no sessions: the
client gets FETCH_SESSION_ID_NOT_FOUND, and sends a full request, which names all partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import trio

from splashdam.embedded_broker.execution.answers import CloseConnectionError
from splashdam.embedded_broker.serving.dispatch import Interception, SilencedError
from splashdam.model.broker_errors import ErrorCode
from splashdam.net.reentrant_lock import ReentrantLock
from splashdam.testing.faults.fault import Fault, RequestFilter, check_count, is_from_broker
from splashdam.testing.faults.messages import (
    Names,
    Place,
    copied,
    error_codes,
    leaves,
    merge,
    refusal,
    split,
)
from splashdam.testing.faults.request_log import LoggedRequest, RequestLog, error_name
from splashdam.wire.fields import Part
from splashdam.wire.message import Request, Response
from splashdam.wire.messages.fetch import FetchRequest, FetchResponse
from splashdam.wire.messages.metadata import MetadataRequest, MetadataResponse
from splashdam.wire.messages.produce import ProduceRequest
from splashdam.wire.primitives import records_size
from splashdam.wire.registry import response_class

if TYPE_CHECKING:
    from splashdam.embedded_broker.serving.dispatch import Arrived
    from splashdam.embedded_broker.serving.registry import AskedBroker

_AUTO_CREATION_FIELD_FROM = 4
"""First version of Metadata with ``allow_auto_topic_creation``."""


def api_of(request: type[Request[Any]]) -> str:
    """Return the API's name in snake case: the name of the module that declares the request."""
    return request.__module__.rpartition(".")[2]


class FaultInterceptor:
    """Occupies a broker's `Interception` while there is a fault, or the log is on.

    Attributes:
        log: the request log.
    """

    def __init__(self, interception: Interception) -> None:
        self._interception = interception
        self._guard = ReentrantLock()
        self._faults: tuple[Fault, ...] = ()
        self._refusals: tuple[Refusals, ...] = ()
        self._missed: list[Fault | Refusals] = []
        self.log = RequestLog(self._switch)

    def add(self, fault: Fault) -> None:
        self._guard.run(self._add, fault)
        self._switch()

    def _add(self, fault: Fault) -> None:
        self._faults = (*self._faults, fault)

    def remove(self, fault: Fault) -> None:
        """Remove a fault; do nothing if it was removed before."""
        self._guard.run(self._remove, fault)
        self._switch()

    def _remove(self, fault: Fault) -> None:
        # Removed faults count for ``unhit``, too: a test removes them at the end of their blocks.
        self._note_missed(each for each in self._faults if each is fault)
        self._faults = tuple(each for each in self._faults if each is not fault)

    def add_refusals(self, refusals: Refusals) -> None:
        """Refuse connections from now on."""
        self._guard.run(self._add_refusals, refusals)
        self._switch()

    def _add_refusals(self, refusals: Refusals) -> None:
        self._refusals = (*self._refusals, refusals)

    def remove_refusals(self, refusals: Refusals) -> None:
        """Accept connections again."""
        self._guard.run(self._remove_refusals, refusals)
        self._switch()

    def _remove_refusals(self, refusals: Refusals) -> None:
        self._note_missed(each for each in self._refusals if each is refusals)
        self._refusals = tuple(each for each in self._refusals if each is not refusals)

    def clear(self) -> None:
        """Remove every fault and refusal."""
        self._guard.run(self._clear)
        self._switch()

    def _clear(self) -> None:
        self._note_missed((*self._faults, *self._refusals))
        self._faults, self._refusals = (), ()

    def unhit(self) -> list[Fault | Refusals]:
        """Return the faults and refusals that have happened to no request, removed ones included."""
        return self._guard.run(self._unhit)

    def _unhit(self) -> list[Fault | Refusals]:
        present: tuple[Fault | Refusals, ...] = (*self._faults, *self._refusals)
        return [*self._missed, *(each for each in present if not each.hits)]

    def _note_missed(self, removed: Iterable[Fault | Refusals]) -> None:
        self._missed += [each for each in removed if not each.hits]

    def _switch(self) -> None:
        # The broker tests one attribute per wake: without an interceptor requests take their usual path.
        is_needed = self._faults or self._refusals or self.log.is_on
        self._interception.interceptor = self if is_needed else None

    def admits(self, node_id: int) -> bool:
        """Return whether a new connection is accepted."""
        return not any(each.take(node_id) for each in self._refusals)

    async def intercept(self, arrived: Arrived) -> Response | None:
        """Answer a request by its faults, else by its handler."""
        clock = arrived.context.broker.clock
        at_ms, began_ms = clock.wall_ms(), clock.now_ms()
        answer: Response | None = None
        # What remains if the connection ends before the answer.
        outcome = "abandoned"
        try:
            answer = await self._answer(arrived)
            outcome = "unanswered" if answer is None else "answered"
        except CloseConnectionError:
            outcome = "dropped"
            raise
        except SilencedError:
            outcome = "silenced"
            raise
        finally:
            if self.log.is_on and (self.log.has_brokers or not is_from_broker(arrived)):
                self.log.add(_logged(arrived, answer, outcome, at_ms, clock.now_ms() - began_ms))
        return answer

    async def _answer(self, arrived: Arrived) -> Response | None:
        has_no_session = ends_session(arrived, self._faults)
        # An incremental fetch cannot be matched: it names no partitions.
        if has_no_session and (unnamed := without_partitions(arrived)) is not None:
            return unnamed
        answer = await _after_delay(arrived, self._due(arrived))
        if has_no_session:
            without_session(answer)
        return answer

    def _due(self, arrived: Arrived) -> list[Fault]:
        """Return the faults that happen to this request, oldest first, up to one that ends it."""
        due = []
        api, names = api_of(type(arrived.request)), names_in(arrived.context.broker)
        # `remove` makes a new tuple, so the loop may call it.
        for fault in self._faults:
            if fault.take(arrived, api, names):
                due.append(fault)
                if fault.is_spent:
                    self.remove(fault)
                if fault.action.is_end:
                    break
        return due


class Refusals:
    """New connections are closed at once; as a context manager, until the end of the block.

    Attributes:
        hits: number of connections that were closed.
    """

    def __init__(self, interceptor: FaultInterceptor, times: int | None, broker: int | None) -> None:
        if times is not None:
            check_count("times", times)
        self.hits = 0
        self._interceptor = interceptor
        self._left = times
        self._broker = broker

    def take(self, node_id: int) -> bool:
        """Return whether a connection to this broker is refused, and count it."""
        if self._broker not in (None, node_id) or self._left == 0:
            return False
        self.hits += 1
        if self._left is not None:
            self._left -= 1
        return True

    def remove(self) -> None:
        """Accept connections again."""
        self._interceptor.remove_refusals(self)

    def __repr__(self) -> str:
        where = "any broker" if self._broker is None else f"broker {self._broker}"
        return f"<refused connections of {where}, {self.hits} hits>"

    def __enter__(self) -> Refusals:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def names_in(broker: AskedBroker) -> Names:
    """Return the function that looks up a topic's name in a broker."""

    def name(topic_id: bytes) -> str | None:
        topic = broker.topics.by_id(topic_id)
        return None if topic is None else topic.name

    return name


async def _after_delay(arrived: Arrived, due: Sequence[Fault]) -> Response | None:
    delay_ms = sum(fault.action.delay_ms for fault in due)
    if delay_ms:
        await trio.sleep(delay_ms / 1000)
    answer = await _ended(arrived, due[-1]) if due and due[-1].action.is_end else await arrived.handle()
    throttle_ms = max((fault.action.throttle_ms for fault in due), default=0)
    if throttle_ms and answer is not None and hasattr(answer, "throttle_time_ms"):
        answer.throttle_time_ms = throttle_ms
    return answer


async def _ended(arrived: Arrived, fault: Fault) -> Response | None:
    action = fault.action
    if action.black_hole:
        raise SilencedError
    if action.error is not None:
        return await _refused(arrived, fault.which, action.error, action.after)
    if action.drop == "before":
        raise CloseConnectionError(f"fault {fault.which}: dropped before the request was handled", [])
    answer = await arrived.handle()
    parts = [] if answer is None else arrived.encode(answer)
    if action.cut_after_bytes is not None:
        kept = _first_bytes(parts, action.cut_after_bytes)
        raise CloseConnectionError(f"fault {fault.which}: the answer was cut", kept)
    _close(parts)
    raise CloseConnectionError(f"fault {fault.which}: dropped after the request was handled", [])


async def _refused(arrived: Arrived, which: RequestFilter, code: int, after: bool) -> Response | None:
    """Answer the topics and partitions that match the fault with its error, and handle the others."""
    request, version = arrived.request, arrived.context.version
    if isinstance(request, MetadataRequest):
        return await _refused_metadata(arrived, request, which, code, after)
    chosen: Any = request
    rest: Any = None
    if which.names_places:
        chosen, rest = split(request, version, names_in(arrived.context.broker), which.includes)
    refused = refusal(chosen or request, response_class(type(request)), version, code)
    truth = None
    if after or rest is not None:
        truth = await arrived.handle(request if after else rest)
    if isinstance(request, ProduceRequest) and request.acks == 0:
        raise CloseConnectionError(f"fault {which}: with acks=0 a closed connection is the only answer", [])
    if truth is None or rest is None:
        if truth is not None:
            _close(arrived.encode(truth))
        return refused
    return merge(truth, refused, version)


async def _refused_metadata(
    arrived: Arrived, request: MetadataRequest, which: RequestFilter, code: int, after: bool
) -> Response | None:
    """Put the error into topics or partitions; the brokers stay listed, so that the client can ask again."""
    if not after and arrived.context.version >= _AUTO_CREATION_FIELD_FROM:
        request = copied(request, allow_auto_topic_creation=False)
    answer = await arrived.handle(request)
    assert isinstance(answer, MetadataResponse)
    for topic in answer.topics:
        if not which.includes(Place(topic.name, None)):
            continue
        if which.partition is None:
            topic.error_code, topic.partitions = code, []
        for partition in topic.partitions:
            if partition.partition_index == which.partition:
                partition.error_code, partition.leader_id = code, -1
    return answer


def _first_bytes(parts: list[Part], count: int) -> list[Part]:
    """Return the first ``count`` bytes of a frame."""
    kept: list[Part] = []
    for part in parts:
        if count <= 0:
            break
        data = part if isinstance(part, bytes | bytearray | memoryview) else part.read()  # type: ignore[attr-defined]  # a slice of a log
        kept.append(memoryview(data)[:count])
        count -= records_size(part)
    _close(parts)
    return kept


def _close(parts: list[Part]) -> None:
    """Close the file slices of an answer that is not sent."""
    for part in parts:
        if not isinstance(part, bytes | bytearray | memoryview):
            part.close()  # type: ignore[attr-defined]  # a slice of a log


def _logged(
    arrived: Arrived, answer: Response | None, outcome: str, at_ms: int, took_ms: float
) -> LoggedRequest:
    context = arrived.context
    places = tuple(leaves(arrived.request, context.version, names_in(context.broker)))
    codes = [] if answer is None else error_codes(answer, context.version)
    return LoggedRequest(
        api=api_of(type(arrived.request)),
        version=context.version,
        client_id=context.client_id,
        broker=context.broker.node_id,
        topics=tuple(dict.fromkeys(place.topic for place in places if place.topic is not None)),
        places=places,
        request=arrived.request,
        at_ms=at_ms,
        took_ms=took_ms,
        errors=tuple(map(error_name, dict.fromkeys(codes))),
        outcome=outcome,
    )


def ends_session(arrived: Arrived, faults: Iterable[Fault]) -> bool:
    """Return whether a fault needs each Fetch of this client to name its partitions."""
    context = arrived.context
    return isinstance(arrived.request, FetchRequest) and any(
        (fault.which.names_places or fault.action.error is not None)
        and fault.which.admits("fetch", context.client_id, context.broker.node_id)
        and fault.concerns(arrived)
        for fault in faults
    )


def without_partitions(arrived: Arrived) -> FetchResponse | None:
    """Return the refusal of an incremental fetch; None for any other request."""
    request = arrived.request
    if isinstance(request, FetchRequest) and request.session_id and request.session_epoch > 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    return None


def without_session(answer: Response | None) -> None:
    """Take the session id out of a Fetch response."""
    if isinstance(answer, FetchResponse):
        answer.session_id = 0
