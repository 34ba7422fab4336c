"""What the commands on Spark share: its options, its session, its log, and how its failures are told."""

from __future__ import annotations

import logging
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

import click

from splashdam.cli.endings import (
    exit_status,
    explained,
    failures_reported,
    interrupts_wait,
    signals_interrupt,
)
from splashdam.cli.parameters import Command, cluster_options, pairs, settled_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTRA = "pip install 'splashdam[cli,spark]'"
CANNOT_RUN = 2
"""As for wrong usage: nothing was begun."""


class CannotRun(click.ClickException):
    """Something that the command runs on is not installed."""

    exit_code = CANNOT_RUN


def kafka_options(
    *, reads: Sequence[str] = (), writes: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``-b``, ``--config`` and ``-X``: the command gets ``kafka``, options as sources and sinks take them.

    They are named as Spark names them, ``kafka.bootstrap.servers``, ``kafka.security.protocol``…. For
    ``embedded:DIR`` a broker runs as long as the command, on a free port, since workers are other processes.
    The cluster and the topics are looked for before the command runs: a session takes many times as long.

    Args:
        reads: the parameters of the command that name topics which have to be there, with commas between.
        writes: those that name topics which the brokers may create when they are written to.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @cluster_options()
        @wraps(command)
        def run(
            *args: Any,
            config: Path | None,
            properties: dict[str, str],
            timeout_seconds: float,
            **arguments: Any,
        ) -> None:
            from splashdam.cli.clusters import served_cluster  # needs trio: `--help` does not

            arguments.pop("bootstrap_servers")
            with failures_reported(), ExitStack() as opened:
                address, settings = settled_cluster(config, properties)
                servers, cluster = opened.enter_context(served_cluster(address, settings, timeout_seconds))
                cluster.check(_topics(reads), writes=_topics(writes))
                kafka = {f"kafka.{name}": value for name, value in settings.items()}
                command(*args, kafka={**kafka, "kafka.bootstrap.servers": servers}, **arguments)

        return run

    return decorate


def _topics(parameters: Sequence[str]) -> list[str]:
    """The topics that parameters of the present command name; an option that was not given names none."""
    given = click.get_current_context().params
    texts = [given[parameter] or "" for parameter in parameters]
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def checkpoint_option(command: Command) -> Command:
    """``--checkpoint``: where a pipeline remembers how far it came."""
    return click.option(
        "--checkpoint",
        required=True,
        metavar="DIR",
        help="Where the query keeps how far it came; with the same directory it goes on there.",
    )(command)


def table_options(command: Command) -> Command:
    """``--format`` and ``--storage``: the command gets ``table_format`` and ``storage``."""
    command = click.option(
        "--storage",
        metavar="NAME=VALUE",
        multiple=True,
        callback=pairs,
        help="For object storage and catalogs: s3.endpoint=…, catalog.uri=…. Repeatable.",
    )(command)
    return click.option(
        "--format",
        "table_format",
        type=click.Choice(["parquet", "delta", "iceberg"]),
        default="parquet",
        show_default=True,
        help="Of the table. Delta needs splashdam[delta], Iceberg splashdam[iceberg].",
    )(command)


def on_spark(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a Spark session, and, as its first argument, the session.

    What fails is a message and a status: 2 where Java or pyspark is missing, 1 for what Spark reports, 130
    for Ctrl-C. What Spark logs goes to a file that is named where something fails.
    """

    @click.option(
        "--master",
        metavar="URL",
        help="Spark's master. Default: that of spark-submit, else local[*,4]: all cores of this machine.",
    )
    @click.option(
        "--memory",
        metavar="SIZE",
        default="1g",
        show_default=True,
        callback=_size,
        help="Heap of the driver's JVM, with a local master of everything.",
    )
    @click.option(
        "--conf",
        "settings",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_settings,
        help="A setting of Spark, as spark-submit takes it. Repeatable.",
    )
    @click.option(
        "--spark-log",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Where Spark's log goes. Default: a file that is kept only if something fails.",
    )
    @wraps(command)
    def run(
        *args: Any,
        master: str | None,
        memory: str,
        settings: Mapping[str, str],
        spark_log: Path | None,
        **arguments: Any,
    ) -> None:
        with (
            signals_interrupt(),
            failures_reported(),
            session(master=master, memory=memory, settings=settings, log=spark_log) as spark,
        ):
            command(spark, *args, **arguments)

    return run


def _size(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    if re.fullmatch(r"[1-9]\d*[kmgt]b?", text, flags=re.IGNORECASE) is None:
        raise click.BadParameter(f"{text!r} is no size such as 512m or 2g")
    return text


def _settings(_context: click.Context, _parameter: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(f"{text!r} is not spark.NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


@contextmanager
def session(
    *, master: str | None, memory: str, settings: Mapping[str, str], log: Path | None
) -> Iterator[SparkSession]:
    """A session for the time of the block, with Spark's log in a file.

    Args:
        master: Spark's master URL, None for the environment's.
        memory: heap of the driver's JVM.
        settings: more of Spark's settings.
        log: the file; None for one that is deleted where nothing fails.

    Raises:
        CannotRun: pyspark or Java is not there.
        click.ClickException: Spark failed; the message ends with the file's name.
        SystemExit: an interrupt, with the status that a shell expects.
    """
    from splashdam.pipeline.failures import cause_in, is_of_spark
    from splashdam.pipeline.session import interrupts_unlogged

    file = tempfile.TemporaryFile("a+b") if log is None else log.open("ab")  # noqa: SIM115  (closed below)
    try:
        with interrupts_unlogged(), _started(file.fileno(), master, memory, settings) as spark:
            yield spark
    except KeyboardInterrupt as interrupt:
        _end(interrupt)
    except (click.ClickException, click.exceptions.Exit):
        raise
    except Exception as error:
        behind = _interrupt_behind(error)
        if behind is not None:
            _end(behind)
        if not is_of_spark(error):
            raise
        path = _kept(file) if log is None else log
        raise click.ClickException(f"{cause_in(explained(error))}\nSpark's log: {path}") from error
    finally:
        file.close()


def _end(interrupt: KeyboardInterrupt) -> NoReturn:
    click.echo("interrupted", err=True)
    sys.exit(exit_status(interrupt))


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """What a failure came after: a signal to the process group ends the JVM, too, and then all that tidies up
    fails."""
    behind = error.__context__
    while behind is not None and not isinstance(behind, KeyboardInterrupt):
        behind = behind.__context__
    return behind


@contextmanager
def _started(
    log: int, master: str | None, memory: str, settings: Mapping[str, str]
) -> Iterator[SparkSession]:
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise CannotRun(f"the command needs pyspark and pyarrow. Install with: {EXTRA}")
    from splashdam.pipeline.session import JavaMissingError, children_log_into, spark_session

    try:
        # A JVM whose parent leaves before it has said where it listens never ends.
        with interrupts_wait(), children_log_into(log):
            spark = spark_session("splashdam pipeline", master=master, memory=memory, settings=settings)
    except JavaMissingError as missing:
        raise CannotRun(explained(missing)) from missing
    with _bridge_silenced():
        try:
            yield spark
        finally:
            with suppress(Exception):  # the JVM may have died, which is told already
                spark.stop()


@contextmanager
def _bridge_silenced() -> Iterator[None]:
    """The bridge to the JVM logs what it raises as well; a root logger without a handler shows it to people,
    an interrupt as a traceback."""
    silent = logging.NullHandler()
    logging.getLogger().addHandler(silent)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(silent)


def _kept(log: IO[bytes]) -> str:
    """A copy with a name. The log itself has none, so that nothing of it stays when the command is killed."""
    log.seek(0)
    with tempfile.NamedTemporaryFile(prefix="splashdam-spark-", suffix=".log", delete=False) as copy:
        shutil.copyfileobj(log, copy)
    return copy.name
