"""What guards have in common: answers in the place of what is refused.

A guard asks who may do what in the same step in which it calls the handler, so that what a name stands for is
still the same. The refusals come afterwards, in as many turns as they take (``answering/turns.py``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, TypeAlias, TypeVar

from splashdam.embedded_broker.answering.answers import Answer, Parked
from splashdam.embedded_broker.answering.turns import Steps
from splashdam.embedded_broker.security.permissions import Operation, ResourceType
from splashdam.embedded_broker.serving.registry import RequestContext
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
"""What a client is told that may not do something with a resource of the type."""

REASONS = {
    code: f"{kind.name.replace('_', ' ').capitalize()} authorization failed." for kind, code in CODES.items()
}
"""The text beside a code, as Kafka has it; where it has none, ours says it all the same."""

_REFUSED_IN_A_UNIT = 4
"""One takes 6 µs: its fields are found by their names."""

_NAMES = ("name", "topic", "topic_id", "resource_type", "resource_name")
_INDEXES = ("index", "partition_index", "partition", "partition_id")
_CODES = ("error_code", "partition_error_code")
_UNKNOWN = {"base_offset": -1, "low_watermark": -1, "committed_offset": -1, "metadata": "", "name": None}
"""What stands in refused answers where the declared default says something else."""


def then(answer: Answer, change: Change, context: RequestContext) -> Steps[Answer]:
    """Changes an answer, now or when it is there."""
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
    """Those that are allowed, and the others, in one step with what follows."""
    allowed: list[T] = []
    refused: list[T] = []
    for item in items:
        (allowed if is_allowed(item) else refused).append(item)
    return allowed, refused


def topic_name(topic: Any, context: RequestContext) -> str | None:
    """The name of a topic that a request names, or gives the id of; None for an id of no topic."""
    name: str | None = getattr(topic, "name", None) or getattr(topic, "topic", None)
    if name or not hasattr(topic, "topic_id"):
        return name
    found = context.broker.topics.by_id(topic.topic_id)
    return None if found is None else found.name


def may(operation: Operation, context: RequestContext) -> Callable[[Any], bool]:
    """Whether this may be done with a topic of a request; what has no name is for the handler to refuse."""

    def is_allowed(topic: Any) -> bool:
        name = topic_name(topic, context)
        return name is None or context.authorize(operation, ResourceType.TOPIC, name)

    return is_allowed


def element_of(kind: type[Struct], attribute: str) -> type[Struct]:
    """What the array of this name holds."""
    (field,) = (field for field in kind.FIELDS if field.name == attribute)
    assert isinstance(field.type, ArrayType)
    assert isinstance(field.type.element, StructType)
    return field.type.element.cls


def refused(kind: type[Struct], items: Iterable[Any], code: int) -> Steps[list[Any]]:
    """Elements of an answer that say no to elements of a request."""
    made = []
    for item in items:
        made.append((yield from _refused(kind, item, code)))
        if len(made) % _REFUSED_IN_A_UNIT == 0:
            yield 1
    return made


def _refused(kind: type[Struct], item: Any, code: int) -> Steps[Any]:
    """Copies the names. Where the answer has a code for each partition, so have those of the request."""
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
    """What adds refused elements to an answer."""

    def change(answer: Response) -> Steps[None]:
        of = element_of(type(answer), attribute)
        getattr(answer, attribute).extend((yield from refused(of, items, code)))

    return change
