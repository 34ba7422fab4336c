"""Names of strangers in lines of a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.model.log_text import LONGEST_SHOWN, quoted


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("orders", "'orders'"),
        ("", "''"),
        (None, "None"),
        ("Bücher", "'Bücher'"),
        ("a\nERROR b", r"'a\nERROR b'"),
        ("a\r\x1b[2J\x00\x85", r"'a\r\x1b[2J\x00\x85'"),
        ("a\u2028b\u202ec", r"'a\u2028b\u202ec'"),
        ("it's", '"it\'s"'),
        ("x" * LONGEST_SHOWN, "'" + "x" * LONGEST_SHOWN + "'"),
        ("x" * 32_767, "'" + "x" * LONGEST_SHOWN + "'… (32767 characters)"),
    ],
)
def test_how_a_name_is_shown(name: str | None, shown: str) -> None:
    """Quoted, escaped, and no longer than a legal topic name."""
    assert quoted(name) == shown


@given(st.text())
def test_any_name_is_one_short_line_of_what_can_be_printed(name: str) -> None:
    """Whatever a stranger sends."""
    shown = quoted(name)
    assert shown.isprintable()
    assert len(shown) <= 10 * LONGEST_SHOWN + 40
