"""A Spark session on this machine: the Java that it needs, its settings, our data sources, and its log."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import trio

from splashdam.model.errors import KafkaConfigurationError, WrongSettingError
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.run import run_in_trio

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Off by default in Spark, which then refuses sources that implement ``pushFilters``."""

_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # The serial collector starts faster and takes less memory; the sources' work is done in Python workers.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
}


def spark_session(
    app_name: str = "splashdam",
    *,
    master: str | None = None,
    memory: str = "1g",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return this process's session, created if necessary, with ``kafka-local`` and ``kafka-log`` registered.

    Workers run this process's Python unless ``PYSPARK_PYTHON`` is set, times are in UTC, and filters are
    pushed down into Python sources.

    Args:
        app_name: the application's name in Spark.
        master: Spark's master URL; by default that of ``spark-submit`` or ``PYSPARK_SUBMIT_ARGS``, else
            ``local[*,4]``: all cores, four attempts for each task. With ``local…`` the session listens on
            loopback only and has no web page.
        memory: the heap of the driver's JVM if this call starts it; Spark's minimum is 450 MiB. Under
            ``spark-submit`` the JVM runs already, and ``--driver-memory`` applies.
        settings: more settings of Spark; they override those of this function.

    Raises:
        JavaMissingError: there is no Java that Spark can run on.
        ImportError: pyspark is not installed; ``pip install 'splashdam[spark]'``.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError("splashdam.pipeline needs pyspark: pip install 'splashdam[spark]'") from error

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
    """Whether ``spark-submit`` started this program: then the JVM runs already, with its settings."""
    return "PYSPARK_GATEWAY_PORT" in environment


def settings_of_master(master: str | None, memory: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that depend on the master. A setting given here would override that of
    ``spark-submit``."""
    if master is None:
        if is_submitted(environment):
            return {}
        if "--master" in environment.get("PYSPARK_SUBMIT_ARGS", ""):
            return {"spark.driver.memory": memory}
        master = "local[*,4]"  # a late worker would fail the only attempt of local[*]
    local = _LOCAL if master.startswith("local") else {}
    return {"spark.master": master, "spark.driver.memory": memory, **local}


def register(spark: SparkSession) -> None:
    """Register ``kafka-local`` and ``kafka-log`` in a session that any program created.

    Filter pushdown into Python sources is switched on, without which Spark refuses sources that implement it.

    Args:
        spark: the session.
    """
    spark.conf.set(FILTER_PUSHDOWN, "true")
    for source in data_sources():
        spark.dataSource.register(source)


def data_sources() -> list[type[DataSource]]:
    """Return the data sources of this package."""
    from splashdam.pipeline.local_source.data_source import KafkaLocalDataSource
    from splashdam.pipeline.log_source.data_source import KafkaLogDataSource

    return [KafkaLocalDataSource, KafkaLogDataSource]


MASTER_SECONDS = 5
"""How long a standalone master may take to accept a connection; Spark itself tries for a minute."""


def need_master(master: str | None) -> None:
    """Check that a standalone cluster's master listens; other masters are not asked.

    Args:
        master: Spark's master URL, ``spark://HOST:PORT`` or several addresses with commas between them.

    Raises:
        KafkaConfigurationError: none of them does, or one is no address.
    """
    if master is None or not master.startswith(STANDALONE):
        return
    given = master.removeprefix(STANDALONE)
    try:
        addresses = parse_bootstrap_servers(given)
    except WrongSettingError as error:
        raise KafkaConfigurationError(f"{master!r} is no master of Spark: {error.problem}") from None

    async def accepts() -> bool:
        for host, port in addresses:
            with trio.move_on_after(MASTER_SECONDS), suppress(OSError):
                stream = await trio.open_tcp_stream(host, port)
                await stream.aclose()
                return True
        return False

    if not run_in_trio(accepts):
        raise KafkaConfigurationError(
            f"no Spark master listens at {master}: start one, or leave out --master"
        )


STANDALONE = "spark://"

OLDEST_JAVA = 17
"""Spark 4 needs it."""

HOW_TO_GET_IT = (
    f"Spark runs on Java {OLDEST_JAVA} or later. Install it (Debian: apt-get install openjdk-17-jre-headless"
    "; macOS: brew install openjdk@17) or set JAVA_HOME"
)


class JavaMissingError(KafkaConfigurationError):
    """There is no Java, or it is too old for Spark."""


def need_java() -> None:
    """Check that there is a Java that Spark can run on.

    Raises:
        JavaMissingError: Java is missing or too old; the message says how to get it.
    """
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else "java"
    found = shutil.which(command)
    if found is None:
        raise JavaMissingError(f"{command} was not found. {HOW_TO_GET_IT}")
    version = _version(found)
    if version is not None and version < OLDEST_JAVA:
        raise JavaMissingError(f"{found} is Java {version}. {HOW_TO_GET_IT}")


@cache
def _version(java: str) -> int | None:
    """Return the feature version, None if the output has an unknown form: Spark decides then.

    Raises:
        JavaMissingError: the program fails, as the ``java`` of a macOS without Java does.
    """
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)(?:\.(\d+))?', done.stdout + done.stderr)
    if version is None and done.returncode:
        raise JavaMissingError(f"{java} does not run. {HOW_TO_GET_IT}")
    if version is None:
        return None
    first, second = int(version[1]), int(version[2] or 0)
    return second if first == 1 else first  # Java 8 and earlier call themselves 1.8


_STANDARD_ERROR = 2


@contextmanager
def children_log_into(target: str | int) -> Iterator[None]:
    """Redirect the standard error of processes that are started in the block into a file, for their lifetime.

    A JVM writes to standard error before it reads any setting, so no setting silences it; log4j and Spark's
    workers inherit the descriptor. This process's own standard error is restored.

    Args:
        target: a path, whose file is appended to, or a descriptor, which the caller keeps and closes.

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
    except OSError:  # standard error was closed before we started: nothing to restore
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
    """Drop the traceback that py4j logs for Ctrl-C in the block; its other messages are logged."""
    root = logging.getLogger()
    root.addFilter(_is_no_interrupt)
    try:
        yield
    finally:
        root.removeFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("KeyboardInterrupt while sending command")


@contextmanager
def errors_unlogged() -> Iterator[None]:
    """Drop the pages of JSON that PySpark logs for an error in an expression, which it raises as well."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
