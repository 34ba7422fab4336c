"""`make contract` rewrites the tables of docs/reference/contract.md and leaves the text around them alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab import contract_page
from splashdam.testing.contract.behaviours import all_behaviours


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page with empty tables, in the folder of the stored results."""
    page = tmp_path / "contract.md"
    parts = ("behaviours", "requests", "skipped")
    page.write_text("\n".join(f"<!-- {part}: make contract -->\n<!-- end of {part} -->" for part in parts))
    monkeypatch.setattr(contract_page, "PAGE", page)
    monkeypatch.setattr(contract_page, "KEPT", tmp_path)
    return page


def store(page: Path, cluster: str, results: list[list[object]]) -> None:
    (page.parent / f"{cluster}.json").write_text(json.dumps(results))
    (page.parent / f"{cluster}-ranges.json").write_text(json.dumps({"0": [0, 13]}))


def test_the_page_is_written_from_stored_results(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each cluster has its column; a behaviour that is gone meanwhile is left out."""
    first = all_behaviours()[0]
    for name in ("embedded", "4.4.0"):
        old: list[object] = ["a_behaviour_of_old", "splashdam 1", "holds", "", 0]
        store(page, name, [[first.name, "splashdam 1", "holds", "", 0.1], old])
    assert contract_page.write(["embedded", "4.4.0"]) == 0
    assert capsys.readouterr().out == "contract: on embedded and 4.4.0: 2 holds\n"
    text = page.read_text()
    assert first.title in text
    assert "a behaviour of old" not in text
    assert "| 0 | Produce | 0-13 | 0-13 |" in text
    assert text.endswith("<!-- end of skipped -->\n")


def test_make_contract_passed_with_a_broken_behaviour(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page is written all the same: its table shows where."""
    store(page, "embedded", [[all_behaviours()[0].name, "splashdam 1", "broken", "too many", 0.1]])
    assert contract_page.write(["embedded"]) == 1
    assert capsys.readouterr().out == "contract: on embedded: 1 broken\n"
    assert "✗" in page.read_text()
