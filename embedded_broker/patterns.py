"""Regular expressions of strangers, matched in time that is linear in the text.

Kafka takes RE2's expressions, which cannot backtrack; Python's ``re`` can, for ever. So an expression is
parsed by ``re``, and run here as a set of states, one step for each character. Back references and
look-around are refused, as RE2 refuses them.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

sre: Any = importlib.import_module("re._parser")  # the parser that ``re`` itself uses

_MOST_STATES = 5_000
"""What bounded repetitions, nested, would make larger is refused."""

_Test = Callable[[str], bool]


class _Machine:
    """States are numbers; each has a test that leads on to the next one, or free ways to others."""

    def __init__(self) -> None:
        self.tests: list[_Test | None] = []
        self.free: list[list[int]] = []
        self.next: list[int] = []

    def state(self, test: _Test | None = None, to: int = -1, free: Iterable[int] = ()) -> int:
        if len(self.tests) >= _MOST_STATES:
            raise ValueError("the regular expression is too large")
        self.tests.append(test)
        self.next.append(to)
        self.free.append(list(free))
        return len(self.tests) - 1

    def matches(self, text: str, start: int, end: int) -> bool:
        states = self._closed([start])
        for character in text:
            followers = []
            for state in states:
                test = self.tests[state]
                if test is not None and test(character):
                    followers.append(self.next[state])
            states = self._closed(followers)
            if not states:
                return False
        return end in states

    def _closed(self, states: list[int]) -> set[int]:
        """With all that are reached for free."""
        seen: set[int] = set()
        waiting = states
        while waiting:
            state = waiting.pop()
            if state not in seen:
                seen.add(state)
                waiting.extend(self.free[state])
        return seen


@lru_cache(maxsize=128)
def full_matcher(pattern: str) -> Callable[[str], bool]:
    """What says whether a text matches a regular expression as a whole.

    Raises:
        ValueError: it is none, or one that RE2 would not take, or too large.
    """
    try:
        tree = sre.parse(pattern)
        if tree.state.flags & ~re.UNICODE:
            raise ValueError("flags inside a regular expression are not taken")
        machine = _Machine()
        end = machine.state()
        start = _built(machine, tree, end)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
    return lambda text: machine.matches(text, start, end)


def _built(machine: _Machine, items: Any, end: int) -> int:
    """The state from which a sequence leads to ``end``."""
    for kind, value in reversed(list(items)):
        end = _item(machine, str(kind), value, end)
    return end


def _item(machine: _Machine, kind: str, value: Any, end: int) -> int:
    match kind:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, repeated = value
            return _repeated(machine, (least, most), repeated, end)
        case "SUBPATTERN":
            if value[1] or value[2]:
                raise ValueError("flags inside a regular expression are not taken")
            return _built(machine, value[3], end)
        case "BRANCH":
            return machine.state(free=[_built(machine, branch, end) for branch in value[1]])
        case "AT" if str(value) in ("AT_BEGINNING", "AT_END", "AT_BEGINNING_STRING", "AT_END_STRING"):
            return end  # the whole text is matched
        case _:
            return machine.state(_test(kind, value), end)


def _repeated(machine: _Machine, times: tuple[int, int], items: Any, end: int) -> int:
    least, most = times
    if most == sre.MAXREPEAT:
        loop = machine.state(free=[end])
        machine.free[loop].append(_built(machine, items, loop))
        end = loop
    else:
        for _ in range(most - least):
            end = machine.state(free=[end, _built(machine, items, end)])
    for _ in range(least):
        end = _built(machine, items, end)
    return end


def _test(kind: str, value: Any) -> _Test:
    match kind:
        case "LITERAL":
            return chr(value).__eq__
        case "NOT_LITERAL":
            return chr(value).__ne__
        case "ANY":
            return "\n".__ne__
        case "RANGE":
            low, high = value
            return lambda character: low <= ord(character) <= high
        case "CATEGORY":
            found = re.compile(_CATEGORIES[str(value)], re.ASCII)
            return lambda character: found.match(character) is not None
        case "IN":
            negated = str(value[0][0]) == "NEGATE"
            tests = [_test(str(each), what) for each, what in value[negated:]]
            return lambda character: any(test(character) for test in tests) is not negated
        case _:
            raise ValueError(f"{kind.lower()} is not taken in a regular expression")


_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
