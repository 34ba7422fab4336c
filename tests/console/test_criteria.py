"""Which records a search finds."""

from __future__ import annotations

import pytest

from splashdam.console.criteria import CriteriaError, criteria, parse_path
from splashdam.record.record import Record


def record(
    value: bytes | None = None, key: bytes | None = None, *headers: tuple[str, bytes | None]
) -> Record:
    return Record(0, 0, key, value, headers)


def found(it: Record, **what: str) -> bool:
    wanted = criteria(**what)
    return wanted.matches is None or wanted.matches(it)


@pytest.mark.parametrize(
    ("place", "expected"),
    [("anywhere", "vkhn"), ("value", "v"), ("key", "k"), ("header", "hn")],
)
def test_text_is_searched_where_it_was_asked_for(place: str, expected: str) -> None:
    """In the name and the value of a header alike; null holds nothing."""
    records = {
        "v": record(b"an oak"),
        "k": record(None, b"oak"),
        "h": record(None, None, ("wood", b"oak")),
        "n": record(None, None, ("oak", None)),
        "-": record(b"a fir", b"fir", ("fir", b"fir")),
    }
    assert "".join(name for name, it in records.items() if found(it, text="oak", place=place)) == expected


def test_no_text_finds_everything() -> None:
    """Without a look at any record."""
    assert criteria().matches is None


def test_text_has_a_needle_for_whole_batches() -> None:
    """A regular expression and a path have none: they may match what is written otherwise."""
    assert criteria("grün").needle == "grün".encode()
    assert criteria("g.", way="regex").needle is None
    assert criteria("x", path="$.a").needle is None


def test_regular_expressions_see_text() -> None:
    """A letter of several bytes is one; bytes that are no text are passed over."""
    assert found(record("grün".encode()), text="gr[üö]n$", way="regex")
    assert found(record(b"\xff\x00 oak 12"), text=r"oak \d+", way="regex")
    assert not found(record(b"Oak"), text="oak", way="regex")


def test_an_expression_that_takes_python_for_ever_is_answered() -> None:
    """``(a+)+$`` on a hundred thousand letters: years, in an engine that tries one way after the other."""
    assert not found(record(b"a" * 100_000 + b"b"), text="(a+)+$", way="regex")


@pytest.mark.parametrize("text", ["(", "a{2", "(?<=x)y", "\\1", "[z-a]"])
def test_what_is_no_expression_is_refused(text: str) -> None:
    """With its reason; a look behind is not RE2's."""
    if text == "a{2":
        assert found(record(b"a{2"), text=text, way="regex")
        return
    with pytest.raises(CriteriaError, match="not a regular expression"):
        criteria(text, way="regex")


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("$.customer.name", "anna", True),
        ("customer.name", "anna", True),
        ("$.customer.name", "ben", False),
        ("$.items[1].wood", "fir", True),
        ("$.items[0].wood", "fir", False),
        ("$.items[*].wood", "fir", True),
        ("$.items[7].wood", "", False),
        ("$['a name']", "1.5", True),
        ("$.*.name", "anna", True),
        ("$.customer", '"name": "anna"', True),
        ("$.gone", "", False),
        ("$.nothing", "null", True),
        ("$", "planks", True),
    ],
)
def test_a_path_leads_into_the_value(path: str, text: str, expected: bool) -> None:
    """Texts are searched as they are, other values as JSON."""
    value = (
        b'{"customer": {"name": "anna"}, "items": [{"wood": "oak"}, {"wood": "fir", "planks": 2}],'
        b' "a name": 1.5, "nothing": null}'
    )
    assert found(record(value), text=text, path=path) is expected


def test_a_value_that_is_no_json_is_on_no_path() -> None:
    """A value that nests deeper than Python's parser goes is on no path either."""
    for value in (None, b"", b"{", b"\xff", b"[" * 100_000):
        assert not found(record(value), path="$.a")


@pytest.mark.parametrize("path", ["$.", "$..a", "$[", "$.a[x]", "$.a b"])
def test_what_is_no_path_is_refused(path: str) -> None:
    """With an example of one."""
    with pytest.raises(CriteriaError, match="one looks like"):
        parse_path(path)
