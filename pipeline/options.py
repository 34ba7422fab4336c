"""The options of a data source as data: names as Spark spells them, parsers, defaults.

Spark passes options under lower-case names and ignores those that no source reads, so a misspelled option
would become its default. Here every option is declared, and an undeclared one is refused.
"""

from __future__ import annotations

import base64
import json
import pickle
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import attrs

from splashdam.model.errors import KafkaConfigurationError, WrongSettingError
from splashdam.model.options import MAX_LONG, nearest_name

T = TypeVar("T")
Parse = Callable[[str], T]
"""Converts an option's text to its value; raises ``ValueError`` with the reason if it is invalid."""

REQUIRED: Any = object()
"""The default of an option that must be given."""

KAFKA = "kafka."
"""The prefix of the Kafka client's properties."""

_MOST_SHOWN_CHARS = 200
"""Characters of an option's text in an error: offsets of thousands of partitions would hide the reason."""

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_TIME = re.compile(r"([0-9]+)\s*(ms|s|m|min|h|d)?", re.ASCII)
_UNITS_MS = {"ms": 1, None: 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@attrs.frozen
class Option(Generic[T]):
    """One option.

    Attributes:
        name: as Spark spells it, ``startingOffsets``.
        parse: converts its text to its value.
        default: the value if it is not given, or `REQUIRED`.
    """

    name: str
    parse: Parse[T]
    default: T

    def value_of(self, text: str) -> T:
        """Convert a text to the option's value.

        Raises:
            WrongSettingError: the text is invalid.
        """
        try:
            return self.parse(text.strip())
        except ValueError as error:
            shown = text if len(text) <= _MOST_SHOWN_CHARS else text[:_MOST_SHOWN_CHARS] + "…"
            raise WrongSettingError(self.name, str(error), given=repr(shown)) from error


@attrs.frozen
class Options:
    """The options of one source or sink. ``options[STARTING_OFFSETS]`` is the parsed value.

    Attributes:
        kafka: the client's properties, without the prefix ``kafka.``.
    """

    _values: Mapping[str, Any]
    _given: frozenset[str]
    kafka: Mapping[str, str]

    def __getitem__(self, option: Option[T]) -> T:
        """Its value, or its default."""
        value: T = self._values[option.name]
        return value

    def is_given(self, option: Option[Any]) -> bool:
        """Whether it was set, even if to its default."""
        return option.name in self._given


class OptionParser:
    """Parses the options that a source or sink declares.

    Args:
        what: the name of the source or sink in messages, ``kafka-local``.
        options: all that it has.
        takes_kafka: whether ``kafka.*`` is accepted as well.
    """

    def __init__(self, what: str, options: Iterable[Option[Any]], *, takes_kafka: bool = True) -> None:
        self._what = what
        self._options = {each.name.lower(): each for each in options}
        self._takes_kafka = takes_kafka

    def parse(self, given: Mapping[str, str]) -> Options:
        """Return the options' values. Names are compared without regard to case.

        Args:
            given: as ``DataSource.options`` has them.

        Raises:
            KafkaConfigurationError: one is unknown (the message has the nearest name), missing, given twice,
                or has no sense.
        """
        texts: dict[str, str] = {}
        for name, text in given.items():
            if name.lower() in texts:
                raise KafkaConfigurationError(f"{self._what}: option {name!r} is given twice")
            texts[name.lower()] = text
        kafka = {name: texts.pop(name) for name in list(texts) if self._is_kafka(name)}
        values = {option.name: option.default for option in self._options.values()}
        for name, text in texts.items():
            option = self._named(name)
            values[option.name] = option.value_of(text)
        for name, value in values.items():
            if value is REQUIRED:
                raise KafkaConfigurationError(
                    f"{self._what}: option {name!r} is missing. CREATE TABLE … USING loses options: where"
                    f" they were given there, create a temporary view or read with .option({name!r}, …)"
                )
        names = frozenset(self._options[name].name for name in texts)
        return Options(values, names, {name[len(KAFKA) :]: text for name, text in kafka.items()})

    def _is_kafka(self, name: str) -> bool:
        return self._takes_kafka and name.startswith(KAFKA)

    def _named(self, name: str) -> Option[Any]:
        option = self._options.get(name)
        if option is None:
            close = nearest_name(name, self._options)
            for lower, each in self._options.items():
                close = close.replace(repr(lower), repr(each.name))
            raise KafkaConfigurationError(f"{self._what}: unknown option {name!r}.{close}")
        return option


def text(given: str) -> str:
    """Accept any text that is not empty.

    Raises:
        ValueError: it is empty.
    """
    if not given:
        raise ValueError("must not be empty")
    return given


def boolean(given: str) -> bool:
    """``true`` or ``false``, in any case.

    Raises:
        ValueError: it is neither.
    """
    if given.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return given.lower() == "true"


def integer(minimum: int = 1, maximum: int = MAX_LONG) -> Parse[int]:
    """Return a parser of integers from ``minimum`` to ``maximum``."""

    def parse(given: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(given):
            raise ValueError("must be a whole number")
        if int(given) < minimum:
            raise ValueError(f"must be at least {minimum}")
        if int(given) > maximum:
            raise ValueError(f"must be at most {maximum}")
        return int(given)

    return parse


def one_of(*choices: str) -> Parse[str]:
    """Return a parser of one of some words, in any case; the value is spelled as in ``choices``."""

    def parse(given: str) -> str:
        for choice in choices:
            if given.lower() == choice.lower():
                return choice
        raise ValueError("must be one of " + ", ".join(choices))

    return parse


def comma_list(given: str) -> tuple[str, ...]:
    """Parse names separated by commas; repeated ones count once.

    Raises:
        ValueError: there is no name.
    """
    names = dict.fromkeys(name for name in map(str.strip, given.split(",")) if name)
    if not names:
        raise ValueError("must name at least one, with commas between several")
    return tuple(names)


def time_ms(given: str) -> int:
    """Parse a duration as Spark writes it, ``15m`` or ``10s``, to milliseconds; a bare number is
    milliseconds.

    Raises:
        ValueError: it is not a duration.
    """
    found = _TIME.fullmatch(given.lower())
    if found is None:
        raise ValueError("must be a time such as 500ms, 10s, 15m, 1h or 1d")
    return integer(0, MAX_LONG // _UNITS_MS[found[2]])(found[1]) * _UNITS_MS[found[2]]


def json_object(given: str) -> dict[str, Any]:
    """Parse a JSON object in which no name is repeated.

    Raises:
        ValueError: it is something else.
    """
    try:
        found = json.loads(given, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise ValueError(f"must be JSON: {error}") from None
    except RecursionError:
        raise ValueError("must be JSON that is less deeply nested") from None
    if not isinstance(found, dict):
        raise ValueError('must be a JSON object such as {"topic": …}')  # noqa: TRY004
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("names something twice")
    return found


def to_text(value: object) -> str:
    """Return a picklable value as the text of an option: Spark passes options to planners and tasks as text.

    If the value may contain keys of object storage, give the option a name with ``secret`` in it: Spark
    redacts such options.
    """
    return base64.b64encode(pickle.dumps(value)).decode()


def from_text(text: str) -> Any:
    """Return the value that ``to_text`` encoded. Only for options that this package sets itself: it
    unpickles."""
    return pickle.loads(base64.b64decode(text))
