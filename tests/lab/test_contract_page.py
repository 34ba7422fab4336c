"""`make contract` rewrites the tables of docs/reference/contract.md and leaves the text around them alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab import contract_page
from splashdam.testing.contract.behaviours import all_behaviours


def test_the_page_is_written_from_stored_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each cluster has its column; a behaviour that is gone meanwhile is left out."""
    page = tmp_path / "contract.md"
    parts = ("behaviours", "requests", "skipped")
    page.write_text("\n".join(f"<!-- {part}: make contract -->\n<!-- end of {part} -->" for part in parts))
    monkeypatch.setattr(contract_page, "PAGE", page)
    monkeypatch.setattr(contract_page, "KEPT", tmp_path)
    first = all_behaviours()[0]
    found = [
        [first.name, "splashdam 1", "holds", "", 0.1],
        ["a_behaviour_of_old", "splashdam 1", "holds", "", 0],
    ]
    for name in ("embedded", "4.4.0"):
        (tmp_path / f"{name}.json").write_text(json.dumps(found))
        (tmp_path / f"{name}-ranges.json").write_text(json.dumps({"0": [0, 13]}))
    contract_page.write(["embedded", "4.4.0"])
    assert capsys.readouterr().out == "contract: on embedded and 4.4.0: 2 holds\n"
    text = page.read_text()
    assert first.title in text
    assert "a behaviour of old" not in text
    assert "| 0 | Produce | 0-13 | 0-13 |" in text
    assert text.endswith("<!-- end of skipped -->\n")
