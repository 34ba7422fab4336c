"""Options declared as attrs classes: name, type, default, validator and documentation of each in one place.

An option's Kafka name is in its metadata (``kafka="linger.ms"``); by default it is the Python name with dots.
Unknown names are rejected, with the nearest known name, so that a typing error never leaves a default in use.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import attrs

from splashdam.model.errors import KafkaConfigurationError, WrongSettingError
from splashdam.model.log_text import shown
from splashdam.model.secrets import MASK

T = TypeVar("T")

MAX_INT, MAX_LONG = 2**31 - 1, 2**63 - 1
"""The largest values of Kafka's INT and LONG options."""

_FACTORY: Any = attrs.Factory  # a class that attrs declares to type checkers as a function

_UNITS = ("ms", "seconds", "minutes", "hours", "bytes")
"""The last words of names that say the unit."""
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)


def option(
    default: Any,
    *,
    doc: str,
    kafka: str | None = None,
    parse: Callable[[str], Any] | None = None,
    check: Callable[[Any], str | None] | None = None,
    convert: Callable[[Any], Any] | None = None,
    unit: str = "",
    notes: Mapping[str, object] | None = None,
    is_secret: bool = False,
) -> Any:
    """Declare one option of an attrs class.

    Args:
        default: its default value.
        doc: meaning and unit, shown in errors and in the documentation.
        kafka: its Kafka name, if that is not the Python name with dots.
        parse: makes the value of the text in a properties file; by default chosen by the type of ``default``.
        check: returns what is wrong with a value, or None.
        convert: converts the given value, before ``check``.
        unit: of a number whose name does not end with it.
        notes: more metadata of the field, for the owner of the class.
        is_secret: never show the value in an error.
    """

    if isinstance(default, bool):
        check = _both(_true_or_false, check)

    def validate(_instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        problem = check(value) if check is not None else None
        if problem is not None:
            text = f"'{MASK}'" if is_secret else shown(value)
            raise WrongSettingError(attribute.name, f"{problem}. {doc}", given=text)

    metadata = {"doc": doc, "kafka": kafka, "parse": parse, "unit": unit, **(notes or {})}
    if isinstance(default, list | dict):
        return attrs.field(factory=default.copy, validator=validate, metadata=metadata)
    return attrs.field(default=default, converter=convert, validator=validate, metadata=metadata)


def at_least(minimum: float, maximum: float = math.inf) -> Callable[[Any], str | None]:
    """Return a check that the value is a number from ``minimum`` to ``maximum``."""

    def check(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return _not_a_number(value)
        # As a float: MAX_LONG, read from a text as one, is larger by 1.
        if value > float(maximum):
            return f"must be at most {maximum}"
        return None if value >= minimum else f"must be at least {minimum}"

    return check


def _both(
    first: Callable[[Any], str | None], second: Callable[[Any], str | None] | None
) -> Callable[[Any], str | None]:
    return first if second is None else lambda value: first(value) or second(value)


def _true_or_false(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be True or False"  # 'false' would count as true


def whole_number(minimum: int, maximum: int = MAX_LONG) -> Callable[[Any], str | None]:
    """Return a check that the value is an integer from ``minimum`` to ``maximum``."""

    def check(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return (
                f"must be a whole number, not {value!r}" if isinstance(value, float) else _not_a_number(value)
            )
        if value > maximum:
            return f"must be at most {maximum}"
        return None if value >= minimum else f"must be at least {minimum}"

    return check


def _not_a_number(value: Any) -> str:
    return f"must be a number, not {type(value).__name__}"


def one_of(*choices: object) -> Callable[[Any], str | None]:
    """Return a check that the value is one of ``choices``."""

    def check(value: Any) -> str | None:
        fits = any(_is(value, choice) for choice in choices)
        return None if fits else "must be one of " + ", ".join(map(repr, choices))

    return check


def _is(value: Any, choice: object) -> bool:
    """Whether a value is a choice, in type as well: 1.0 == True == 1, but who gives one means no other."""
    if not isinstance(value, type(choice)) or isinstance(value, bool) != isinstance(choice, bool):
        return False
    return bool(value == choice)


def nearest_name(name: str, names: Iterable[str]) -> str:
    """Return `` Did you mean …?`` with the closest of ``names``, or an empty string."""
    import difflib

    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def default_options(cls: type) -> Mapping[str, Any]:
    """Return each option of ``cls`` with its default, read-only."""
    defaults: dict[str, Any] = {}
    for field in attrs.fields(cls):
        made: Any = field.default
        defaults[field.name] = made.factory() if isinstance(made, _FACTORY) else made
    return MappingProxyType(defaults)


def plain_number(value: Any) -> Any:
    """Return the ``int`` that another kind of whole number, such as numpy's, stands for; else the value."""
    if isinstance(value, int) or not hasattr(value, "__index__"):
        return value
    try:
        return operator.index(value)
    except TypeError:  # an array of several numbers has the method, too
        return value


def from_options(cls: type[T], options: Mapping[str, Any], *, what: str) -> T:
    """Build ``cls`` from keyword options.

    Raises:
        KafkaConfigurationError: a name is unknown (the nearest known one is suggested) or a value is invalid.
    """
    names = [field.name for field in attrs.fields(cls)]  # type: ignore[arg-type]  # cls is an attrs class
    for name in options:
        if name not in names:
            raise KafkaConfigurationError(f"unknown {what} option {name!r}.{nearest_name(name, names)}")
    return cls(**{name: plain_number(value) for name, value in options.items()})


def from_properties(cls: type[T], properties: Mapping[str, str], *, what: str) -> dict[str, Any]:
    """Convert Kafka's dotted names and text values to keyword options for ``cls``.

    Raises:
        KafkaConfigurationError: a name is unknown or a value does not parse.
    """
    by_kafka_name = {
        kafka_name(field): field
        for field in attrs.fields(cls)  # type: ignore[arg-type]  # cls is an attrs class
    }
    options: dict[str, Any] = {}
    for name, text in properties.items():
        field = by_kafka_name.get(name)
        if field is None:
            raise KafkaConfigurationError(
                f"unknown {what} property {name!r}.{nearest_name(name, by_kafka_name)}"
            )
        options[field.name] = parse_value(field, name, text)
    return options


def kafka_name(field: attrs.Attribute[Any]) -> str:
    """Return the Kafka name of an option."""
    name: str | None = field.metadata.get("kafka")
    return name or field.name.replace("_", ".")


def unit_of(field: attrs.Attribute[Any]) -> str:
    """Return the unit of an option, such as ``ms`` or ``bytes``; empty if it has none."""
    unit: str = field.metadata.get("unit", "")
    return unit or unit_in(kafka_name(field))


def unit_in(name: str) -> str:
    """Return the unit that a name ends with; empty if it ends with none."""
    last = re.split(r"[._]", name)[-1]
    return last if last in _UNITS else ""


def parse_value(field: attrs.Attribute[Any], name: str, text: Any) -> Any:
    """Parse the text of the option ``name``; return a value that is not a ``str`` unchanged.

    Raises:
        KafkaConfigurationError: the text does not parse.
    """
    if not isinstance(text, str):
        return text
    parse = field.metadata.get("parse") or _parser_for(field.default)
    try:
        return parse(text.strip())
    except ValueError as error:
        unit = unit_in(name) if parse in (_parse_int, parse_float) else ""
        unit = f" of {'milliseconds' if unit == 'ms' else unit}" if unit else ""
        raise KafkaConfigurationError(f"{name}={text!r}: {error}{unit}. {field.metadata['doc']}") from error


def _parser_for(default: Any) -> Callable[[str], Any]:
    if isinstance(default, bool):
        return _parse_bool
    if isinstance(default, int):
        return _parse_int
    if isinstance(default, float):
        return parse_float
    return str


def parse_float(text: str) -> float:
    """Parse a number.

    Raises:
        ValueError: the text is not a number.
    """
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number") from None


def _parse_int(text: str) -> int:
    if not _WHOLE_NUMBER.fullmatch(text):  # int() also accepts 1_000 and digits of any script
        raise ValueError("must be a whole number")
    return int(text)


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"
