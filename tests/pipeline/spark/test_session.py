"""The session: workers run this Python, and Java is asked for by name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from splashdam.pipeline.session import JavaMissingError, need_java, settings_of_master

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    """Trap 14: without it they take what ``python3`` is on the path."""
    seen = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert seen == [sys.executable]


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java is told what to install."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissingError, match="Java 17 or later"):
        need_java()


def test_a_java_that_only_names_a_download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As macOS has one: Spark would fail on it without a word of help."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissingError, match=r"java does not run\. Spark runs on Java 17"):
        need_java()


def test_an_old_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As is one with a Java that Spark does not take."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_292\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissingError, match="is Java 8"):
        need_java()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "local[*,4]"),
        ({"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, None),
        ({"PYSPARK_GATEWAY_PORT": "4711"}, None),
    ],
)
def test_the_master_of_spark_submit_counts(environment: dict[str, str], expected: str | None) -> None:
    """A master set beside ``--master`` would have won: what was sent to a cluster ran locally."""
    assert settings_of_master(None, "1g", environment).get("spark.master") == expected


def test_the_master_that_is_given_counts() -> None:
    """Only a session on this machine listens on loopback alone."""
    given = settings_of_master("spark://there:7077", "1g", {"PYSPARK_GATEWAY_PORT": "4711"})
    assert given == {"spark.master": "spark://there:7077", "spark.driver.memory": "1g"}
    assert settings_of_master("local[2]", "1g", {})["spark.driver.host"] == "127.0.0.1"
