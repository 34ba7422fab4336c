"""What log lines and error messages are made of: structured fields, and names that came from outside.

Every logger is ``splashdam`` or below it. ``docs/reference/logging.md`` lists levels and fields.
"""

from __future__ import annotations

import re
from collections.abc import Sized

from splashdam.model.errors import SettingText
from splashdam.model.secrets import Secret
from splashdam.model.values import TopicPartition


def fields(**values: object) -> dict[str, dict[str, object]]:
    """Return the ``extra`` of a logging call: ``record.splashdam`` is ``values``. Never pass a secret."""
    return {"splashdam": values}


LONGEST_SHOWN = 250
"""Characters; every valid topic name fits."""


def quoted(name: object) -> str:
    """Quote a name that came from outside, so that it is safe in a log line.

    Characters that a terminal or a log reader would act on (line ends, escapes, marks that change the
    direction of text) are escaped as in a Python literal. A long name is cut, with its length.

    Args:
        name: a topic, group, client id, transactional id, principal, option, …; None gives ``None``.
    """
    if not isinstance(name, str):
        return repr(name)
    if len(name) <= LONGEST_SHOWN:
        return repr(name)
    return f"{name[:LONGEST_SHOWN]!r}… ({len(name)} characters)"


_MOST_ITEMS = 4
_MOST_BITS = 512


def shown(value: object) -> str:
    """Show a value that a caller gave, in an error message.

    Text, bytes and numbers are shown as ``repr`` does, long ones cut; small lists, tuples and dicts with
    their items. Of other objects, arrays and tables among them, only the type is shown: their ``repr`` may be
    long, slow, or hold data that do not belong into a log.
    """
    if value is None or isinstance(value, bool | float | type):
        return repr(value)
    if isinstance(value, int):
        bits = value.bit_length()
        return repr(value) if bits <= _MOST_BITS else f"<{type(value).__name__} of {bits} bits>"
    if isinstance(value, str):
        return repr(value) if isinstance(value, Secret) else quoted(value)
    if isinstance(value, bytes | bytearray):
        more = f"… ({len(value)} bytes)" if len(value) > LONGEST_SHOWN else ""
        return f"{value[:LONGEST_SHOWN]!r}{more}"
    if type(value) in (list, tuple, dict) and isinstance(value, Sized) and len(value) <= _MOST_ITEMS:
        return _shown_items(value)
    many = f" of {len(value)}" if isinstance(value, list | tuple | dict | set | frozenset) else ""
    return f"<{type(value).__name__}{many}>"


def _shown_items(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{shown(key)}: {shown(each)}" for key, each in value.items()) + "}"
    assert isinstance(value, list | tuple)
    items = ", ".join(map(shown, value))
    if isinstance(value, list):
        return f"[{items}]"
    return f"({items},)" if len(value) == 1 else f"({items})"


def naming(topic_partition: TopicPartition, text: str) -> str:
    """Put the partition's name before a text, unless the text names it already, as some of Kafka's do.

    The name inside a path does not count: readers look for it at the beginning of the line.
    """
    named = rf"(?<![\w./-]){re.escape(str(topic_partition))}(?![\w/-]|\.\w)"
    if re.search(named, text):
        return text
    if isinstance(text, SettingText):
        return SettingText("{where}: {text}", where=topic_partition, text=text)
    return f"{topic_partition}: {text}"
