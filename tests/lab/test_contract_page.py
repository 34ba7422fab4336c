"""`make contract` rewrites the tables of docs/reference/contract.md and leaves the text around them alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab import contract_page
from splashdam.testing.contract.available_clients import PYTHON_CLIENTS
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
    assert capsys.readouterr().out.startswith("contract: on embedded and 4.4.0: 2 holds; without ")
    text = page.read_text()
    assert first.title in text
    assert "a behaviour of old" not in text
    assert "| 0 | Produce | 0-13 | 0-13 |" in text
    assert text.endswith("<!-- end of skipped -->\n")


def test_make_contract_passed_with_a_broken_behaviour(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page is written all the same: its table shows where."""
    store(page, "embedded", [[all_behaviours()[0].name, "splashdam 1", "broken", "too many", 0.1]])
    assert contract_page.write(["embedded"]) == 1
    assert capsys.readouterr().out.startswith("contract: on embedded: 1 broken; without ")
    assert "✗" in page.read_text()


def test_clients_that_were_missing_passed_unseen(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without npm the contract passed as with all clients; the closing line names those that took no part."""
    first = all_behaviours()[0].name
    clients = [f"{name} 1" for name in (*PYTHON_CLIENTS, "franz-go", "java")]
    store(page, "embedded", [[first, client, "holds", "", 0.1] for client in clients])
    assert contract_page.write(["embedded"]) == 0
    assert capsys.readouterr().out.endswith(f" {len(clients)} holds; without kafkajs\n")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["bogus"], ["page"], [], ["run"], ["page", "nope"], ["page", "empty"], ["page", "broken"]],
)
def test_a_mistake_in_the_arguments_emptied_the_page(
    arguments: list[str], page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With status 0, or it was a traceback."""
    store(page, "empty", [])
    (page.parent / "broken.json").write_text("{")
    before = page.read_text()
    with pytest.raises(SystemExit) as end:
        contract_page.main(arguments)
    assert end.value.code == (0 if arguments == ["--help"] else 2)
    assert "usage: python -m lab.contract_page" in "".join(capsys.readouterr())
    assert page.read_text() == before


@pytest.mark.parametrize("jars", [None, "", "/nowhere"])
def test_a_missing_folder_of_jars_was_a_traceback(
    jars: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make contract` sets it, and a run by hand may forget it."""
    monkeypatch.delenv("KAFKA_JARS", raising=False)
    if jars is not None:
        monkeypatch.setenv("KAFKA_JARS", jars)
    with pytest.raises(SystemExit) as end:
        contract_page.main(["run", "4.4.0", "4.4.0"])
    assert end.value.code == 2
    assert ("Kafka 4.4.0 is not in /nowhere" if jars else "KAFKA_JARS is not set") in capsys.readouterr().err
