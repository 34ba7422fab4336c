"""What log lines and error messages are made of: structured fields, and names that came from outside.

Every logger is ``splashdam`` or below it. ``docs/reference/logging.md`` lists levels and fields.
"""

from __future__ import annotations

import re

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


def naming(topic_partition: TopicPartition, text: str) -> str:
    """Put the partition's name before a text, unless the text names it already, as some of Kafka's do.

    The name inside a path does not count: readers look for it at the beginning of the line.
    """
    named = rf"(?<![\w./-]){re.escape(str(topic_partition))}(?![\w/-]|\.\w)"
    return text if re.search(named, text) else f"{topic_partition}: {text}"
