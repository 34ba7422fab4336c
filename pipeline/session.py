"""A Spark session on this machine: the Java that it needs, its settings, our data sources, and its log."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from splashdam.model.errors import KafkaConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Off by default in Spark, which then refuses sources that could use it."""

_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # Starts faster and takes less memory; what the sources do runs in Python workers.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
}


def spark_session(
    app_name: str = "splashdam",
    *,
    master: str | None = None,
    memory: str = "1g",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, made if there is none, with ``kafka-local`` and ``kafka-log`` registered.

    Workers run the Python of this process (``PYSPARK_PYTHON`` wins where it is set), times are in UTC, and
    filters are pushed down into Python sources.

    Args:
        app_name: what Spark shows.
        master: Spark's master URL; by default what ``spark-submit`` or ``PYSPARK_SUBMIT_ARGS`` says, else
            ``local[*,4]``: all cores, four attempts for each task. With ``local…`` the session listens on
            loopback alone and has no web page.
        memory: the heap of the driver's JVM, where this call starts it; 450 MiB is Spark's least. Under
            ``spark-submit`` it runs already, and ``--driver-memory`` counts.
        settings: more of Spark's settings, which win.

    Raises:
        JavaMissingError: Spark finds no Java.
        ImportError: pyspark is not installed; ``pip install 'splashdam[spark]'``.
    """
    from pyspark.sql import SparkSession

    if not is_submitted(os.environ):
        need_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given: dict[str, Any] = {
        "spark.sql.session.timeZone": "UTC",
        FILTER_PUSHDOWN: "true",
        **settings_of_master(master, memory, os.environ),
        **(settings or {}),
    }
    builder = SparkSession.builder.appName(app_name).config(map=given)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def is_submitted(environment: Mapping[str, str]) -> bool:
    """Whether ``spark-submit`` has started this program: then its JVM runs already, with its settings."""
    return "PYSPARK_GATEWAY_PORT" in environment


def settings_of_master(master: str | None, memory: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What goes by where Spark runs; a setting given here would win over that of ``spark-submit``."""
    if master is None:
        if is_submitted(environment):
            return {}
        if "--master" in environment.get("PYSPARK_SUBMIT_ARGS", ""):
            return {"spark.driver.memory": memory}
        master = "local[*,4]"  # Spark gives up at once without a second attempt, and workers may start late
    local = _LOCAL if master.startswith("local") else {}
    return {"spark.master": master, "spark.driver.memory": memory, **local}


def register(spark: SparkSession) -> None:
    """Makes ``kafka-local`` and ``kafka-log`` known to a session, which any program may have made.

    Turns filter pushdown into Python sources on, without which Spark refuses sources that can use it.

    Args:
        spark: the session.
    """
    spark.conf.set(FILTER_PUSHDOWN, "true")
    for source in data_sources():
        spark.dataSource.register(source)


def data_sources() -> list[type[DataSource]]:
    """All that this room adds to Spark."""
    from splashdam.pipeline.local_source.data_source import KafkaLocalDataSource
    from splashdam.pipeline.log_source.data_source import KafkaLogDataSource

    return [KafkaLocalDataSource, KafkaLogDataSource]


OLDEST_JAVA = 17
"""Of Spark 4."""

HOW_TO_GET_IT = (
    f"Spark runs on Java {OLDEST_JAVA} or later. Install it (Debian: apt-get install openjdk-17-jre-headless"
    "; macOS: brew install openjdk@17) or set JAVA_HOME"
)


class JavaMissingError(KafkaConfigurationError):
    """There is no Java, or it is too old for Spark."""


def need_java() -> None:
    """Returns where Spark can run.

    Raises:
        JavaMissingError: Java is missing or too old; the message says how to get it.
    """
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else "java"
    found = shutil.which(command)
    if found is None:
        raise JavaMissingError(f"{command} is not there. {HOW_TO_GET_IT}")
    version = _version(found)
    if version is not None and version < OLDEST_JAVA:
        raise JavaMissingError(f"{found} is Java {version}. {HOW_TO_GET_IT}")


@cache
def _version(java: str) -> int | None:
    """The feature version; None where the answer is of no known form, which is left to Spark.

    Raises:
        JavaMissingError: it does not run, as macOS's own ``java`` where none is installed.
    """
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    said = re.search(r'version "(\d+)(?:\.(\d+))?', done.stdout + done.stderr)
    if said is None and done.returncode:
        raise JavaMissingError(f"{java} does not run. {HOW_TO_GET_IT}")
    if said is None:
        return None
    first, second = int(said[1]), int(said[2] or 0)
    return second if first == 1 else first  # until 8 it called itself 1.8


_STANDARD_ERROR = 2


@contextmanager
def children_log_into(target: str | int) -> Iterator[None]:
    """Processes that are started inside write their standard error into a file, for as long as they live.

    A JVM writes there before it has read any setting, so that none silences it; log4j and Spark's workers
    follow. This process goes on writing where it did.

    Args:
        target: path of a file, which is appended to, or a descriptor, which stays the caller's.

    Raises:
        OSError: the file cannot be opened.
    """
    sys.stderr.flush()
    if isinstance(target, int):
        log = os.dup(target)
    else:
        log = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        before = os.dup(_STANDARD_ERROR)
    except OSError:  # was closed by whoever started us: nothing to keep
        os.close(log)
        yield
        return
    os.dup2(log, _STANDARD_ERROR)
    os.close(log)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, _STANDARD_ERROR)
        os.close(before)


@contextmanager
def interrupts_unlogged() -> Iterator[None]:
    """The bridge to the JVM logs no traceback for Ctrl-C inside; what it logs else is logged."""
    root = logging.getLogger()
    root.addFilter(_is_no_interrupt)
    try:
        yield
    finally:
        root.removeFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("KeyboardInterrupt while sending command")
