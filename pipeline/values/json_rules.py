"""Rules for JSON values: one per type, made once per schema.

A rule takes a value as Python's ``json`` decodes it and returns what Arrow stores, or raises
``BadValueError``. Types that JSON distinguishes are not converted: ``1`` is not a string, ``"1"`` not a
number, ``1.0`` not an integer, ``0`` not a boolean.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import math
import re
import struct
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.values.verdicts import BadValueError, Reason

if TYPE_CHECKING:
    import pyarrow as pa

Rule = Callable[[Any], Any]

_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d(?:\.\d{1,9})?)([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class Object(dict[str, Any]):
    """A JSON object that records which of its names were repeated."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.twice: frozenset[str] = frozenset()
        if len(self) != len(pairs):
            self.twice = frozenset(
                name for name, count in Counter(name for name, _ in pairs).items() if count > 1
            )


def rule_of(kind: pa.DataType, path: str, *, refuses_unknown: bool) -> Rule:
    """Return the rule of a type.

    Args:
        kind: the Arrow type; structs may have fields that must not be null.
        path: place in the value, for messages: ``$.delay``.
        refuses_unknown: whether a field that the schema lacks makes the value bad.

    Raises:
        KafkaConfigurationError: JSON has no values of such a type.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        return _struct_rule(kind, path, refuses_unknown)
    if types.is_map(kind) and types.is_string(kind.key_type):
        return _map_rule(rule_of(kind.item_type, f"{path}.*", refuses_unknown=refuses_unknown), path)
    if types.is_list(kind):
        return _list_rule(kind, path, refuses_unknown)
    for is_kind, make in _SIMPLE.items():
        if getattr(types, is_kind)(kind):
            return make(path, kind)
    raise KafkaConfigurationError(
        f"{path} is {kind}, which JSON values are not decoded to; make it string, double or bigint"
    )


def wrong(path: str, wanted: str, found: Any) -> BadValueError:
    """Return the error for a value of another type."""
    return BadValueError(
        Reason.WRONG_TYPE, f"{path} should be {wanted}, and is {_NAMES.get(type(found), 'null')}"
    )


_NAMES = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "an array",
    Object: "an object",
}


def _struct_rule(kind: pa.StructType, path: str, refuses_unknown: bool) -> Rule:
    fields = [
        (
            field.name,
            field.nullable,
            rule_of(field.type, f"{path}.{field.name}", refuses_unknown=refuses_unknown),
        )
        for field in kind
    ]
    names = frozenset(name for name, _, _ in fields)

    def rule(value: Any) -> dict[str, Any]:
        if type(value) is not Object:
            raise wrong(path, "an object", value)
        if value.twice and not names.isdisjoint(value.twice):
            twice = min(names & value.twice)
            raise BadValueError(Reason.DUPLICATE_FIELD, f"{path}.{twice} stands there twice")
        if refuses_unknown and not names.issuperset(value):
            unknown = min(set(value) - names)
            raise BadValueError(Reason.UNKNOWN_FIELD, f"the schema has no {path}.{unknown}")
        row = {}
        for name, is_optional, of_field in fields:
            found = value.get(name)
            if found is not None:
                row[name] = of_field(found)
            elif not is_optional:
                problem = "is null" if name in value else "is missing"
                raise BadValueError(Reason.MISSING_FIELD, f"{path}.{name} is required, and {problem}")
        return row

    return rule


def _list_rule(kind: pa.ListType, path: str, refuses_unknown: bool) -> Rule:
    of_item = rule_of(kind.value_type, f"{path}[]", refuses_unknown=refuses_unknown)
    may_hold_null = kind.value_field.nullable

    def rule(value: Any) -> list[Any]:
        if type(value) is not list:
            raise wrong(path, "an array", value)
        if not may_hold_null and None in value:
            raise BadValueError(Reason.MISSING_FIELD, f"{path}[] is required, and is null")
        return [None if item is None else of_item(item) for item in value]

    return rule


def _map_rule(of_item: Rule, path: str) -> Rule:
    of_name = _string_rule(f"{path}, a name of it,")

    def rule(value: Any) -> list[tuple[str, Any]]:
        if type(value) is not Object:
            raise wrong(path, "an object", value)
        if value.twice:
            raise BadValueError(Reason.DUPLICATE_FIELD, f"{path}.{min(value.twice)} stands there twice")
        return [(of_name(name), None if item is None else of_item(item)) for name, item in value.items()]

    return rule


def _integer_rule(bits: int, path: str) -> Rule:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def rule(value: Any) -> int:
        if type(value) is not int:
            # An infinity stands for an integer with too many digits, see json_values._HUGE.
            if value in (math.inf, -math.inf):
                raise BadValueError(Reason.OUT_OF_RANGE, f"{path} does not fit into {bits} bits")
            raise wrong(path, "an integer", value)
        if not least <= value <= most:
            raise BadValueError(Reason.OUT_OF_RANGE, f"{path} does not fit into {bits} bits")
        return value

    return rule


def _number_rule(path: str, *, is_single: bool) -> Rule:
    def rule(value: Any) -> float:
        if type(value) is not float and type(value) is not int:
            raise wrong(path, "a number", value)
        try:
            number = float(value)
            if is_single:
                number = struct.unpack("f", struct.pack("f", number))[0]
        except OverflowError:
            number = math.inf
        if math.isinf(number):
            raise BadValueError(Reason.OUT_OF_RANGE, f"{path} is more than a floating-point number can be")
        return number

    return rule


def _boolean_rule(path: str) -> Rule:
    def rule(value: Any) -> bool:
        if type(value) is not bool:
            raise wrong(path, "a boolean", value)
        return value

    return rule


def _string_rule(path: str) -> Rule:
    def rule(value: Any) -> str:
        if type(value) is not str:
            raise wrong(path, "a string", value)
        try:
            value.encode()
        except UnicodeEncodeError:
            # JSON can escape half of a surrogate pair, UTF-8 cannot encode it.
            raise BadValueError(Reason.NOT_UTF8, f"{path} holds half of a surrogate pair") from None
        return value

    return rule


def _binary_rule(path: str) -> Rule:
    def rule(value: Any) -> bytes:
        if type(value) is not str:
            raise wrong(path, "a string in base64", value)
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise BadValueError(Reason.WRONG_TYPE, f"{path} should be base64, and is not") from None

    return rule


def _day_rule(path: str) -> Rule:
    def rule(value: Any) -> datetime.date:
        if type(value) is not str:
            raise wrong(path, "a date as a string", value)
        if _DAY.fullmatch(value) is None:
            raise BadValueError(Reason.WRONG_TYPE, f"{path} should be a date as 2026-11-22")
        try:
            return datetime.date.fromisoformat(value)
        except ValueError:
            raise BadValueError(Reason.OUT_OF_RANGE, f"{path} is no day of the calendar") from None

    return rule


def _instant_rule(path: str, *, has_zone: bool) -> Rule:
    wanted = "2026-11-22T13:00:00.5+01:00" if has_zone else "2026-11-22T13:00:00.5, without a zone"

    def rule(value: Any) -> datetime.datetime:
        if type(value) is not str:
            raise wrong(path, "a time as a string", value)
        found = _INSTANT.fullmatch(value)
        if found is None or (found[3] is not None) != has_zone:
            raise BadValueError(Reason.WRONG_TYPE, f"{path} should be a time as {wanted}")
        try:
            # Digits after the microsecond are cut off, as in Spark.
            time = datetime.datetime.fromisoformat(f"{found[1]}T{found[2][:15]}{(found[3] or '').upper()}")
            return time.astimezone(datetime.UTC) if has_zone else time
        except (ValueError, OverflowError):
            raise BadValueError(Reason.OUT_OF_RANGE, f"{path} is no time of the calendar") from None

    return rule


_SIMPLE: dict[str, Callable[[str, Any], Rule]] = {
    "is_string": lambda path, _: _string_rule(path),
    "is_boolean": lambda path, _: _boolean_rule(path),
    "is_binary": lambda path, _: _binary_rule(path),
    "is_date32": lambda path, _: _day_rule(path),
    "is_signed_integer": lambda path, kind: _integer_rule(kind.bit_width, path),
    "is_float64": lambda path, _: _number_rule(path, is_single=False),
    "is_float32": lambda path, _: _number_rule(path, is_single=True),
    "is_timestamp": lambda path, kind: _instant_rule(path, has_zone=kind.tz is not None),
}
"""Makers of rules by the predicates in ``pyarrow.types``."""
