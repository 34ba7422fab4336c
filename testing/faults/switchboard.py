"""The interceptor of a broker under test: looks which faults are due, lets them happen, and logs.

Faults and fetch sessions (KIP-227): a request of a session does not name the partitions it is about. While a
fault waits for certain partitions, or is to be told of each, sessions therefore end: the client is told that
its session is not known, asks for everything, which it names then, and is given no new session.

Answers that say an error, in the shape of any API and version; built from what was asked and declared. Where
an API answers for each partition the error stands with each partition, elsewhere at the top, and where there
is no top with each topic, group or resource. That is how a broker answers too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from splashdam.embedded_broker.answering.answers import CloseConnectionError
from splashdam.embedded_broker.serving.dispatch import Interception, SilencedError
from splashdam.model.error_codes import ErrorCode
from splashdam.net.guard import Guard
from splashdam.testing.faults.fault import Fault, Which, is_from_broker
from splashdam.testing.faults.places import (
    PARTITION_NAMES,
    TOPIC_NAMES,
    Names,
    Place,
    array_fields,
    copied,
    element_class,
    first_named,
    leaves,
    split,
)
from splashdam.testing.faults.request_log import LoggedRequest, RequestLog, error_name
from splashdam.wire.fields import RECORDS, Part
from splashdam.wire.message import Request, Response, Struct
from splashdam.wire.messages.fetch import FetchRequest, FetchResponse
from splashdam.wire.messages.metadata import MetadataRequest, MetadataResponse
from splashdam.wire.messages.produce import ProduceRequest
from splashdam.wire.primitives import records_size
from splashdam.wire.registry import response_class

if TYPE_CHECKING:
    from splashdam.embedded_broker.serving.dispatch import Arrived
    from splashdam.embedded_broker.serving.registry import AskedBroker

_FIRST_CHOICE_VERSION = 4
"""Of Metadata: it lets the client say whether topics may be made."""


def api_of(request: type[Request[Any]]) -> str:
    """The API's name in snake case: that of the file with its declaration."""
    return request.__module__.rpartition(".")[2]


class Switchboard:
    """Stands in a broker's `Interception` as long as there is a fault, or a log that is on.

    Attributes:
        log: of the requests.
    """

    def __init__(self, interception: Interception) -> None:
        self._interception = interception
        self._guard = Guard()
        self._faults: tuple[Fault, ...] = ()
        self._refusals: tuple[Refusals, ...] = ()
        self._missed: list[Fault | Refusals] = []
        self.log = RequestLog(self._switch)

    def add(self, fault: Fault) -> None:
        """Sets a fault."""
        self._guard.run(self._add, fault)
        self._switch()

    def _add(self, fault: Fault) -> None:
        self._faults = (*self._faults, fault)

    def remove(self, fault: Fault) -> None:
        """Ends a fault; one that is not set is left alone."""
        self._guard.run(self._remove, fault)
        self._switch()

    def _remove(self, fault: Fault) -> None:
        self._note_missed(each for each in self._faults if each is fault)
        self._faults = tuple(each for each in self._faults if each is not fault)

    def add_refusals(self, refusals: Refusals) -> None:
        """Refuses connections from now on."""
        self._guard.run(self._add_refusals, refusals)
        self._switch()

    def _add_refusals(self, refusals: Refusals) -> None:
        self._refusals = (*self._refusals, refusals)

    def remove_refusals(self, refusals: Refusals) -> None:
        """Takes connections again."""
        self._guard.run(self._remove_refusals, refusals)
        self._switch()

    def _remove_refusals(self, refusals: Refusals) -> None:
        self._note_missed(each for each in self._refusals if each is refusals)
        self._refusals = tuple(each for each in self._refusals if each is not refusals)

    def clear(self) -> None:
        """Ends every fault."""
        self._guard.run(self._clear)
        self._switch()

    def _clear(self) -> None:
        self._note_missed((*self._faults, *self._refusals))
        self._faults, self._refusals = (), ()

    def unhit(self) -> list[Fault | Refusals]:
        """What was set and has happened to nobody, removed or not."""
        return self._guard.run(self._unhit)

    def _unhit(self) -> list[Fault | Refusals]:
        present: tuple[Fault | Refusals, ...] = (*self._faults, *self._refusals)
        return [*self._missed, *(each for each in present if not each.hits)]

    def _note_missed(self, removed: Iterable[Fault | Refusals]) -> None:
        self._missed += [each for each in removed if not each.hits]

    def _switch(self) -> None:
        is_needed = self._faults or self._refusals or self.log.is_on
        self._interception.interceptor = self if is_needed else None

    def admits(self, node_id: int) -> bool:
        """Whether no fault refuses this connection."""
        return not any(each.take(node_id) for each in self._refusals)

    async def intercept(self, arrived: Arrived) -> Response | None:
        """What the faults, or else the handler, say to a request."""
        clock = arrived.context.broker.clock
        at_ms, began_ms = clock.wall_ms(), clock.now_ms()
        answer: Response | None = None
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
        if has_no_session and (unnamed := refused(arrived)) is not None:
            return unnamed
        answer = await _after_delay(arrived, self._due(arrived))
        if has_no_session:
            without_session(answer)
        return answer

    def _due(self, arrived: Arrived) -> list[Fault]:
        """The faults of this request: delays and throttling as set, up to the first that ends it."""
        due = []
        api, names = api_of(type(arrived.request)), names_in(arrived.context.broker)
        for fault in self._faults:
            if fault.take(arrived, api, names):
                due.append(fault)
                if fault.is_spent:
                    self.remove(fault)
                if fault.action.is_end:
                    break
        return due


class Refusals:
    """Connections that are closed as soon as they are made; in a ``with`` block, to its end.

    Attributes:
        hits: how many were.
    """

    def __init__(self, board: Switchboard, times: int | None, broker: int | None) -> None:
        self.hits = 0
        self._board = board
        self._left = times
        self._broker = broker

    def take(self, node_id: int) -> bool:
        """Whether a connection to this broker is refused; counts it then."""
        if self._broker not in (None, node_id) or self._left == 0:
            return False
        self.hits += 1
        if self._left is not None:
            self._left -= 1
        return True

    def remove(self) -> None:
        """Lets connections in again."""
        self._board.remove_refusals(self)

    def __repr__(self) -> str:
        where = "any broker" if self._broker is None else f"broker {self._broker}"
        return f"<refused connections of {where}, {self.hits} hits>"

    def __enter__(self) -> Refusals:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def names_in(broker: AskedBroker) -> Names:
    """What a broker calls its topics."""

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
        return await _lie(arrived, fault.which, action.error, action.after)
    if action.drop == "before":
        raise CloseConnectionError(f"the fault {fault.which} drops it before its request is handled", [])
    answer = await arrived.handle()
    parts = [] if answer is None else arrived.encode(answer)
    if action.cut_after_bytes is not None:
        kept = _first_bytes(parts, action.cut_after_bytes)
        raise CloseConnectionError(f"the fault {fault.which} cuts its answer", kept)
    _close(parts)
    raise CloseConnectionError(f"the fault {fault.which} drops it after its request was handled", [])


async def _lie(arrived: Arrived, which: Which, code: int, after: bool) -> Response | None:
    """Answers with an error what the fault is about, and truly what it is not about."""
    request, version = arrived.request, arrived.context.version
    if isinstance(request, MetadataRequest):
        return await _lie_of_metadata(arrived, request, which, code, after)
    chosen: Any = request
    rest: Any = None
    if which.is_about_places:
        chosen, rest = split(request, version, names_in(arrived.context.broker), which.includes)
    lie = refusal(chosen or request, response_class(type(request)), version, code)
    truth = None
    if after or rest is not None:
        truth = await arrived.handle(request if after else rest)
    if isinstance(request, ProduceRequest) and request.acks == 0:
        raise CloseConnectionError(f"the fault {which}, and acks=0 leaves no other way to say so", [])
    if truth is None or rest is None:
        if truth is not None:
            _close(arrived.encode(truth))
        return lie
    return merge(truth, lie, version)


async def _lie_of_metadata(
    arrived: Arrived, request: MetadataRequest, which: Which, code: int, after: bool
) -> Response | None:
    """Brokers stay known, or no client would come back; topics, or one partition of them, have the error."""
    if not after and arrived.context.version >= _FIRST_CHOICE_VERSION:
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
    """The first bytes of a frame, as if its connection had broken there."""
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
    """Gives back what an answer that is not sent holds of files."""
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
    """Whether a fault waits for what this client fetches, so that it may have no session."""
    context = arrived.context
    return isinstance(arrived.request, FetchRequest) and any(
        (fault.which.is_about_places or fault.action.error is not None)
        and fault.which.admits("fetch", context.client_id, context.broker.node_id)
        and fault.concerns(arrived)
        for fault in faults
    )


def refused(arrived: Arrived) -> FetchResponse | None:
    """What a request is answered that does not name all it is about; None: it does."""
    request = arrived.request
    if isinstance(request, FetchRequest) and request.session_id and request.session_epoch > 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    return None


def without_session(answer: Response | None) -> None:
    """Gives the client no session."""
    if isinstance(answer, FetchResponse):
        answer.session_id = 0


S = TypeVar("S", bound=Struct)

_ERROR_NAMES = ("error_code", "partition_error_code")
_KEY_NAMES = ("key", "group_id", "transactional_id", *TOPIC_NAMES, "user", "group")
_IDENTITY = (*_KEY_NAMES, *PARTITION_NAMES, "topic_id", "producer_id", "resource_type")
_UNKNOWN = frozenset(
    (
        "base_offset",
        "committed_offset",
        "generation_id",
        "high_watermark",
        "low_watermark",
        "member_epoch",
        "node_id",
        "producer_epoch",
        "producer_id",
    )
)
"""What Kafka answers with -1 beside an error, whatever the schema's default is."""

_FILTERS = frozenset(("states_filter", "types_filter", "forgotten_topics_data"))


def refusal(request: Request[Any], kind: type[Response], version: int, code: int) -> Response:
    """The answer that refuses all a request asks for.

    Args:
        request: what was asked.
        kind: class of the answer.
        version: of both.
        code: the error.
    """
    answer = kind()
    if not _answers_each(kind, version) or not _fill(answer, request, version, code):
        _refuse(answer, version, code)
    return answer


def _answers_each(kind: type[Struct], version: int) -> bool:
    """Whether errors belong to the elements: those of partitions always, others where the top has none."""
    return _errs_in_partitions(kind, version) or first_named(kind, _ERROR_NAMES, version) is None


def _errs_in_partitions(kind: type[Struct], version: int) -> bool:
    for inner in _arrays_with_errors(kind, version).values():
        errs = first_named(inner, _ERROR_NAMES, version) is not None
        if errs and first_named(inner, PARTITION_NAMES, version) is not None:
            return True
        if _errs_in_partitions(inner, version):
            return True
    return False


def _arrays_with_errors(kind: type[Struct], version: int) -> dict[str, type[Struct]]:
    found = {}
    for field in array_fields(kind, version):
        inner = element_class(field)
        if inner is not None and _has_error(inner, version):
            found[field.name] = inner
    return found


def _has_error(kind: type[Struct], version: int) -> bool:
    return first_named(kind, _ERROR_NAMES, version) is not None or bool(_arrays_with_errors(kind, version))


def _fill(answer: Struct, asked: Any, version: int, code: int) -> bool:
    """Refuses each element that was asked; False where the answer's elements cannot be known from that."""
    if not isinstance(asked, Struct):
        return False
    for name, kind in _arrays_with_errors(type(answer), version).items():
        refused: dict[Any, Struct] = {}
        for each in _asked(asked, version):
            element = _element(kind, each, version, code)
            refused[_identity(element, version) or len(refused)] = element
        if refused:
            setattr(answer, name, list(refused.values()))
            return True
    return False


def _asked(request: Struct, version: int) -> Iterable[Any]:
    """The elements that are answered one by one."""
    for field in array_fields(type(request), version):
        if field.name == "dirs":  # answered by topic
            yield from (topic for each in getattr(request, "dirs") for topic in each.topics)  # noqa: B009
        elif field.name not in _FILTERS:
            yield from getattr(request, field.name) or ()


def _element(kind: type[S], asked: Any, version: int, code: int) -> S:
    element = kind()
    if isinstance(asked, Struct):
        _copy_identity(element, asked, version)
    else:
        names = PARTITION_NAMES if isinstance(asked, int) else _KEY_NAMES
        name = first_named(kind, names, version)
        if name is not None:
            setattr(element, name, asked)
    if not _fill(element, asked, version, code):
        _refuse(element, version, code)
    return element


def _copy_identity(element: Struct, asked: Struct, version: int) -> None:
    for names in (_KEY_NAMES, PARTITION_NAMES, ("topic_id",), ("producer_id",), ("resource_type",)):
        ours, theirs = first_named(type(element), names, version), first_named(type(asked), names, version)
        if ours is not None and theirs is not None:
            setattr(element, ours, getattr(asked, theirs))
    for field in array_fields(type(element), version):
        kind = element_class(field)
        if field.name == "entity" and kind is not None:  # of a quota: an array that is a name
            copies = [{own.name: getattr(each, own.name) for own in kind.FIELDS} for each in asked.entity]  # type: ignore[attr-defined]  # both have it
            setattr(element, field.name, [kind(**copy) for copy in copies])


def _refuse(element: Struct, version: int, code: int) -> None:
    for field in element.FIELDS:
        if field.name in _ERROR_NAMES and version in field.versions:
            setattr(element, field.name, code)
        elif field.name == "error_message" and version in field.versions:
            setattr(element, field.name, "a fault that a test has set")
        elif field.type is RECORDS:
            setattr(element, field.name, b"")  # librdkafka takes null for a broken answer
        elif field.name in _UNKNOWN and not getattr(element, field.name):
            setattr(element, field.name, -1)


def _identity(element: Struct, version: int) -> tuple[Any, ...]:
    names = (field.name for field in element.FIELDS if version in field.versions)
    found = (getattr(element, name) for name in names if name in _IDENTITY)
    return tuple(bytes(each) if isinstance(each, memoryview) else each for each in found)


def merge(real: S, lie: S, version: int) -> S:
    """Puts a refusal of some of what was asked into the answer to the rest, or to all of it."""
    for field in array_fields(type(lie), version):
        lies = getattr(lie, field.name)
        if not lies or element_class(field) is None:
            continue
        known = {_identity(each, version): each for each in getattr(real, field.name) or ()}
        for each in lies:
            identity = _identity(each, version)
            is_deeper = identity in known and bool(_arrays_with_errors(type(each), version))
            known[identity] = merge(known[identity], each, version) if is_deeper else each
        setattr(real, field.name, list(known.values()))
    return real


def error_codes(answer: Struct, version: int) -> list[int]:
    """Every error of an answer, in its order, without those that say there is none."""
    name = first_named(type(answer), _ERROR_NAMES, version)
    codes = [getattr(answer, name)] if name is not None else []
    for array in _arrays_with_errors(type(answer), version):
        for element in getattr(answer, array) or ():
            codes += error_codes(element, version)
    return [code for code in codes if code]
