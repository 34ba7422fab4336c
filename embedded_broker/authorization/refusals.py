"""What guards have in common: splitting requests, and adding refusals to answers.

A guard authorizes in the same step in which it calls the handler, so that topic ids and names still mean the
same. Refusals are added afterwards, in as many turns as they take (``execution/turns.py``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, TypeAlias, TypeVar

from splashdam.embedded_broker.execution.answers import Answer, Parked
from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.serving.registry import RequestContext
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import ErrorCode
from splashdam.wire.fields import ArrayType, StructType
from splashdam.wire.message import Response, Struct

T = TypeVar("T")
Change: TypeAlias = Callable[[Any], Steps[None]]
"""Completes an answer."""

CODES = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""Error code for an operation that is denied, by resource type."""

REASONS = {
    code: f"{kind.name.replace('_', ' ').capitalize()} authorization failed." for kind, code in CODES.items()
}
"""Error messages by code, in Kafka's words."""

_REFUSED_IN_A_UNIT = 4
"""Refusals in one unit of work: each takes 6 µs, since its fields are found by name."""

_NAMES = ("name", "topic", "topic_id", "resource_type", "resource_name")
_INDEXES = ("index", "partition_index", "partition", "partition_id")
_CODES = ("error_code", "partition_error_code")
_UNKNOWN = {"base_offset": -1, "low_watermark": -1, "committed_offset": -1, "metadata": "", "name": None}
"""Values of refused answers that differ from the declared defaults."""


def then(answer: Answer, change: Change, context: RequestContext) -> Steps[Answer]:
    """Complete an answer, now or once a parked one is given."""
    if isinstance(answer, Parked):
        changed = partial(_changed, answer.wait, change, context)
        return Parked(changed, lets_others_begin=answer.lets_others_begin)
    if answer is not None:
        yield from change(answer)
    return answer


async def _changed(
    wait: Callable[[], Awaitable[Response | None]], change: Change, context: RequestContext
) -> Response | None:
    answer = await wait()
    if answer is not None:
        await context.broker.turns.finish_steps(change(answer), context.account)
    return answer


def split(items: Iterable[T], is_allowed: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """Return the allowed items and the others; in one step with the handler's call."""
    allowed: list[T] = []
    refused: list[T] = []
    for item in items:
        (allowed if is_allowed(item) else refused).append(item)
    return allowed, refused


def topic_name(topic: Any, context: RequestContext) -> str | None:
    """Return the name of a topic that a request names by name or id; None for an unknown id."""
    name: str | None = getattr(topic, "name", None) or getattr(topic, "topic", None)
    if name or not hasattr(topic, "topic_id"):
        return name
    found = context.broker.topics.by_id(topic.topic_id)
    return None if found is None else found.name


def may(operation: Operation, context: RequestContext) -> Callable[[Any], bool]:
    """Return a predicate for topics of a request; the handler refuses topics without a name."""

    def is_allowed(topic: Any) -> bool:
        name = topic_name(topic, context)
        return name is None or context.authorize(operation, ResourceType.TOPIC, name)

    return is_allowed


def element_of(kind: type[Struct], attribute: str) -> type[Struct]:
    """Return the element type of an array field."""
    (field,) = (field for field in kind.FIELDS if field.name == attribute)
    assert isinstance(field.type, ArrayType)
    assert isinstance(field.type.element, StructType)
    return field.type.element.cls


def refused(kind: type[Struct], items: Iterable[Any], code: int) -> Steps[list[Any]]:
    """Return the answer's elements that refuse elements of a request."""
    made = []
    for item in items:
        made.append((yield from _refused(kind, item, code)))
        if len(made) % _REFUSED_IN_A_UNIT == 0:
            yield 1
    return made


def _refused(kind: type[Struct], item: Any, code: int) -> Steps[Any]:
    """Return one refusal, with the names of the item; if answers have a code per partition, one for each."""
    made: Any = kind()
    names = {field.name for field in kind.FIELDS}
    for name, value in _UNKNOWN.items():
        if name in names:
            setattr(made, name, value)
    for name in _NAMES:
        if name in names and hasattr(item, name):
            setattr(made, name, getattr(item, name))
    index = (
        item if isinstance(item, int) else next((getattr(item, x) for x in _INDEXES if hasattr(item, x)), 0)
    )
    for name in names.intersection(_INDEXES):
        setattr(made, name, index)
    for name in names.intersection(_CODES):
        setattr(made, name, int(code))
    if "error_message" in names:
        made.error_message = REASONS.get(ErrorCode(code))
    if not names.intersection(_CODES):
        (attribute,) = (field.name for field in kind.FIELDS if isinstance(field.type, ArrayType))
        of = element_of(kind, attribute)
        setattr(made, attribute, (yield from refused(of, _partitions_of(item), code)))
    return made


def _partitions_of(topic: Any) -> Iterable[Any]:
    for name in ("partitions", "partition_data", "partition_indexes"):
        if hasattr(topic, name):
            found: Iterable[Any] = getattr(topic, name)
            return found
    raise AttributeError(f"{topic!r} has no partitions")


def add_refused(items: Iterable[Any], code: int, attribute: str) -> Change:
    """Return a change that adds refusals to an answer."""

    def change(answer: Response) -> Steps[None]:
        of = element_of(type(answer), attribute)
        getattr(answer, attribute).extend((yield from refused(of, items, code)))

    return change
