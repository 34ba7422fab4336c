"""What log lines and error messages are made of: structured fields, and names that came from outside.

Every logger is ``splashdam`` or below it. ``docs/logging.md`` lists levels and fields.
"""

from __future__ import annotations

import re

from splashdam.model.values import TopicPartition


def fields(**values: object) -> dict[str, dict[str, object]]:
    """The ``extra`` of a logging call: ``record.splashdam`` is ``values``. Nothing secret goes in."""
    return {"splashdam": values}


LONGEST_SHOWN = 250
"""Characters; every legal topic name fits."""


def quoted(name: object) -> str:
    """A name that came from outside, as it may stand in a line of a log.

    What a terminal or a reader of logs would act upon (line ends, escapes, marks that turn the direction of
    the text) is escaped as in a Python literal. Of a long one the beginning and the length are shown.

    Args:
        name: topic, group, client id, transactional id, principal, option, …; None stays None.
    """
    if not isinstance(name, str):
        return repr(name)
    if len(name) <= LONGEST_SHOWN:
        return repr(name)
    return f"{name[:LONGEST_SHOWN]!r}… ({len(name)} characters)"


def naming(topic_partition: TopicPartition, text: str) -> str:
    """A text about a partition, with its name in front unless the text says it, as some of Kafka's texts do.

    A path does not count as the name: people look for it at the beginning, not inside of a path.
    """
    said = rf"(?<![\w./-]){re.escape(str(topic_partition))}(?![\w/-]|\.\w)"
    return text if re.search(said, text) else f"{topic_partition}: {text}"
