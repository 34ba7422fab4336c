"""The system calls at which a process is killed: the first of each class of calls that an action makes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import NamedTuple

from lab.failing_calls.library import Call, Failure

_MOST_OF_A_CLASS = 3
_UNIQUE_DIGITS = 32
_UNIQUE = re.compile(rf"[0-9a-f]{{{_UNIQUE_DIGITS}}}|[0-9]+")


class Point(NamedTuple):
    """A call at which the process is killed.

    Attributes:
        pattern: an extended regular expression for the whole of a call's subject.
        occurrence: which of the calls that match, from 1 on.
    """

    pattern: str
    occurrence: int

    def failure(self) -> Failure:
        """Return this point as a setting of the preloaded library."""
        return Failure("kill", at=self.occurrence, match=self.pattern)

    def __str__(self) -> str:
        return f"{self.pattern} ({self.occurrence})"


def points_of(calls: Iterable[Call], patterns: Sequence[str]) -> list[Point]:
    """Return the points of an action: the first three calls of each class.

    Calls of one class have the same function, and the same path but for its numbers. A limit per class keeps
    the many writes of producers from hiding the single rename of the cleaner.

    Args:
        calls: all calls during the action.
        patterns: ``CALL:PATH`` of the calls that may belong to the action, for fnmatch.
    """
    classes = Counter(_class_of(call) for call in calls if _is_matched(call, patterns))
    return [
        Point(pattern, occurrence)
        for pattern, count in sorted(classes.items())
        for occurrence in range(1, min(count, _MOST_OF_A_CLASS) + 1)
    ]


def _is_matched(call: Call, patterns: Sequence[str]) -> bool:
    for pattern in patterns:
        name, _, path = pattern.partition(":")
        if fnmatch(call.name, name) and (fnmatch(call.path, path) or fnmatch(call.new_path, path)):
            return True
    return False


def _class_of(call: Call) -> str:
    """Return the pattern for a call and those like it: ``write:.*/t-[0-9]+/[0-9]+[.]log``."""
    paths = [path for path in (call.path, call.new_path) if path]
    return f"{call.name}:{'>'.join(map(_general, paths))}"


def _general(path: str) -> str:
    last = "/".join(PurePosixPath(path).parts[-2:]).replace(".", "[.]")
    return f".*/{_UNIQUE.sub(_alike, last)}"


def _alike(found: re.Match[str]) -> str:
    return "[0-9a-f]{32}" if len(found[0]) == _UNIQUE_DIGITS else "[0-9]+"
