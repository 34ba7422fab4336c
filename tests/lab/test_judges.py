"""`make judges` with judges of the tests': resumed, listed, and written into a page."""

from __future__ import annotations

import json
import re
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


def test_a_named_judge_that_cannot_run_had_passed(
    tmp_path: Path, commit: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody looked; the table says what to install."""
    judge = Judge("cluster", "executors", ("true",), needs=("no-such-program",))
    state, page = tmp_path / "judges.json", tmp_path / "contract.md"
    assert main((), (judge,), state, page) == 0
    assert main(("--only", "cluster"), (judge,), state, page) == 2
    assert "no-such-program not on the path" in capsys.readouterr().out


def test_the_remedy_is_named_with_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One package has java and javac."""
    monkeypatch.setattr(judges.shutil, "which", lambda _: None)
    contract = next(each for each in judges.JUDGES if each.name == "contract")
    said = contract.missing()
    assert said.startswith("java and javac and mvn and node and npm and go not on the path; install a JDK, ")
    assert said.count("a JDK") == said.count("Maven") == 1
    assert {program for each in judges.JUDGES for program in each.needs} == set(judges.REMEDIES)


def test_a_page_was_written_of_code_without_a_name(
    fakes: Fakes, commit: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody can find the code of commit "abc+" again."""
    commit[0] = "abc+"
    assert fakes.main() == 0
    assert fakes.main("--page") == 2
    assert capsys.readouterr().err == "uncommitted code has no name: commit, then run make judges\n"
    assert fakes.page.read_text() == "# The contract\n"


@pytest.mark.parametrize("names", ["", ","])
def test_a_list_without_a_name_meant_all_judges(names: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty ONLY of make passes no option."""
    with pytest.raises(SystemExit) as end:
        main(("--only", names))
    assert end.value.code == 2
    assert "--only names no judge" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]", '{"fuzz": {"verdict": "passed"}}', '{"fuzz": 1}'])
def test_a_broken_file_of_rulings_was_a_traceback(
    text: str, fakes: Fakes, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence names the file."""
    fakes.state.write_text(text)
    with pytest.raises(SystemExit) as end:
        fakes.main("--list")
    assert end.value.code == 2
    assert f"{fakes.state} has no rulings of judges: remove it" in capsys.readouterr().err


def test_a_folder_without_git_was_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A source distribution, say."""
    monkeypatch.setattr(judges, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(SystemExit) as end:
        main(["--list"], (), tmp_path / "judges.json")
    assert end.value.code == 2
    assert "git says: fatal: not a git repository" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "line", "has_judged"),
    [
        (
            "every-write",
            "every-write: 2,850 runs in memory, 264 of 2,783 runs of a process (526 calls, strace sees the"
            " same), 0 promises broken (seed 0)",
            True,
        ),
        (
            "every-write",
            "every-write: 2,850 runs in memory, none of a process (no compiler), 0 promises broken (seed 0)",
            False,
        ),
        ("fuzz", "12 rounds, 1800 requests, 1700 of them answered", True),
        ("fuzz", "0 rounds, 0 requests, 0 of them answered", False),
    ],
)
def test_a_run_without_its_second_half_had_passed(name: str, line: str, has_judged: bool) -> None:
    """The line of the run sums up what it did, and half of that may be nothing."""
    closing = next(each.closing for each in judges.JUDGES if each.name == name)
    assert (re.search(closing, line) is not None) == has_judged
