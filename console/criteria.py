"""Which records a search finds: text, a regular expression or a JSON path, in key, value and headers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

import attrs

from splashdam.record.record import Record

PLACES: Final = ("anywhere", "key", "value", "header")
WAYS: Final = ("contains", "regex")


class CriteriaError(ValueError):
    """What was asked for cannot be searched for; the text says why."""


Matches: TypeAlias = Callable[[Record], bool]


@attrs.frozen(kw_only=True)
class Criteria:
    """What to search for.

    Attributes:
        matches: whether a record is found; None: every record is.
        needle: bytes that are in every record which is found; None if none are known. Batches without them
            are not decoded.
    """

    matches: Matches | None = None
    needle: bytes | None = None


def criteria(text: str = "", place: str = "anywhere", way: str = "contains", path: str = "") -> Criteria:
    """Return what to search for.

    Args:
        text: capital and small letters are different; empty: everything, or every record that has the path.
        place: of `PLACES`.
        way: of `WAYS`.
        path: as ``$.customer.orders[0].id``; the text is then searched in what it leads to in the value.

    Raises:
        CriteriaError: the text or the path cannot be searched for.
    """
    if place not in PLACES or way not in WAYS:
        raise CriteriaError(f"search in one of {', '.join(PLACES)}, by one of {', '.join(WAYS)}")
    if path:
        found = _finder(text, way)
        steps = parse_path(path)
        # Without a needle, because JSON may escape what the path leads to.
        return Criteria(matches=lambda record: _on_path(record, steps, found))
    if not text:
        return Criteria()
    finder = _finder(text, way)
    needle = text.encode("utf-8", "surrogatepass") if way == "contains" else None
    return Criteria(
        matches=lambda record: any(finder(field) for field in _fields(record, place)), needle=needle
    )


def _fields(record: Record, place: str) -> Iterator[bytes]:
    if place in {"anywhere", "key"} and record.key is not None:
        yield record.key
    if place in {"anywhere", "value"} and record.value is not None:
        yield record.value
    if place in {"anywhere", "header"}:
        for name, value in record.headers:
            yield name.encode("utf-8", "surrogatepass")
            if value is not None:
                yield value


def _finder(text: str, way: str) -> Callable[[bytes], bool]:
    if way == "contains":
        needle = text.encode("utf-8", "surrogatepass")
        return lambda field: needle in field
    return linear_pattern(text)


def linear_pattern(text: str) -> Callable[[bytes], bool]:
    """Return what finds a regular expression (RE2's) in UTF-8.

    Raises:
        CriteriaError: the text is not a regular expression, or google-re2 is not installed.
    """
    if find_spec("re2") is None:
        raise CriteriaError(
            "regular expressions need google-re2; install with: pip install 'splashdam[console]'"
        )
    # RE2's time grows with the length of a field alone. Python's engine may take for ever, for example for
    # ``(a+)+$``, and nothing else of the process would run meanwhile.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(text, options)
    except re2.error as error:
        raise CriteriaError(f"not a regular expression: {_said(error)}") from None
    return lambda field: pattern.search(field.decode("utf-8", "replace")) is not None


def _said(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first)


# JSON paths

Step: TypeAlias = "str | int | None"
"""A name, a place in a list, or None for all."""

_STEP = re.compile(r"\.?([^.\[\]\s'\"]+)|\[(\d+|\*)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")


def parse_path(text: str) -> list[Step]:
    """Parse a path as ``$.name[0]['a name'].*``.

    Raises:
        CriteriaError: the text is no path.
    """
    rest = text.strip().removeprefix("$")
    steps: list[Step] = []
    while rest:
        step = _STEP.match(rest)
        if step is None:
            raise CriteriaError(f"not a JSON path: {rest!r}; one looks like $.customer.orders[0]['an id'].*")
        name, number, quoted, doubly = step.groups()
        if name == "*" or number == "*":
            steps.append(None)
        elif number is not None:
            steps.append(int(number))
        else:
            steps.append(next(each for each in (name, quoted, doubly) if each is not None))
        rest = rest[step.end() :]
    return steps


def _on_path(record: Record, steps: Sequence[Step], found: Callable[[bytes], bool]) -> bool:
    if record.value is None:
        return False
    try:
        value = json.loads(record.value)
    except (ValueError, RecursionError):
        return False
    return any(found(_text(each)) for each in _led_to(value, steps))


def _text(value: Any) -> bytes:
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode(
        "utf-8", "surrogatepass"
    )


def _led_to(value: Any, steps: Sequence[Step]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step is None:
        each_of = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for each in each_of:
            yield from _led_to(each, rest)
    elif isinstance(step, int) and isinstance(value, list):
        if step < len(value):
            yield from _led_to(value[step], rest)
    elif isinstance(value, dict) and str(step) in value:
        yield from _led_to(value[str(step)], rest)
