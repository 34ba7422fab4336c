"""The errors in a response, wherever its declaration has room for one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from splashdam.wire.message import Struct

_NAMES = ("name", "topic", "topic_name", "group_id", "resource_name", "transactional_id")
_NUMBERS = ("partition_index", "partition", "partition_id", "index")


def errors_in(answer: Struct, where: str = "") -> Iterator[tuple[int, str]]:
    """Yield each error code in a response, with the topic, partition, group or other thing that has it."""
    plan = _plan_of(type(answer))
    if plan.has_code and answer.error_code:  # type: ignore[attr-defined]  # the plan is made of its fields
        yield answer.error_code, _place(answer, plan, where)  # type: ignore[attr-defined]
    for name in plan.nested:
        value = getattr(answer, name)
        if not value:
            continue
        place = _place(answer, plan, where)
        if isinstance(value, Struct):
            yield from errors_in(value, place)
        elif isinstance(value, list) and isinstance(value[0], Struct):
            for each in value:
                yield from errors_in(each, place)


class _Plan(NamedTuple):
    """Where to look in a structure, found once for each class."""

    has_code: bool
    nested: tuple[str, ...]
    names: tuple[str, ...]
    number: str | None


@cache
def _plan_of(kind: type[Struct]) -> _Plan:
    fields = {field.name: field for field in kind.FIELDS}
    return _Plan(
        "error_code" in fields,
        tuple(name for name, field in fields.items() if _may_nest(field.default)),
        tuple(name for name in _NAMES if name in fields),
        next((name for name in _NUMBERS if name in fields), None),
    )


def _may_nest(default: object) -> bool:
    """Whether a field may hold structures: no number, text or bytes does."""
    return not isinstance(default, int | float | str | bytes | bytearray | memoryview)


def _place(part: Struct, plan: _Plan, where: str) -> str:
    for name in plan.names:
        if value := getattr(part, name):
            return str(value)
    return where if plan.number is None else f"{where}-{getattr(part, plan.number)}"
