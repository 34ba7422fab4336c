"""Log lines that clients can cause as often as they like."""

from __future__ import annotations

import logging

import attrs
import trio

_PAUSE_SECONDS = 1.0


class LimitedLog:
    """Writes a line of each kind at most once a second; the next one says how many were left out.

    The kind of a line is its level, and its text before the arguments are put in, so there are no more kinds
    than texts in the code. Without a limit, whoever opens connections that are closed at once fills the disk
    with the log. Kafka writes every such line, and leaves it to its logging to throw old files away.

    Args:
        log: takes the lines.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._kinds: dict[tuple[int, str], _Kind] = {}

    def write(self, level: int, text: str, *args: object) -> None:
        """Write a line, or count it if there was one of its kind within the last second."""
        now = trio.current_time()
        kind = self._kinds.setdefault((level, text), _Kind())
        if now < kind.next_at:
            kind.left_out += 1
            return
        if kind.left_out:
            text, args = f"{text} (and %d more like it before)", (*args, kind.left_out)
        kind.next_at, kind.left_out = now + _PAUSE_SECONDS, 0
        self._log.log(level, text, *args, stacklevel=2)


@attrs.define
class _Kind:
    """When a kind of line may be written again, and how many were left out since the last one."""

    next_at: float = float("-inf")
    left_out: int = 0
