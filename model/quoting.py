"""What strangers name, in log lines and error messages: on one line, no control characters, and short."""

from __future__ import annotations

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
