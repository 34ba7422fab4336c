"""`make judges` with judges of the tests': resumed, listed, and written into a page."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lab import judges
from lab.judges import Judge, main


@pytest.fixture
def commit(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commit of the product's code, which a test may change."""
    now = ["abc"]
    monkeypatch.setattr(judges, "product_commit", lambda: now[0])
    return now


class Fakes:
    """Two judges that can run, and one that needs what no machine has; they note each run in a file."""

    def __init__(self, folder: Path) -> None:
        self.state, self.page = folder / "judges.json", folder / "contract.md"
        self.page.write_text("# The contract\n")
        self._runs, self._status = folder / "runs", folder / "status"
        self._status.write_text("0")
        code = (
            "import pathlib, sys; log = pathlib.Path(sys.argv[1]); log.open('a').write(sys.argv[3] + ' ');"
            "print('noise'); print(f'{sys.argv[3]}: 0 broken'); print('more noise');"
            "print('make[1]: Leaving directory');"
            "sys.exit(int(pathlib.Path(sys.argv[2]).read_text()) if sys.argv[3] == 'storm' else 0)"
        )
        command = (sys.executable, "-c", code, str(self._runs), str(self._status))
        self.judges = (
            Judge("fuzz", "noise", (*command, "fuzz")),
            Judge("storm", "wind", (*command, "storm"), closing="broken"),
            Judge("oracle", "truth", ("oracle",), needs=("no-such-program",)),
        )

    def fail(self, status: int) -> None:
        self._status.write_text(str(status))

    def main(self, *arguments: str) -> int:
        return main(arguments, self.judges, self.state, self.page)

    def runs(self) -> str:
        return self._runs.read_text() if self._runs.exists() else ""


@pytest.fixture
def fakes(tmp_path: Path, commit: list[str]) -> Fakes:
    return Fakes(tmp_path)


def test_a_run_continues_with_judges_that_have_not_passed(fakes: Fakes, commit: list[str]) -> None:
    """A judge that failed is asked again, one that passed is not, and a new commit is judged by all."""
    fakes.fail(1)
    assert fakes.main() == 1
    fakes.fail(0)
    assert fakes.main() == 0
    assert fakes.runs() == "fuzz storm storm "
    assert fakes.main() == 0
    assert fakes.runs() == "fuzz storm storm "
    commit[0] = "def"
    assert fakes.main() == 0
    assert fakes.runs() == "fuzz storm storm fuzz storm "


def test_code_that_is_not_committed_is_judged_each_time(fakes: Fakes, commit: list[str]) -> None:
    """Nothing says which code it was that passed."""
    commit[0] = "abc+"
    assert fakes.main() == 0
    assert fakes.main() == 0
    assert fakes.runs() == "fuzz storm fuzz storm "


def test_rulings_are_stored(fakes: Fakes) -> None:
    """The line that sums a run up, else its last but those of make; or what the machine lacks."""
    fakes.fail(3)
    assert fakes.main() == 1
    kept = json.loads(fakes.state.read_text())
    assert [(name, ruling["outcome"], ruling["closing"]) for name, ruling in kept.items()] == [
        ("fuzz", "passed", "more noise"),
        ("storm", "failed", "storm: 0 broken"),
        ("oracle", "not possible here", "no-such-program not on the path"),
    ]
    assert kept["fuzz"]["commit"] == "abc"
    assert "more noise" in (fakes.state.parent / "judges/fuzz.log").read_text()


def test_a_judge_whose_tests_were_all_skipped_has_passed(tmp_path: Path, commit: list[str]) -> None:
    """`make kafka` without the jars ended with status 0; it has judged nothing, and runs the next time."""
    said = "import sys; print('2 skipped in 0.1s'); print('skipped     2: needs the jars'); print('end')"
    judge = Judge("kafka", "a cluster", (sys.executable, "-c", said), closing=judges.PYTEST)
    for _ in range(2):
        assert main((), (judge,), tmp_path / "judges.json", tmp_path / "contract.md") == 0
        ruling = json.loads((tmp_path / "judges.json").read_text())["kafka"]
        assert ruling["outcome"] == "not possible here"
        assert ruling["closing"] == "skipped     2: needs the jars"


def test_only_some_are_run_passed_or_not(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    """The error for an unknown name lists the judges."""
    assert fakes.main("--only", "storm") == 0
    assert fakes.main("--only", "storm") == 0
    assert fakes.runs() == "storm storm "
    with pytest.raises(SystemExit):
        fakes.main("--only", "weather")
    assert "there are fuzz, storm, oracle" in capsys.readouterr().err


def test_the_list_runs_nothing(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    """Each judge has a row, those of an earlier commit are marked."""
    fakes.main("--only", "fuzz")
    capsys.readouterr()
    assert fakes.main("--list") == 0
    shown = capsys.readouterr().out
    assert "more noise" in shown
    assert "has not run" in shown
    assert fakes.runs() == "fuzz "


def test_a_complete_run_is_written_into_the_page(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    """An incomplete one is not; a second run takes the place of the first."""
    fakes.main("--only", "fuzz")
    assert fakes.main("--page") == 2
    assert "not complete on abc: storm, oracle" in capsys.readouterr().err
    assert fakes.main() == 0
    for _ in range(2):
        assert fakes.main("--page") == 0
        text = fakes.page.read_text()
        assert text.startswith("# The contract\n\n## The judges\n")
        assert text.count("| storm | wind | passed |") == 1
        assert text.count("| oracle | truth | not possible here |") == 1


def test_every_judge_is_a_target_of_the_makefile() -> None:
    """No two have one name."""
    makefile = (judges.ROOT / "Makefile").read_text()
    assert all(f"\n{each.command[1]}: " in makefile for each in judges.JUDGES)
    assert len({each.name for each in judges.JUDGES}) == len(judges.JUDGES)
