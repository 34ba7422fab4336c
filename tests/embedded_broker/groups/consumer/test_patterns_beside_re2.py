"""Patterns beside google-re2: the same ones are legal, and they match the same names (KIP-848)."""

from __future__ import annotations

from string import ascii_letters, digits
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.running.examples import examples

from splashdam.embedded_broker.groups.patterns import InvalidPatternError, Pattern

re2: Any = pytest.importorskip("re2", reason="google-re2 is not installed: pip install google-re2")

LETTERS = frozenset(f"{ascii_letters}{digits}._-")

TOKENS = st.sampled_from(
    [
        *"abAB1-._()[]{}?*+^$|\\:,<>=!P",
        *("(?:", "(?i)", "(?i:", "(?-i:", "(?s)", "(?U)", "(?m)", "(?P<n>", "(?<n>"),
        *("[^", "[a-b]", "[[:alpha:]]", "[[:^digit:]]", "[[:upper:]]", "a-", "-b"),
        *(r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\b", r"\B", r"\A", r"\z", r"\Z", r"\Q", r"\E"),
        *(r"\pL", r"\p{Lu}", r"\P{Ll}", r"\p{^L}", r"\pN", r"\p{Greek}"),
        *(r"\x61", r"\x{62}", r"\141", r"\07", r"\1", r"\a", r"\.", r"\-"),
        *("{2}", "{1,}", "{0,2}", "{,2}", "{2,1}", "*?", "+?", "??"),
    ]
)
"""Pieces of RE2's syntax, put together to legal patterns and to illegal ones. Not `\\C`, a byte: re2j, which
Kafka's brokers use, refuses it."""

NAMES = st.text("abAB1._-", max_size=5)


def compiled_by_re2(pattern: str) -> Any:
    """The pattern as google-re2 understands it; None where it refuses it."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


@settings(max_examples=examples(400), deadline=None)
@given(
    pattern=st.lists(TOKENS, max_size=8).map("".join),
    names=st.lists(NAMES, max_size=8, unique=True),
)
def test_agrees_with_re2(pattern: str, names: list[str]) -> None:
    """Patterns that RE2 refuses are refused; others match the same whole names."""
    theirs = compiled_by_re2(pattern)
    if theirs is None:
        with pytest.raises(InvalidPatternError):
            Pattern(pattern, LETTERS)
        return
    assert Pattern(pattern, LETTERS).matching(names) == {each for each in names if theirs.fullmatch(each)}


@pytest.mark.parametrize(
    "pattern",
    [
        "{2}",
        "|{1,}",
        "(?i)*",
        "a(?i)*",
        "a(?s){0,2}b",
        r"\141+",
        r"\08",
        r"(?i)\p{Lu}+",
        "(?i)[[:upper:]]+",
        r"\1",
    ],
)
def test_agrees_where_it_once_did_not(pattern: str) -> None:
    """Bounds without a part, flags before bounds, octal escapes, and classes with case ignored."""
    names = ["", "a", "aa", "aab", "A", "AB", "b", "8"]
    theirs = compiled_by_re2(pattern)
    if theirs is None:
        with pytest.raises(InvalidPatternError):
            Pattern(pattern, LETTERS)
        return
    assert Pattern(pattern, LETTERS).matching(names) == {each for each in names if theirs.fullmatch(each)}
