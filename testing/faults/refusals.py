"""Answers that say an error, in the shape of any API and version; built from what was asked and declared.

Where an API answers for each partition the error stands with each partition, elsewhere at the top, and where
there is no top with each topic, group or resource. That is how a broker answers too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from splashdam.testing.faults.places import (
    PARTITION_NAMES,
    TOPIC_NAMES,
    array_fields,
    element_class,
    first_named,
)
from splashdam.wire.fields import RECORDS
from splashdam.wire.message import Request, Response, Struct

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
