"""Topics, partitions and errors inside the messages of any API, found by the field names of Kafka's schemas.

Requests: a tree of arrays, where topics hold partitions, and groups, transactions or directories may hold
topics. ``leaves`` lists the partitions that a request names, ``split`` divides it in two.

Responses: ``refusal`` builds one that reports an error, at the place where a broker reports it: in each
partition, if the API answers for each partition; else at the top level; and without a top-level error code in
each topic, group or resource. ``merge`` puts such a response into a real one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from splashdam.wire.fields import NO_UUID, RECORDS, ArrayType, Field, StructType
from splashdam.wire.message import Request, Response, Struct

S = TypeVar("S", bound=Struct)

TOPIC_NAMES = ("topic", "topic_name", "name", "resource_name")
"""Fields that hold a topic's name, in the elements of an array of topics."""

PARTITION_NAMES = ("partition", "partition_index", "partition_id", "index")

_ARRAYS_OF_TOPICS = frozenset(
    ("topic_data", "topics", "topic_names", "topic_partitions", "v3_and_below_topics", "resources")
)
_ARRAYS_OF_PARTITIONS = frozenset(("partition_data", "partitions", "partition_indexes"))
_ARRAYS_AROUND_TOPICS = frozenset(("groups", "transactions", "markers", "dirs"))
_TOPIC_RESOURCE = 2


class Place(NamedTuple):
    """A topic, or one partition of it, that a request names.

    Attributes:
        topic: the topic's name; None if the request has a topic id that the broker does not know.
        partition: the partition's number; None if the request names the topic as a whole.
    """

    topic: str | None
    partition: int | None


Names: TypeAlias = Callable[[bytes], "str | None"]
"""Look up a topic's name by its id; None if there is no such topic."""

Wanted: TypeAlias = Callable[[Place], bool]


def array_fields(kind: type[Struct], version: int) -> list[Field]:
    """Return the array fields that a structure has in a version."""
    return [each for each in kind.FIELDS if isinstance(each.type, ArrayType) and version in each.versions]


def element_class(field: Field) -> type[Struct] | None:
    """Return the class of an array's elements; None if they are not structures."""
    assert isinstance(field.type, ArrayType)
    element = field.type.element
    return element.cls if isinstance(element, StructType) else None


def first_named(kind: type[Struct], names: tuple[str, ...], version: int) -> str | None:
    """Return the first of ``names`` that the structure has as a field in a version."""
    known = {field.name for field in kind.FIELDS if version in field.versions}
    return next((name for name in names if name in known), None)


def _topic_of(element: Any, version: int, names: Names) -> str | None:
    if isinstance(element, str):
        return element
    if getattr(element, "resource_type", _TOPIC_RESOURCE) != _TOPIC_RESOURCE:
        return None
    topic_id = bytes(getattr(element, "topic_id", NO_UUID))
    if topic_id != NO_UUID:
        return names(topic_id)
    name = first_named(type(element), TOPIC_NAMES, version)
    return None if name is None else getattr(element, name)


def _partition_of(element: Any, version: int) -> int | None:
    if isinstance(element, int):
        return element
    name = first_named(type(element), PARTITION_NAMES, version)
    return None if name is None else getattr(element, name)


def leaves(message: Struct, version: int, names: Names) -> Iterator[Place]:
    """Yield the topics and partitions that a request names, in its order."""
    for field in array_fields(type(message), version):
        for element in getattr(message, field.name) or ():
            if field.name in _ARRAYS_OF_TOPICS:
                yield from _leaves_of_topic(element, version, names)
            elif _may_hold_topics(field):
                yield from leaves(element, version, names)


def _leaves_of_topic(element: Any, version: int, names: Names) -> Iterator[Place]:
    topic = _topic_of(element, version, names)
    inner = _partitions_field(element, version)
    if inner is None:
        yield Place(topic, None)
        return
    for partition in getattr(element, inner.name) or ():
        yield Place(topic, _partition_of(partition, version))


def _partitions_field(element: Any, version: int) -> Field | None:
    if not isinstance(element, Struct):
        return None
    fields = array_fields(type(element), version)
    return next((field for field in fields if field.name in _ARRAYS_OF_PARTITIONS), None)


def copied(message: Any, **changes: Any) -> Any:
    """Copy a structure, with other values in some fields."""
    values = {field.name: getattr(message, field.name) for field in message.FIELDS}
    return type(message)(**{**values, **changes})


def split(message: Any, version: int, names: Names, wanted: Wanted) -> tuple[Any, Any]:
    """Divide a request into one for the wanted topics and partitions, and one for the others.

    Either is None if it would name nothing. Fields outside of topics and partitions are copied into both.
    """
    chosen: dict[str, list[Any]] = {}
    rest: dict[str, list[Any]] = {}
    for field in array_fields(type(message), version):
        elements = getattr(message, field.name)
        if elements is None or not _may_hold_topics(field):
            continue
        divide = split if field.name in _ARRAYS_AROUND_TOPICS else _split_topic
        halves = [divide(element, version, names, wanted) for element in elements]
        chosen[field.name] = [half for half, _ in halves if half is not None]
        rest[field.name] = [half for _, half in halves if half is not None]
    return (
        copied(message, **chosen) if any(chosen.values()) else None,
        copied(message, **rest) if any(rest.values()) else None,
    )


def _split_topic(element: Any, version: int, names: Names, wanted: Wanted) -> tuple[Any, Any]:
    topic = _topic_of(element, version, names)
    inner = _partitions_field(element, version)
    if inner is None:
        return (element, None) if wanted(Place(topic, None)) else (None, element)
    chosen: list[Any] = []
    rest: list[Any] = []
    for partition in getattr(element, inner.name) or ():
        is_wanted = wanted(Place(topic, _partition_of(partition, version)))
        (chosen if is_wanted else rest).append(partition)
    return (
        copied(element, **{inner.name: chosen}) if chosen else None,
        copied(element, **{inner.name: rest}) if rest else None,
    )


def can_name_topics(kind: type[Struct]) -> bool:
    """Return whether requests of this class can name topics."""
    return any(_may_hold_topics(field) for field in kind.FIELDS if isinstance(field.type, ArrayType))


def _may_hold_topics(field: Field) -> bool:
    if field.name in _ARRAYS_OF_TOPICS:
        return True
    inner = element_class(field) if field.name in _ARRAYS_AROUND_TOPICS else None
    return inner is not None and can_name_topics(inner)


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
"""Fields that Kafka sets to -1 beside an error, even if the schema has another default."""

_FILTERS = frozenset(("states_filter", "types_filter", "forgotten_topics_data"))


def refusal(request: Request[Any], kind: type[Response], version: int, code: int) -> Response:
    """Build the response that refuses a whole request.

    Args:
        request: the request.
        kind: class of the response.
        version: API version of both.
        code: the error code.
    """
    answer = kind()
    if not _answers_each(kind, version) or not _fill(answer, request, version, code):
        _refuse(answer, version, code)
    return answer


def _answers_each(kind: type[Struct], version: int) -> bool:
    """Return whether elements have errors: those of partitions always, others if the top level has none."""
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
    """Refuse each requested element; False if the request does not determine the response's elements."""
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
    """Yield the requested elements that the response answers one by one."""
    for field in array_fields(type(request), version):
        if field.name == "dirs":  # AlterReplicaLogDirs is answered by topic
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
        if field.name == "entity" and kind is not None:  # a quota's name is an array
            copies = [{own.name: getattr(each, own.name) for own in kind.FIELDS} for each in asked.entity]  # type: ignore[attr-defined]  # both have it
            setattr(element, field.name, [kind(**copy) for copy in copies])


def _refuse(element: Struct, version: int, code: int) -> None:
    for field in element.FIELDS:
        if field.name in _ERROR_NAMES and version in field.versions:
            setattr(element, field.name, code)
        elif field.name == "error_message" and version in field.versions:
            setattr(element, field.name, "a fault that a test has set")
        elif field.type is RECORDS:
            setattr(element, field.name, b"")  # librdkafka rejects a response with null here
        elif field.name in _UNKNOWN and not getattr(element, field.name):
            setattr(element, field.name, -1)


def _identity(element: Struct, version: int) -> tuple[Any, ...]:
    names = (field.name for field in element.FIELDS if version in field.versions)
    found = (getattr(element, name) for name in names if name in _IDENTITY)
    return tuple(bytes(each) if isinstance(each, memoryview) else each for each in found)


def merge(real: S, refused: S, version: int) -> S:
    """Put a refusal's elements into the real response, in place of those with the same identity."""
    for field in array_fields(type(refused), version):
        elements = getattr(refused, field.name)
        if not elements or element_class(field) is None:
            continue
        known = {_identity(each, version): each for each in getattr(real, field.name) or ()}
        for each in elements:
            # Answers may come in another order than the request, so elements are matched by name, number and
            # id.
            identity = _identity(each, version)
            is_deeper = identity in known and bool(_arrays_with_errors(type(each), version))
            known[identity] = merge(known[identity], each, version) if is_deeper else each
        setattr(real, field.name, list(known.values()))
    return real


def error_codes(answer: Struct, version: int) -> list[int]:
    """Return the error codes of a response in its order, without zeros."""
    name = first_named(type(answer), _ERROR_NAMES, version)
    codes = [getattr(answer, name)] if name is not None else []
    for array in _arrays_with_errors(type(answer), version):
        for element in getattr(answer, array) or ():
            codes += error_codes(element, version)
    return [code for code in codes if code]
