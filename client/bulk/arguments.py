"""The arguments of ``send_many`` and ``send_arrow`` by all the names that people guess.

What each record may have of its own has two names: ``partition=3`` reads well for one partition, and
``partitions=numbers`` for many. Both are one argument.
"""

from __future__ import annotations

import inspect
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NoReturn

from splashdam.model.options import nearest_name

_ONE = (str, bytes, bytearray, memoryview, Mapping)
"""Iterable, but one value for all records."""


def is_many(given: object) -> bool:
    """Whether an argument holds a value for each record, and not one for all."""
    return isinstance(given, Iterable) and not isinstance(given, _ONE)


def listed(given: Any) -> Sequence[Any]:
    """Return the items of an iterable as Python's own objects; numpy's and Arrow's take a longer way."""
    if isinstance(given, list | tuple | array):
        return given
    # The names of pyarrow, numpy and polars.
    for name in ("to_pylist", "tolist", "to_list"):
        convert = getattr(given, name, None)
        made = convert() if callable(convert) else None
        if type(made) is list:
            return made
    return list(given)


def is_one_for_all(headers: Any) -> bool:
    """Whether these headers (a dict, or a list of pairs) are for all records; else each entry is for one."""
    if not is_many(headers):
        return True
    if not isinstance(headers, list | tuple):
        return False
    first = headers[0] if headers else ("", None)
    return isinstance(first, list | tuple) and len(first) == 2 and isinstance(first[0], str)


def is_arrow(given: object) -> bool:
    """Whether an object has Arrow's PyCapsule interface. Classes that define it do not have it."""
    found = hasattr(given, "__arrow_c_array__") or hasattr(given, "__arrow_c_stream__")
    return found and not isinstance(given, type)


PLURALS = {"key": "keys", "partition": "partitions", "timestamp_ms": "timestamps_ms"}
"""The names of the arguments that have two."""


def by_either_name(
    call: Callable[..., Any],
    unknown: Mapping[str, object],
    *,
    has_columns: bool = False,
    **given: tuple[Any, Any],
) -> list[Any]:
    """Return the arguments that were given by their singular or their plural names, in order.

    One key for all records becomes ``repeat(key)``, where no text names a column.

    Args:
        call: the method that was called.
        unknown: arguments that it does not have.
        has_columns: a text is the name of a column, and ``key="key"`` is the default.
        given: by its singular name what was given by either name.

    Raises:
        TypeError: an argument is unknown, or given by both names, or the plural one is one for all records.
    """
    if unknown:
        refuse_unknown(call, unknown)
    settled = []
    for singular, (one, each) in given.items():
        if each is None:
            is_one = singular == "key" and not (has_columns or one is None or is_many(one) or is_arrow(one))
            settled.append(repeat(one) if is_one else one)
            continue
        plural = PLURALS[singular]
        if one is not None and not (has_columns and isinstance(one, str) and one == "key" == singular):
            raise TypeError(f"{singular} and {plural} are two names of one argument: give one of them")
        if not (is_many(each) or is_arrow(each) or (has_columns and isinstance(each, str))):
            raise TypeError(
                f"{plural} must be a list or other iterable with one for each record, not"
                f" {type(each).__name__}; for all records together there is {singular}=…"
            )
        settled.append(each)
    return settled


def refuse_unknown(call: Callable[..., Any], unknown: Mapping[str, object]) -> NoReturn:
    """Refuse an argument that ``call`` does not have.

    Raises:
        TypeError: names the nearest right one.
    """
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    known = [each.name for each in inspect.signature(call).parameters.values() if each.kind not in kinds]
    name = next(iter(unknown))
    raise TypeError(f"{call.__name__}() has no argument {name!r}.{nearest_name(name, known[1:])}")
