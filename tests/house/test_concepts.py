"""The picture in docs/concepts.md shows the imports. Links of all pages are tested in test_readme."""

from __future__ import annotations

import runpy

from support.running.house_tree import ROOT

PICTURE = runpy.run_path(str(ROOT / "tools/architecture_picture.py"))


def test_the_picture_shows_the_imports() -> None:
    """``python tools/architecture_picture.py`` draws it anew."""
    assert PICTURE["drawn"]() == (ROOT / "docs/pictures/architecture.svg").read_text()


def test_an_arrow_that_a_chain_replaces_is_left_out() -> None:
    """A picture with every import would show nothing."""
    pairs = {("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")}
    assert list(PICTURE["reduced"](pairs)) == [("a", "b"), ("a", "d"), ("b", "c")]
