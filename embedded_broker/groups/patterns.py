"""Regular expressions of strangers in the syntax of RE2, which Kafka's brokers use, in bounded time.

Nothing is tried twice: all ways through a pattern are followed at once, letter by letter, so that the time is
at most the length of the text times that of the pattern, and a look at many texts has a budget of such steps.
What RE2 does not have (look-around, back references) is refused. A pattern has to match the whole text.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from splashdam.embedded_broker.groups.pattern_parsing import (
    Alphabet,
    Assertion,
    Choice,
    InvalidPatternError,
    Letter,
    Node,
    Repeat,
    Sequence,
    parse_pattern,
)

_MOST_STEPS = 2_000_000
"""Of one look at all texts: some tenths of a second, and a thousand times what an honest pattern takes."""
_MOST_INSTRUCTIONS = 5000

_BEGIN, _END, _WORD, _NO_WORD = "^", "$", "b", "B"


class _Instruction(NamedTuple):
    """One step through a pattern: takes a letter, asks for a place, or only leads on.

    Attributes:
        letters: what it takes; None where it takes nothing.
        place: what has to be true of where it stands; empty for nothing.
        then: the instructions that follow.
    """

    letters: frozenset[str] | None
    place: str
    then: tuple[int, ...]


class Pattern:
    """A compiled pattern.

    Args:
        text: in the syntax of RE2.
        alphabet: all letters of what it will be asked to match.

    Raises:
        InvalidPatternError: it is none, or too large.
    """

    def __init__(self, text: str, alphabet: Alphabet) -> None:
        self._sets: dict[frozenset[str], frozenset[str]] = {}  # the same few, kept once
        self._program: list[_Instruction] = [_Instruction(None, "", ())]  # the end, where a match is
        self._start = self._compile(parse_pattern(text, alphabet), 0)

    def matching(self, texts: Iterable[str]) -> frozenset[str]:
        """Those of the texts that match.

        Raises:
            InvalidPatternError: it takes too many steps.
        """
        self._steps = 0
        return frozenset(text for text in texts if self._matches(text))

    def _matches(self, name: str) -> bool:
        places = _places(name)
        states = self._closure((self._start,), places[0])
        for letter, place in zip(name, places[1:], strict=True):
            if not states:
                return False
            states = self._closure(
                (
                    after
                    for state in states
                    if letter in (self._program[state].letters or ())
                    for after in self._program[state].then
                ),
                place,
            )
        return 0 in states

    def _closure(self, states: Iterable[int], place: frozenset[str]) -> set[int]:
        """What can be reached without a letter."""
        found: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if state in found:
                continue
            found.add(state)
            instruction = self._program[state]
            if instruction.letters is None and (not instruction.place or instruction.place in place):
                waiting += instruction.then
        self._steps += len(found) + 1
        if self._steps > _MOST_STEPS:
            raise InvalidPatternError("it takes too many steps to match")
        return found

    def _compile(self, node: Node, then: int) -> int:
        """Adds a part of the pattern, which ``then`` follows; returns where it begins."""
        match node:
            case Letter(letters):
                return self._add(self._sets.setdefault(letters, letters), "", then)
            case Assertion(place):
                return self._add(None, place, then)
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._compile(part, then)
                return then
            case Choice(parts):
                return self._add(None, "", *(self._compile(part, then) for part in parts))
            case Repeat(part, least, most):
                return self._compile_repeat(part, least, most, then)

    def _compile_repeat(self, part: Node, least: int, most: int | None, then: int) -> int:
        if most is None:
            loop = self._add(None, "", then)
            body = self._compile(part, loop)
            self._program[loop] = _Instruction(None, "", (body, then))
            then = loop
        else:
            end = then
            for _ in range(most - least):
                then = self._add(None, "", self._compile(part, then), end)
        for _ in range(least):
            then = self._compile(part, then)
        return then

    def _add(self, letters: frozenset[str] | None, place: str, *then: int) -> int:
        if len(self._program) >= _MOST_INSTRUCTIONS:
            raise InvalidPatternError("it is too large: repeat less")
        self._program.append(_Instruction(letters, place, then))
        return len(self._program) - 1


def _places(name: str) -> list[frozenset[str]]:
    """What is true before each letter, and at the end."""
    is_word = [False, *(letter.isalnum() or letter == "_" for letter in name), False]
    places = [{_WORD if is_word[i] != is_word[i + 1] else _NO_WORD} for i in range(len(name) + 1)]
    places[0].add(_BEGIN)
    places[-1].add(_END)
    return [frozenset(each) for each in places]


@lru_cache(maxsize=64)
def compiled(text: str, alphabet: Alphabet) -> Pattern:
    """A pattern, compiled once.

    Raises:
        InvalidPatternError: it is none, or too large.
    """
    return Pattern(text, alphabet)
