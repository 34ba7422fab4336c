"""Patterns of strangers: RE2's syntax, whole texts, and a bound for whatever somebody sends."""

from __future__ import annotations

import re
from contextlib import suppress
from string import ascii_letters, digits

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.running.alone import traced
from support.running.examples import examples

from splashdam.embedded_broker.groups.patterns import (
    _MOST_STEPS,
    _STEPS_IN_A_UNIT,
    MOST_SIZE,
    InvalidPatternError,
    Letter,
    Pattern,
    _Parser,
)

NAMES = [
    "",
    "a",
    "b",
    "ab",
    "aab",
    "abb",
    "a.b",
    "a-b",
    "A",
    "Ab",
    "orders.eu",
    "orders_eu",
    "orders",
    "x1",
    "42",
]

LETTERS = frozenset(ascii_letters + digits + "._-")


@pytest.mark.parametrize(
    "pattern",
    [
        "", "a", "a.b", r"a\.b", "a*", "a+b", "a?b", "(a|b)*", "a{2}b", "a{1,}", "a{0,2}b{1,2}", "^a.*$",
        "[ab]+", "[^ab]+", "[a-c]+", r"[\w.]+", r"\w+", r"\d+", r"\D+", r"\W", "(?i)AB", "(?i:a)b",
        "(?:a|ab)b",
        r"orders[._]eu", r"\borders\b.*", r"orders\B.*", "(?P<x>a)b", "a||b", "()", "[]a]+", "[a-]+",
        "a.*?b", "$a",
        "[a.-]*", r"\Aa\w*", "(?i)[a-b]+", "a(?s:.)b", r"\x61b",
    ],
)  # fmt: skip
def test_matches_the_same_as_python(pattern: str) -> None:
    """Where both have the syntax they agree, name by name."""
    ours = Pattern(pattern, LETTERS).matching(NAMES)
    assert ours == {name for name in NAMES if re.fullmatch(pattern, name)}


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        (r"\Qa.b\E", {"a.b"}),
        (r"\Qa.b", {"a.b"}),
        ("[[:alpha:]]+", {"a", "b", "ab", "aab", "abb", "A", "Ab", "orders"}),
        ("[[:^digit:]]", {"a", "b", "A"}),
        (r"\p{Lu}.?", {"A", "Ab"}),
        (r"\pL\PL\pL", {"a.b", "a-b"}),
        (r"\p{Latin}", {"a", "b", "A"}),
        (r"\x{61}b\z", {"ab"}),
        ("(?P<1>a)(?<n_2>b)", {"ab"}),
        ("(?U)a+", {"a"}),
        ("é|a", {"a"}),
        ("x[[]|a", {"a"}),
        ("a{,2}|b{", set()),
    ],
)
def test_matches_the_same_as_re2(pattern: str, matched: set[str]) -> None:
    """Syntax that Python does not have."""
    assert Pattern(pattern, LETTERS).matching(NAMES) == matched


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "[", "[a", "*", "a**", "+a", "a{3,2}", "a{1001}", r"\1", r"\k", "(?=a)",
        "(?!a)", "(?<=a)",
        "(?P<>a)", "(?P<a-b>a)", "(?P<é>a)",
        "(?z)", "(?", "[b-a]", "[[:what:]]", r"\p{Klingon}", "\\", r"\x{zz}",
        "(?P=x)", "x" * 10_001,
        "(" * 200 + ")" * 200, "((a{100}){100}){100}",
    ],
)  # fmt: skip
def test_refuses_the_same_as_re2(pattern: str) -> None:
    """No look-around, no back references, nothing unclosed, nothing too large."""
    with pytest.raises(InvalidPatternError):
        Pattern(pattern, LETTERS)


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("a.b", {"a b"}),
        ("(?s)a.b", {"a b", "a\nb"}),
        (r"\W", {"é"}),
        (r"\pL", {"é"}),
        (r"a\sb", {"a b", "a\nb"}),
    ],
)
def test_letters_are_those_of_the_texts(pattern: str, matched: set[str]) -> None:
    """Transactional ids may have any."""
    texts = ["a b", "a\nb", "é"]
    assert Pattern(pattern, frozenset("".join(texts))).matching(texts) == matched


def test_hostile_pattern_ends_after_a_bounded_number_of_steps() -> None:
    """Patterns that hang Python's engine are matched character by character; too large ones are refused."""
    name = "a" * 200 + "!"
    assert Pattern("(a*)*b", LETTERS).matching([name]) == frozenset()
    assert Pattern("(a|aa)+$", LETTERS).matching(["a" * 249]) == {"a" * 249}
    pattern = Pattern("((a?){50}){40}", LETTERS)
    with pytest.raises(InvalidPatternError, match="too many steps"):
        pattern.matching(f"{'a' * 240}{number}" for number in range(10_000))
    assert pattern._steps <= _MOST_STEPS + MOST_SIZE  # for all the texts, not for each


@pytest.mark.parametrize(
    ("pattern", "text", "of_one_letter"),
    [
        (r"\p{L}+", "a" * 30_000, 6),
        (".{0,500}.{0,500}", "a" * 700, 4_000),
        ("(|||||||||a)*", "a" * 3_000, 60),
    ],
    ids=["a long text", "many states", "many ways to a state"],
)
def test_a_pattern_for_a_long_text_held_the_loop(pattern: str, text: str, of_one_letter: int) -> None:
    """ListTransactions tried 32,000 letters of one id in one step of 0.1 s; each letter is counted now.

    The steps between two yields are those of the units that are told, and of at most one more letter.
    """
    compiled, before, units_told = Pattern(pattern, frozenset("a")), 0, 0
    for units in compiled.matching_in_steps([text, "a"]):
        units_told += units
        assert compiled._steps - before <= units * (_STEPS_IN_A_UNIT + 1) + of_one_letter
        before = compiled._steps
    assert units_told > 500
    assert compiled._steps <= (units_told + 1) * _STEPS_IN_A_UNIT + of_one_letter


@pytest.mark.parametrize(
    "pattern",
    [
        "((((){1000}){1000}){1000})",
        "(a" + "|" * 9_900 + "){1000}",
        "(" + "|" * 2_000 + "){1000}",
        "((|a){1000}){1000}",
        "(?:(?:^){1000}){1000}",
    ],
    ids=["of nothing", "of empty ways", "of ways alone", "of a choice", "of an assertion"],
)
def test_a_repetition_of_nothing_hung_the_broker_for_good(pattern: str) -> None:
    """25 letters of a client took 1,000,000,000 rounds: no instruction was made, and only those counted."""
    with pytest.raises(InvalidPatternError, match="too large"):
        Pattern(pattern, LETTERS)


@pytest.mark.parametrize("bound", ["*", "+", "?", "{1}"])
def test_flags_between_repetitions_exceeded_the_recursion_limit(bound: str) -> None:
    """A repetition of a repetition of … needs no group; it was answered as a bug of the broker."""
    assert Pattern("a*(?i)*(?-i)+", LETTERS).matching(NAMES) == {"", "a"}
    with pytest.raises(InvalidPatternError, match="nested too deeply"):
        Pattern("a" + f"{bound}(?i)" * 1_000, LETTERS)


@pytest.mark.parametrize("code", ["{+41}", "{ 41}", "{4_1}", "{}", "{110000}", " 41"])
def test_a_code_in_hexadecimal_has_digits_alone(code: str) -> None:
    """Python's ``int`` takes a sign, blanks and underscores; RE2 does not."""
    with pytest.raises(InvalidPatternError, match="illegal"):
        Pattern(rf"\x{code}", frozenset("A"))


def test_a_class_copied_all_its_letters_for_each_of_its_parts() -> None:
    """A class with 1,000 parts for ids of 200,000 different letters took 40 s."""
    alphabet = frozenset(map(chr, range(32, 40_000)))
    parser = _Parser(r"[\x{0}-\x{10FFFF}" + "a" * 5_000 + "]", alphabet)
    assert parser.choice(0) == Letter(alphabet)
    assert parser._looked_at == len(alphabet)


def test_states_that_are_reached_again_cost_nothing() -> None:
    """A pattern of ten thousand bars took 10,000 looks for a letter, and 5 were counted."""
    bars = Pattern(f"({'|' * 2_000}a)*", frozenset("a"))
    bars.matching(["a"])
    assert bars._steps > 4_000
    with pytest.raises(InvalidPatternError, match="too many steps"):
        bars.matching(["a" * 2_000])


def test_a_long_pattern_takes_little_memory() -> None:
    """The characters of a class are kept once, not for each use: that took 20 MB per pattern."""
    assert traced(Pattern, "." * 4990, LETTERS).held_bytes < 2_000_000
    assert Pattern("." * 4990, LETTERS).matching(["a" * 4990, "a"]) == {"a" * 4990}


@pytest.mark.parametrize("part", [r"\D", "[^a]", "[b-é]", r"\pL", "[[:^digit:]]"])
def test_large_alphabets_cost_no_more(part: str) -> None:
    """Ids of strangers may have all of Unicode; classes of it are refused before they fill the memory."""
    alphabet = frozenset(map(chr, range(20_000)))
    assert Pattern("." * 4000, alphabet).matching(["é" * 4000, "é"]) == {"é" * 4000}
    with pytest.raises(InvalidPatternError, match="too many classes"):
        Pattern(part * 500, alphabet)


ATOMS = st.sampled_from(["a", "b", ".", r"\.", "[ab]", "[^a]", r"\w", "^", "$", r"\b"])


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: f"(?:{'|'.join(some)})"),
        st.tuples(inner, st.sampled_from("*+?")).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        st.tuples(inner, st.integers(0, 3), st.integers(0, 2)).map(
            lambda each: f"(?:{each[0]}){{{each[1]},{each[1] + each[2]}}}"
        ),
    )


@settings(max_examples=examples(80), deadline=None)
@given(pattern=st.recursive(ATOMS, _combined, max_leaves=6), name=st.text("ab.", max_size=6))
def test_agrees_with_python_on_any_pattern(pattern: str, name: str) -> None:
    """An engine that was written by others says the same."""
    assert bool(Pattern(pattern, LETTERS).matching([name])) == bool(re.fullmatch(pattern, name))


@settings(max_examples=examples(80), deadline=None)
@given(st.text(r"ab([{?*+-^$|\\:]})P<>1,pL.", max_size=12))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    """No text raises anything but the refusal."""
    with suppress(InvalidPatternError):
        Pattern(text, LETTERS).matching(NAMES)
