"""docs/concepts.md and its neighbours: the picture shows the imports, and every link leads to a file."""

from __future__ import annotations

import re
import runpy

import pytest
from support.running.house_tree import ROOT

PICTURE = runpy.run_path(str(ROOT / "tools/architecture_picture.py"))


def test_the_picture_shows_the_imports() -> None:
    """``python tools/architecture_picture.py`` draws it anew."""
    assert PICTURE["drawn"]() == (ROOT / "docs/pictures/architecture.svg").read_text()


def test_an_arrow_that_a_chain_replaces_is_left_out() -> None:
    """A picture with every import would show nothing."""
    pairs = {("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")}
    assert list(PICTURE["reduced"](pairs)) == [("a", "b"), ("a", "d"), ("b", "c")]


@pytest.mark.parametrize("page", ["concepts.md", "security-model.md", "security.md"])
def test_every_link_leads_to_a_file(page: str) -> None:
    """Files move; the page moves with them."""
    text = (ROOT / "docs" / page).read_text()
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
