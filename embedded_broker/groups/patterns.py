"""Regular expressions of clients in the syntax of RE2, which Kafka's brokers use, in bounded time.

They stay hand-written so that a plain install has them; a test compares them with google-re2. Nothing is
tried twice: all ways through a pattern are followed at once, letter by letter, so that the time is at most
the length of the text times the size of the pattern with its repetitions written out. That size is limited,
and so are the steps for all texts together. What RE2 does not have (look-around, back references) is refused.
A pattern has to match the whole text.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Generator, Iterable, Iterator, Set
from functools import cached_property, lru_cache
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits, hexdigits, punctuation
from typing import NamedTuple, TypeAlias

import attrs

from splashdam.embedded_broker.execution.turns import UNIT_BYTES

_MOST_STEPS = 2_000_000
"""Steps for matching all texts: some tenths of a second, a thousand times what ordinary patterns take."""
MOST_SIZE = 12_500
"""Limit of a compiled pattern: its parts, repeated as often as it says, and the ways between them."""
_STEPS_IN_A_UNIT = 40
"""Steps that take about as long as a small request; see execution/turns.py."""
_LOOKS_IN_A_UNIT = 200
"""Letters that are tried against a class, or parts that are compiled, in the same time."""

_BEGIN, _END, _WORD, _NO_WORD = "^", "$", "b", "B"


class _Instruction(NamedTuple):
    """One instruction of a compiled pattern (a state of the NFA).

    Attributes:
        letters: consumes one of these; None if it consumes nothing.
        place: assertion that must hold at this position; empty for none.
        then: the next instructions.
    """

    letters: frozenset[str] | None
    place: str
    then: tuple[int, ...]


class Pattern:
    """A compiled pattern.

    Args:
        text: in the syntax of RE2.
        alphabet: all characters of the texts that it will match.

    Attributes:
        size: what it took to compile it; at most `MOST_SIZE`.

    Raises:
        InvalidPatternError: it is illegal, or too large.
    """

    def __init__(self, text: str, alphabet: Alphabet) -> None:
        self._sets: dict[frozenset[str], frozenset[str]] = {}  # equal sets are kept once
        self._program: list[_Instruction] = [_Instruction(None, "", ())]  # the end, where a match is
        self.size = 0
        self._start = self._compile(parse_pattern(text, alphabet), 0)

    def matching(self, texts: Iterable[str], *, most_steps: int = _MOST_STEPS) -> frozenset[str]:
        """Return the texts that match as a whole.

        Raises:
            InvalidPatternError: it takes too many steps.
        """
        steps = self.matching_in_steps(texts, most_steps=most_steps)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            found: frozenset[str] = end.value
            return found

    def matching_in_steps(
        self, texts: Iterable[str], *, most_steps: int = _MOST_STEPS
    ) -> Generator[int, None, frozenset[str]]:
        """As ``matching``; yields the units of a turn that its steps have taken, also within a text."""
        self._steps, self._most_steps, self._told = 0, most_steps, 0
        found = []
        for text in texts:
            is_match = yield from self._matches(text)
            if is_match:
                found.append(text)
        return frozenset(found)

    def _matches(self, name: str) -> Generator[int, None, bool]:
        places = _places(name)
        states = self._closure((self._start,), next(places))
        for letter, place in zip(name, places, strict=True):
            if not states:
                return False
            units = (self._steps - self._told) // _STEPS_IN_A_UNIT
            if units:
                yield units
                self._told += units * _STEPS_IN_A_UNIT
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
        """Return all states that can be reached without consuming a character."""
        found: set[int] = set()
        waiting = list(states)
        looked_at = 0
        while waiting:
            state = waiting.pop()
            looked_at += 1  # a state is reached once for each way to it
            if state in found:
                continue
            found.add(state)
            instruction = self._program[state]
            if instruction.letters is None and (not instruction.place or instruction.place in place):
                waiting += instruction.then
        self._steps += looked_at + 1
        if self._steps > self._most_steps:
            raise InvalidPatternError("it takes too many steps to match")
        return found

    def _compile(self, node: Node, then: int) -> int:
        """Compile a node that is followed by ``then``; return its first instruction."""
        self._grow(1)  # a repetition of nothing makes no instruction, and takes its time
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
        self._grow(len(then))
        self._program.append(_Instruction(letters, place, then))
        return len(self._program) - 1

    def _grow(self, by: int) -> None:
        """Count what is compiled: its time and memory grow with it."""
        self.size += by
        if self.size > MOST_SIZE:
            raise InvalidPatternError("it is too large: repeat less")


def _places(name: str) -> Iterator[frozenset[str]]:
    """Yield the assertions that hold before each character and at the end."""
    was_word, is_first = False, True
    for letter in name:
        is_word = letter.isalnum() or letter == "_"
        yield _PLACES_AT[is_word != was_word, is_first, False]
        was_word, is_first = is_word, False
    yield _PLACES_AT[was_word, is_first, True]


_PLACES_AT = {
    (is_edge, is_first, is_last): frozenset(
        [_WORD if is_edge else _NO_WORD, *[_BEGIN] * is_first, *[_END] * is_last]
    )
    for is_edge in (False, True)
    for is_first in (False, True)
    for is_last in (False, True)
}
"""The assertions at a place: between a word and something else, at the beginning, at the end."""


@attrs.frozen
class Compilation:
    """The compilation of a pattern as a `Work`.

    Each letter of the pattern may be a class, which looks at all characters of the alphabet. Repetitions make
    a pattern as large as `MOST_SIZE`, however short it is.

    Args:
        text: of the pattern.
        alphabet: as for `Pattern`.
    """

    text: str
    alphabet: Alphabet

    @property
    def size_bytes(self) -> int:
        looks = len(self.text) * (1 + len(self.alphabet)) + MOST_SIZE * ("{" in self.text)
        return looks // _LOOKS_IN_A_UNIT * UNIT_BYTES

    def do(self, max_bytes: int) -> Pattern:
        """Return the pattern; raises as `Pattern`."""
        return Pattern(self.text, self.alphabet)


@lru_cache(maxsize=64)
def compiled(text: str, alphabet: Alphabet) -> Pattern:
    """Return a compiled pattern, from a cache.

    Raises:
        InvalidPatternError: it is illegal, or too large.
    """
    return Pattern(text, alphabet)


Alphabet: TypeAlias = frozenset[str]
"""All characters of the texts to match; classes are restricted to them."""

_WORD_LETTERS = frozenset(ascii_letters + digits + "_")
_SPACE = frozenset(" \t\n\r\f")
_HEX_DIGITS = frozenset(hexdigits)
_CLASSES = {"d": frozenset(digits), "w": _WORD_LETTERS, "s": _SPACE}
"""ASCII only, as in RE2; in upper case they are negated."""
_POSIX = {
    "alnum": frozenset(ascii_letters + digits),
    "alpha": frozenset(ascii_letters),
    "ascii": frozenset(map(chr, range(128))),
    "blank": frozenset(" \t"),
    "cntrl": frozenset(map(chr, (*range(32), 127))),
    "digit": frozenset(digits),
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": frozenset(ascii_lowercase),
    "print": frozenset(map(chr, range(32, 127))),
    "punct": frozenset(punctuation),
    "space": _SPACE | {"\v"},
    "upper": frozenset(ascii_uppercase),
    "word": _WORD_LETTERS,
    "xdigit": _HEX_DIGITS,
}
_SCRIPTS = ("Latin", "Greek", "Cyrillic", "Hebrew", "Arabic", "Han", "Hiragana", "Katakana", "Hangul", "Thai")
_CATEGORIES = frozenset(
    first + second
    for first, seconds in (
        *(("C", "cfos"), ("L", "lmotu"), ("M", "cen"), ("N", "dlo"), ("P", "cdefios"), ("S", "ckmo")),
        ("Z", "lps"),
    )
    for second in ("", *seconds)
)
_CONTROLS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_OCTAL = frozenset("01234567")
_PLACES = {"A": "^", "z": "$", "b": "b", "B": "B"}
_MOST_REPEATS = 1000
_LONGEST_BOUNDS = 20
"""Letters of ``{least,most}``: more than two numbers that are small enough need."""
_MOST_NESTED = 100
_MOST_LETTERS = 10_000
_MOST_LOOKED_AT = 250_000
"""Limit of characters scanned for classes: a client may have ids with all of Unicode."""


class InvalidPatternError(ValueError):
    """A pattern that RE2 would refuse, or that is too expensive."""


class Letter(NamedTuple):
    """One character of a set."""

    letters: frozenset[str]


class Assertion(NamedTuple):
    """An assertion: ``^``, ``$``, ``b`` or ``B``."""

    place: str


class Sequence(NamedTuple):
    """One part after the other."""

    parts: tuple[Node, ...]


class Choice(NamedTuple):
    """One of the parts."""

    parts: tuple[Node, ...]


class Repeat(NamedTuple):
    """A part ``least`` to ``most`` times; None for no limit."""

    part: Node
    least: int
    most: int | None


Node: TypeAlias = Letter | Assertion | Sequence | Choice | Repeat


def parse_pattern(text: str, alphabet: Alphabet) -> Node:
    """Return the syntax tree of a pattern.

    Args:
        text: the pattern.
        alphabet: all characters of the texts to match.

    Raises:
        InvalidPatternError: it is illegal.
    """
    if len(text) > _MOST_LETTERS:
        raise InvalidPatternError(f"it has more than {_MOST_LETTERS} letters")
    parser = _Parser(text, alphabet)
    node = parser.choice(0)
    if not parser.is_at_end:
        raise InvalidPatternError(f"unexpected ) at {parser.position}")
    return node


class _Parser:
    """Recursive descent parser."""

    def __init__(self, text: str, alphabet: Alphabet) -> None:
        self._text = text
        self._alphabet = alphabet
        self._ignores_case = False
        self._dot_is_all = False
        self._looked_at = 0
        self._repeated_again = 0
        self.position = 0

    @property
    def is_at_end(self) -> bool:
        return self.position >= len(self._text)

    @property
    def _all(self) -> Alphabet:
        """The alphabet, for a scan of all its characters, which is counted against the limit."""
        self._looked_at += len(self._alphabet)
        if self._looked_at > _MOST_LOOKED_AT:
            raise InvalidPatternError("it has too many classes of letters")
        return self._alphabet

    @cached_property
    def _dot(self) -> frozenset[str]:
        return self._all - {"\n"}

    def choice(self, depth: int) -> Node:
        """Parse alternatives up to the end of a group; flags that are set in it are valid to its end."""
        if depth > _MOST_NESTED:
            raise InvalidPatternError("its groups are nested too deeply")
        flags = self._ignores_case, self._dot_is_all
        parts = [self._sequence(depth)]
        while self._take("|"):
            parts.append(self._sequence(depth))
        self._ignores_case, self._dot_is_all = flags
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while not self.is_at_end and self._peek() not in "|)":
            if self._take(r"\Q"):
                literal, _, rest = self._text[self.position :].partition(r"\E")
                self.position = len(self._text) - len(rest)
                parts += [self._letter(each) for each in literal]
            else:
                self._next_part(parts, depth)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _next_part(self, parts: list[Node], depth: int) -> None:
        """Add an atom, or repeat the last one. Flags such as ``(?i)`` may stand between it and its bounds."""
        bounds = self._bounds()
        if bounds is None:
            node = self._atom(depth)
            if node is not None:
                parts.append(node)
            return
        self._take("?")  # reluctant: of a whole match it makes no difference
        if not parts or self._bounds() is not None:
            raise InvalidPatternError(f"nothing to repeat at {self.position}")
        # `a*(?i)*(?i)*` nests as deeply as it is long, without a group.
        self._repeated_again += isinstance(parts[-1], Repeat)
        if self._repeated_again > _MOST_NESTED:
            raise InvalidPatternError("its repetitions are nested too deeply")
        parts[-1] = Repeat(parts[-1], *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        if self.is_at_end or self._peek() != "{":
            return None
        end = self._text.find("}", self.position, self.position + _LONGEST_BOUNDS)
        if end < 0:
            return None
        low, comma, high = self._text[self.position + 1 : end].partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None  # a brace that stands for itself
        least = int(low)
        most = int(high) if high else None if comma else least
        if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
            raise InvalidPatternError(f"illegal repetition {self._text[self.position : end + 1]}")
        self.position = end + 1
        return least, most

    def _atom(self, depth: int) -> Node | None:
        """A letter, a class, a place or a group; None for flags."""
        letter = self._next()
        match letter:
            case ".":
                return Letter(self._alphabet if self._dot_is_all else self._dot)
            case "^" | "$":
                return Assertion(letter)
            case "(":
                return self._group(depth)
            case "[":
                return Letter(self._class())
            case "\\":
                return self._escape()
        return self._letter(letter)

    def _group(self, depth: int) -> Node | None:
        flags = self._ignores_case, self._dot_is_all
        if self._take("?") and not self._group_head():
            return None  # flags alone, which hold from here on
        node = self.choice(depth + 1)
        self._ignores_case, self._dot_is_all = flags
        if not self._take(")"):
            raise InvalidPatternError("missing )")
        return node

    def _group_head(self) -> bool:
        """Parse what follows ``(?``; return whether it begins a group, not only flags."""
        for head in ("P<", "<"):
            if self._take(head):
                name, end, _ = self._text[self.position :].partition(">")
                if not end or not name or not _WORD_LETTERS.issuperset(name):
                    raise InvalidPatternError("look-around and illegal group names are not known")
                self.position += len(name) + 1
                return True
        value = True
        while True:
            match self._next():
                case ":":
                    return True
                case ")":
                    return False
                case "-":
                    value = False
                case "i":
                    self._ignores_case = value
                case "s":
                    self._dot_is_all = value
                case "m" | "U":
                    pass  # texts have one line, and match as a whole
                case other:
                    raise InvalidPatternError(f"unknown flag or look-around (?{other}")

    def _escape(self) -> Node:
        letter = self._next()
        if letter in _PLACES:
            return Assertion(_PLACES[letter])
        return Letter(self._escaped(letter))

    def _escaped(self, letter: str) -> frozenset[str]:
        if letter.lower() in _CLASSES:
            found = self._alphabet & _CLASSES[letter.lower()]
            return found if letter.islower() else self._all - found
        if letter in "pP":
            name = self._next()
            if name == "{":
                name, _, _ = self._text[self.position :].partition("}")
                self.position += len(name) + 1
            is_negated = (letter == "P") != name.startswith("^")
            found = self._of_class(_unicode_class(name.removeprefix("^")))
            return self._alphabet - found if is_negated else found
        return self._cased(self._escaped_letter(letter))

    def _of_class(self, has: Callable[[str], bool]) -> frozenset[str]:
        """The letters of a class, and with ``(?i)`` those that differ from them by case alone."""
        if not self._ignores_case:
            return frozenset(filter(has, self._all))
        self._looked_at += 3 * len(self._alphabet)  # each letter, and its other cases
        return frozenset(each for each in self._all if any(map(has, {each, *each.lower(), *each.upper()})))

    def _escaped_letter(self, letter: str) -> str:
        if letter == "x":
            code = self._next()
            if code == "{":
                code, _, _ = self._text[self.position :].partition("}")
                self.position += len(code) + 1
            else:
                code += self._next()
            if not code or not set(code) <= _HEX_DIGITS or int(code, 16) > sys.maxunicode:
                raise InvalidPatternError(f"illegal \\x{code[:20]}")
            return chr(int(code, 16))
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter in _OCTAL and (letter == "0" or self._text[self.position : self.position + 1] in _OCTAL):
            code = letter
            while len(code) < 3 and not self.is_at_end and self._peek() in _OCTAL:
                code += self._next()
            return chr(int(code, 8))
        if letter.isalnum():
            raise InvalidPatternError(f"unknown escape \\{letter}")
        return letter

    def _class(self) -> frozenset[str]:
        """Parse a class up to its closing bracket, which is a literal if it comes first."""
        is_negated, found, is_first = self._take("^"), set[str](), True
        while is_first or self._peek() != "]":
            is_first = False
            if self._take("[:"):
                name, end, _ = self._text[self.position :].partition(":]")
                positive = name.removeprefix("^")
                if not end or positive not in _POSIX:
                    raise InvalidPatternError(f"unknown class [:{name[:20]}")
                self.position += len(name) + 2
                posix = _POSIX[positive]
                inside = self._of_class(posix.__contains__) if self._ignores_case else self._alphabet & posix
                found |= inside if positive == name else self._all - inside
            else:
                found |= self._class_item()
        self._next()
        return self._all - found if is_negated else frozenset(found)

    def _class_item(self) -> Set[str]:
        low = self._next()
        if low == "\\":
            letter = self._next()
            if letter.lower() in _CLASSES or letter in "pP":
                return self._escaped(letter)
            low = self._escaped_letter(letter)
        if not (self._peek() == "-" and self._text[self.position + 1 : self.position + 2] not in ("]", "")):
            return self._cased(low)
        self._next()
        high = self._next()
        if high == "\\":
            high = self._escaped_letter(self._next())
        if high < low:
            raise InvalidPatternError(f"illegal range {low}-{high}")
        return self._of_class(lambda letter: low <= letter <= high)

    def _letter(self, letter: str) -> Letter:
        return Letter(self._cased(letter))

    def _cased(self, letter: str) -> frozenset[str]:
        same = {letter, letter.lower(), letter.upper()} if self._ignores_case else {letter}
        return self._alphabet & same

    def _peek(self) -> str:
        if self.is_at_end:
            raise InvalidPatternError("it ends too early")
        return self._text[self.position]

    def _next(self) -> str:
        letter = self._peek()
        self.position += 1
        return letter

    def _take(self, text: str) -> bool:
        is_there = self._text.startswith(text, self.position)
        self.position += len(text) * is_there
        return is_there


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_REPEATS)) + 4


def _unicode_class(name: str) -> Callable[[str], bool]:
    if name == "Any":
        return lambda _: True
    if name in _SCRIPTS:
        return lambda letter: unicodedata.name(letter, "").startswith(name.upper())
    if name not in _CATEGORIES:
        raise InvalidPatternError(f"unknown class \\p{{{name[:20]}}}")
    return lambda letter: unicodedata.category(letter).startswith(name)
