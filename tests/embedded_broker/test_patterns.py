"""Regular expressions of strangers: the same answers as ``re``, and none that takes for ever."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splashdam.embedded_broker.patterns import full_matcher

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "x-", "[0-9c]"])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, st.text("ab1x-", max_size=8))
def test_answers_are_those_of_re(expression: str, text: str) -> None:
    """On short texts, where that one comes to an end."""
    assert full_matcher(expression)(text) is (re.fullmatch(expression, text) is not None)


def test_no_text_takes_for_ever() -> None:
    """Each of these keeps ``re`` busy for longer than the universe is old."""
    for expression in ("(a+)+b", "(a|aa)*b", "(a*)*b", "(.*)(.*)(.*)(.*)(.*)b"):
        assert not full_matcher(expression)("a" * 5000)


@pytest.mark.parametrize(
    "expression", ["(", "a**", r"(a)\1", "(?=a)a", "(?i)a", "((a{999}){999}){999}", "[b-a]"]
)
def test_what_is_refused(expression: str) -> None:
    """What is no expression, what RE2 refuses, and what is too large."""
    with pytest.raises(ValueError, match=r"regular expression"):
        full_matcher.__wrapped__(expression)
