"""What the laboratory's programs refuse: a run that would check nothing, and places where none can run."""

from __future__ import annotations

import importlib
import sys
from argparse import ArgumentTypeError, Namespace
from pathlib import Path

import pytest

from lab import storm, trial
from lab.arguments import not_negative, positive, positive_int
from lab.every_write import __main__ as every_write
from lab.every_write import in_memory
from lab.trial import Verdict, run_trial, trial_parser

_EMPTY_LENGTHS = ("-1", "0", "nan", "inf")


def ended(module: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """The status with which a program ends that starts nothing."""
    monkeypatch.setattr(sys, "argv", ["program", *arguments])
    with pytest.raises(SystemExit) as end:
        importlib.import_module(f"lab.{module}").main()
    return end.value.code


@pytest.mark.parametrize(
    ("module", "option", "values"),
    [
        ("endurance", "--minutes", _EMPTY_LENGTHS),
        ("endurance", "--rate", _EMPTY_LENGTHS),
        ("endurance", "--pause", _EMPTY_LENGTHS),
        ("storm", "--minutes", _EMPTY_LENGTHS),
        ("soak.__main__", "--hours", _EMPTY_LENGTHS),
        ("soak.__main__", "--pause", _EMPTY_LENGTHS),
        ("kill_points.__main__", "--minutes", _EMPTY_LENGTHS),
        ("every_write.__main__", "--minutes", _EMPTY_LENGTHS),
        ("every_write.__main__", "--at", ("-1", "0")),
        ("fuzzing.broker", "--minutes", _EMPTY_LENGTHS),
        ("fuzzing.broker", "--requests", ("-1", "0")),
        ("fuzzing.records", "--seconds", _EMPTY_LENGTHS),
        ("pipeline_chaos.__main__", "--kills", ("-1", "0")),
        ("pipeline_cluster.__main__", "--kills", ("-1", "0")),
        ("pipeline_cluster.__main__", "--records", ("-1", "0")),
        ("simulator.__main__", "--seeds", ("-3", "0")),
        ("simulator.__main__", "--processes", ("-1", "0")),
        ("simulator.__main__", "--first", ("-1",)),
        ("simulator.__main__", "--replay", ("-1",)),
    ],
)
def test_a_run_that_checked_nothing_passed(
    module: str,
    option: str,
    values: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A run of no length, without requests or kills, ended with status 0, or with a traceback."""
    if module.startswith("pipeline_"):
        pytest.importorskip("pyspark", reason="needs splashdam[spark]")
    for value in values:
        assert ended(module, [option, value], monkeypatch) == 2
        said = capsys.readouterr().err.splitlines()
        assert f"error: argument {option}: {value} is " in said[-1]


def test_no_brokers_at_all_were_simulated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each option leaves the other kind out."""
    assert ended("simulator.__main__", ["--replicated", "--single-replicas"], monkeypatch) == 2
    assert "not allowed with argument --replicated" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["fuzzing.broker", "fuzzing.records"])
def test_a_fuzzer_was_called_by_the_name_of_its_file(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of a package does not run by itself."""
    assert ended(module, ["--help"], monkeypatch) == 0
    assert capsys.readouterr().out.startswith(f"usage: python -m lab.{module} ")


def test_numbers() -> None:
    """What is no number is said, too."""
    assert (positive("0.5"), positive_int("1"), not_negative("0")) == (0.5, 1, 0)
    for kind in (positive, positive_int, not_negative):
        with pytest.raises(ArgumentTypeError, match="'many' is no number"):
            kind("many")


@pytest.mark.parametrize("place", ["", "file/below", "here"])
def test_a_data_folder_that_cannot_be_made_was_a_traceback(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is there, is empty, or lies below a file."""
    (tmp_path / "file").write_text("")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    options = trial_parser("storm", "").parse_args(["--data", place])
    assert run_trial("storm", lambda *_: Verdict(), options) == 2
    said = capsys.readouterr().err
    assert said.startswith("python -m lab.storm: error: --data ")
    assert said.count("\n") == 1


def test_a_storm_outside_linux_was_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Endurance and soak had said so."""
    monkeypatch.setattr(trial, "PROC", tmp_path / "proc")
    monkeypatch.setattr(sys, "argv", ["storm"])
    with pytest.raises(SystemExit):
        storm.main()
    assert "error: this needs Linux: " in capsys.readouterr().err


def test_an_operation_that_does_not_exist_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One behind the last, which no run can make fail."""
    monkeypatch.setattr(in_memory, "count_operations", lambda: 3)
    options = Namespace(only="memory", kind=None, at=4, data=tmp_path / "data", seed=0)
    assert run_trial("every_write", every_write.every_write, options) == 2
    assert "error: no operation is as --kind and --at say: 0 runs in memory" in capsys.readouterr().err
