"""The commands ``decode``, ``window`` and ``latest``: wrong usage."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from splashdam.cli import spark as spark_commands
from splashdam.cli.commands import splashdam

DDL = "id bigint NOT NULL, carrier string, departed timestamp"
PLACES = ["--table", "good", "--dead-letter-table", "bad"]
WINDOWS = ["--size", "1h", "--table", "good", "--late-table", "late"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["decode", *PLACES[2:]], "say where to, by one of --table and --topic"),
        (["decode", *PLACES, "--dead-letter-topic", "t"], "--dead-letter-topic and --dead-letter-table"),
        (["window", *WINDOWS, "--delay", "5x"], "'--delay': '5x' is no duration"),
        (["window", *WINDOWS, "--by", "a + b"], "'--by': 'a + b' is no column: write NAME=EXPRESSION"),
        (["window", *WINDOWS, "--slide", "2h"], "no further apart"),
        (["window", *WINDOWS, "--close-all", "--follow", "1"], "with --follow it does not"),
        (["window", *WINDOWS, "--compute", "median(x)"], "'--compute': 'median(x)' is no aggregate"),
    ],
)
def test_wrong_usage_is_refused_before_spark_starts(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It took the ten seconds of a JVM's start to say that an option was written wrongly."""
    monkeypatch.setattr(spark_commands, "session", lambda **_: pytest.fail("started"))
    schema = tmp_path / "flights.ddl"
    schema.write_text(DDL)
    command = ["pipeline", *arguments, "flights", "--checkpoint", "c", "--schema", str(schema)]
    result = CliRunner().invoke(splashdam, command)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
