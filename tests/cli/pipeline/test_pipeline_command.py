"""``splashdam pipeline``: its list, what all pipelines share, and how it fails without Java or Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from splashdam.cli.commands import splashdam
from splashdam.cli.exiting import EndedBySignal
from splashdam.cli.pipeline import spark as spark_commands
from splashdam.cli.pipeline.command import names, pipeline
from splashdam.cli.pipeline.query_progress import progress_line
from splashdam.cli.pipeline.spark import checkpoint_option, kafka_options, on_spark
from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.jobs.micro_batches import BatchProgress
from splashdam.pipeline.plans import Entry, Plan


@click.command()
@kafka_options()
@checkpoint_option
def shown(*, kafka: dict[str, str], checkpoint: str) -> None:
    """What a pipeline is given."""
    click.echo(f"{checkpoint}: {sorted(kafka.items())}")


@click.command()
@on_spark(lambda: Plan([Entry("ones")], [Entry("twos")], [Entry("both")]))
def counting(spark: object) -> None:
    """Needs a session."""
    click.echo(spark)


def test_every_pipeline_is_listed() -> None:
    """Each file of ``cli/pipeline/jobs`` is a command with a line of its own."""
    output = CliRunner().invoke(splashdam, ["pipeline", "--help"]).output
    assert {"audit", "ingest", "replay"} <= set(names())
    for name in names():
        assert f"\n  {name} " in output


@pytest.mark.parametrize("name", names())
def test_every_option_is_explained(name: str) -> None:
    """Each pipeline and each of its options has a help text."""
    found = pipeline.get_command(pipeline.make_context("pipeline", [name]), name)
    assert found is not None
    assert found.help
    for parameter in found.params:
        if parameter.param_type_name == "option":
            assert getattr(parameter, "help", None), parameter.name


def test_unknown_pipeline() -> None:
    """Wrong usage."""
    result = CliRunner().invoke(splashdam, ["pipeline", "ingets"])
    assert (result.exit_code, "No such command 'ingets'" in result.output) == (2, True)


def test_cluster_options_are_those_of_the_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """File, then -X, then -b: all under the names that ``spark.read.options`` takes."""
    asked: list[tuple[str, Mapping[str, str]]] = []

    class Cluster:
        """In place of one that is there: no server answers at h:1."""

        def check(self, reads: list[str], *, writes: list[str]) -> None:
            assert (reads, writes) == ([], [])

    def named_cluster(
        servers: str, properties: Mapping[str, str], _: float
    ) -> AbstractContextManager[Cluster]:
        asked.append((servers, properties))
        return nullcontext(Cluster())

    monkeypatch.setattr("splashdam.cli.connecting.named_cluster", named_cluster)
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SSL\nclient.id=file\n")
    result = CliRunner().invoke(
        shown, ["-b", "h:1", "--config", str(config), "-X", "client.id=x", "--checkpoint", "c"]
    )
    assert result.output == (
        "c: [('kafka.bootstrap.servers', 'h:1'), ('kafka.client.id', 'x'), "
        "('kafka.security.protocol', 'SSL')]\n"
    )
    assert asked == [("h:1", {"security.protocol": "SSL"})]


def test_embedded_broker_listens_for_workers(tmp_path: Path) -> None:
    """``embedded:DIR`` becomes an address, since Spark's workers are other processes."""
    result = CliRunner().invoke(shown, ["-b", f"embedded:{tmp_path}", "--checkpoint", "c"])
    assert result.exit_code == 0
    assert "127.0.0.1:" in result.output


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_spark(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the command that installs it; status 2."""
    monkeypatch.setitem(sys.modules, missing, None)
    result = CliRunner().invoke(counting)
    assert result.exit_code == 2
    assert "pip install 'splashdam[cli,spark]'" in result.output


def test_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message says which Java and how to get it; status 2, and no log file is left."""
    pytest.importorskip("pyspark", reason="needs splashdam[spark]")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    result = CliRunner().invoke(counting)
    assert result.exit_code == 2
    assert "Java 17 or later" in result.output
    assert list(tmp_path.iterdir()) == []


class Failing:
    """In place of a session that could be started: entering the block raises."""

    def __init__(self, failure: BaseException) -> None:
        self.failure = failure

    def __call__(self, log: int, *_: object) -> Failing:
        os.write(log, b"said by a JVM")
        return self

    def __enter__(self) -> None:
        raise self.failure

    def __exit__(self, *_: object) -> None:
        """Never reached."""


def test_failure_of_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One line says why, the next where Spark's log is; status 1."""
    errors = pytest.importorskip("pyspark.errors", reason="needs splashdam[spark]")
    failure = errors.PySparkException("[STREAM_FAILED] x\nsplashdam.model.errors.KafkaError: no topic t\n")
    monkeypatch.setattr(spark_commands, "_started", Failing(failure))
    log = tmp_path / "spark.log"
    result = CliRunner().invoke(counting, ["--spark-log", str(log)])
    assert result.exit_code == 1
    assert result.output == f"Error: no topic t\nSpark's log: {log}\n"
    assert log.read_text() == "said by a JVM"


def test_the_log_has_a_name_only_once_something_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Logs of commands that were killed stayed in the folder of temporary files for ever."""
    errors = pytest.importorskip("pyspark.errors", reason="needs splashdam[spark]")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    failing = Failing(errors.PySparkException("[STREAM_FAILED] x"))
    names_before = []

    def started(log: int, *others: object) -> Failing:
        names_before.extend(tmp_path.iterdir())
        return failing(log, *others)

    monkeypatch.setattr(spark_commands, "_started", started)
    result = CliRunner().invoke(counting)
    assert result.exit_code == 1
    assert names_before == []
    [kept] = tmp_path.iterdir()
    assert str(kept) in result.output
    assert kept.read_text() == "said by a JVM"


def test_interrupt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ctrl-C is status 130, one word, and no log file."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(spark_commands, "_started", Failing(KeyboardInterrupt()))
    result = CliRunner().invoke(counting)
    assert (result.exit_code, result.output) == (130, "interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_failure_behind_an_interrupt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """SIGTERM to a process group ends the JVM, too; that the query cannot be stopped then is no failure."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    failure = ConnectionError("the JVM is gone")
    failure.__context__ = OSError("in between")
    failure.__context__.__context__ = EndedBySignal(signal.SIGTERM)
    monkeypatch.setattr(spark_commands, "_started", Failing(failure))
    result = CliRunner().invoke(counting)
    assert (result.exit_code, result.output) == (128 + signal.SIGTERM, "interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_failure_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong setting is wrong usage, as in every command."""
    monkeypatch.setattr(spark_commands, "_started", Failing(KafkaConfigurationError("no such table")))
    result = CliRunner().invoke(counting)
    assert (result.exit_code, "no such table" in result.output) == (2, True)


@pytest.mark.parametrize("text", ["spark.x", "master=yarn"])
def test_setting_of_spark_needs_name_and_value(text: str) -> None:
    """``--conf`` takes spark.NAME=VALUE and says so."""
    result = CliRunner().invoke(counting, ["--conf", text])
    assert (result.exit_code, "is not spark.NAME=VALUE" in result.output) == (2, True)


def test_progress_line() -> None:
    """Batch, rows, speed, lag of each topic."""
    progress = BatchProgress(7, 500, 1234.5, {"b": 2, "a": 1000})
    assert progress_line(progress, 9000) == (
        "batch 7, 9,000 rows, 1,234 rows/s, a: 1,000 behind, b: 2 behind"
    )


def test_the_group_is_light() -> None:
    """Its help answers without pyspark, pyarrow and trio."""
    code = (
        "import sys; from splashdam.cli.pipeline.command import pipeline\n"
        "pipeline(['--help'], standalone_mode=False)\n"
        "sys.exit(bool({'pyspark', 'pyarrow', 'trio'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
