"""Which topic names are legal. The rule is Kafka's (``Topic.validate``)."""

from __future__ import annotations

import re

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


def check_topic_name(topic: object) -> str:
    """Returns ``topic`` if Kafka accepts it as a name.

    Raises:
        TypeError: it is not a str.
        ValueError: it is empty, ``.`` or ``..``, longer than 249 characters, or holds a character outside
            ``[A-Za-z0-9._-]``.
    """
    if not isinstance(topic, str):
        raise TypeError(f"topic must be str, not {type(topic).__name__}")
    if topic in ("", ".", "..") or _LEGAL.match(topic) is None:
        raise ValueError(
            f"{topic!r} is no legal topic name: 1 to 249 letters, digits, '.', '_' and '-', not '.' or '..'"
        )
    return topic
