"""Topics and partitions inside messages: found by the names that Kafka's schemas give them, in any API.

A request is a tree of arrays: topics hold partitions; groups, transactions or directories may hold topics.
``leaves`` lists what a request is about, ``split`` takes it apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from splashdam.wire.fields import NO_UUID, ArrayType, Field, StructType
from splashdam.wire.message import Struct

TOPIC_NAMES = ("topic", "topic_name", "name", "resource_name")
"""What the field is called that names a topic, in an array of topics."""

PARTITION_NAMES = ("partition", "partition_index", "partition_id", "index")

_ARRAYS_OF_TOPICS = frozenset(
    ("topic_data", "topics", "topic_names", "topic_partitions", "v3_and_below_topics", "resources")
)
_ARRAYS_OF_PARTITIONS = frozenset(("partition_data", "partitions", "partition_indexes"))
_ARRAYS_AROUND_TOPICS = frozenset(("groups", "transactions", "markers", "dirs"))
_TOPIC_RESOURCE = 2


class Place(NamedTuple):
    """What a part of a request is about.

    Attributes:
        topic: its name, None where the request knows it by id and the broker does not know that.
        partition: None where the part is about the topic as a whole.
    """

    topic: str | None
    partition: int | None


Names: TypeAlias = Callable[[bytes], "str | None"]
"""The name of a topic by its id."""

Wanted: TypeAlias = Callable[[Place], bool]


def array_fields(kind: type[Struct], version: int) -> list[Field]:
    """The fields of a structure that hold arrays in a version."""
    return [each for each in kind.FIELDS if isinstance(each.type, ArrayType) and version in each.versions]


def element_class(field: Field) -> type[Struct] | None:
    """What an array's field holds, None where that is no structure."""
    assert isinstance(field.type, ArrayType)
    element = field.type.element
    return element.cls if isinstance(element, StructType) else None


def first_named(kind: type[Struct], names: tuple[str, ...], version: int) -> str | None:
    """The first of these names that the structure has in a version."""
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
    """The topics and partitions that a request is about, in its order."""
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
    """The same structure with other values in some fields."""
    values = {field.name: getattr(message, field.name) for field in message.FIELDS}
    return type(message)(**{**values, **changes})


def split(message: Any, version: int, names: Names, wanted: Wanted) -> tuple[Any, Any]:
    """A request of the places that are wanted, and one of all others; None for one that would be empty.

    What a request says of neither topic nor partition is in both.
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


def speaks_of_topics(kind: type[Struct]) -> bool:
    """Whether requests of this class may name topics."""
    return any(_may_hold_topics(field) for field in kind.FIELDS if isinstance(field.type, ArrayType))


def _may_hold_topics(field: Field) -> bool:
    if field.name in _ARRAYS_OF_TOPICS:
        return True
    inner = element_class(field) if field.name in _ARRAYS_AROUND_TOPICS else None
    return inner is not None and speaks_of_topics(inner)
