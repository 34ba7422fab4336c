"""Shared by the commands on Spark: options, session, log, and error messages."""

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

from splashdam.cli.exiting import (
    exit_status,
    explained,
    failures_reported,
    interrupts_wait,
    signals_interrupt,
)
from splashdam.cli.output import print_line
from splashdam.cli.parameters import (
    Command,
    OutputPath,
    cluster_options,
    flag_of,
    flag_of_setting,
    pairs,
    settled_cluster,
)
from splashdam.client.sending.arguments import check_topic_name
from splashdam.model.errors import KafkaConfigurationError, message_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from splashdam.pipeline.plans import Plan

EXTRA = "pip install 'splashdam[cli,spark]'"
CANNOT_RUN = 2
"""The status of wrong usage: nothing was started."""


class CannotRun(click.ClickException):
    """The command needs Java or a package that is not installed."""

    exit_code = CANNOT_RUN


def kafka_options(
    *, reads: Sequence[str] = (), writes: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add ``-b``, ``--config`` and ``-X``; the command gets ``kafka``, options for sources and sinks.

    A topic may not be read and written by one command: it would feed itself for ever. With ``embedded:DIR``
    the directory must exist.

    They have Spark's names, ``kafka.bootstrap.servers``, ``kafka.security.protocol``…. For ``embedded:DIR`` a
    broker runs on a free port as long as the command, because workers are other processes. The cluster and
    the topics are checked before the command runs, because starting a session takes much longer.

    Args:
        reads: parameters of the command that name topics, separated by commas, which must exist.
        writes: parameters that each name one topic, which the brokers may create when they are written to.
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
            from splashdam.cli.connecting import served_cluster  # imports trio, which `--help` does not need

            arguments.pop("bootstrap_servers")
            read, written = _topics(reads, are_lists=True), _topics(writes, are_lists=False)
            _refuse_loops(read, written)
            with failures_reported(), ExitStack() as opened:
                address, settings = settled_cluster(config, properties)
                served = served_cluster(address, settings, timeout_seconds, may_be_new=False)
                servers, cluster = opened.enter_context(served)
                cluster.check(list(read), writes=list(written))
                kafka = {f"kafka.{name}": value for name, value in settings.items()}
                command(*args, kafka={**kafka, "kafka.bootstrap.servers": servers}, **arguments)

        return run

    return decorate


def _topics(parameters: Sequence[str], *, are_lists: bool) -> dict[str, str]:
    """Return the topics that parameters of the current command name, each with the parameter's name.

    Args:
        parameters: their names.
        are_lists: whether each may name several topics, with commas between them.

    Raises:
        click.UsageError: a parameter names no topic, or two name the same.
    """
    context = click.get_current_context()
    found: dict[str, str] = {}
    for parameter in parameters:
        text, flag = context.params[parameter], flag_of(context, parameter)
        if text is None:
            continue
        names = dict.fromkeys(each.strip() for each in text.split(",")) if are_lists else {text: None}
        names.pop("", None)
        if not names:
            raise click.BadParameter("names no topic", param_hint=flag)
        for name in names:
            try:
                check_topic_name(name)
            except ValueError as error:
                raise click.BadParameter(str(error), param_hint=flag) from error
            if name in found:
                raise click.UsageError(f"{found[name]} and {flag} are both {name}: name two topics")
            found[name] = flag
    return found


def _refuse_loops(read: Mapping[str, str], written: Mapping[str, str]) -> None:
    for name, flag in written.items():
        if name in read:
            raise click.UsageError(
                f"{flag} {name} is a topic that this command reads: it would read what it writes, for ever."
                " Give another topic"
            )


def checkpoint_option(command: Command) -> Command:
    """Add ``--checkpoint``."""
    return click.option(
        "--checkpoint",
        required=True,
        metavar="DIR",
        callback=named_place,
        help="Where the query keeps its progress; with the same directory it continues there.",
    )(command)


def named_place(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    """Refuse an empty folder or address, as from an unset variable (a click callback)."""
    if text is not None and not text.strip():
        raise click.BadParameter("is empty: give a folder")
    return text


def table_options(command: Command) -> Command:
    """Add ``--format`` and ``--storage``; the command gets ``table_format`` and ``storage``."""
    command = click.option(
        "--storage",
        metavar="NAME=VALUE",
        multiple=True,
        callback=pairs,
        help="An option of object storage or catalog: s3.endpoint=…, catalog.uri=…. Repeatable.",
    )(command)
    return click.option(
        "--format",
        "table_format",
        type=click.Choice(["parquet", "delta", "iceberg"]),
        default="parquet",
        show_default=True,
        help="Table format. Delta needs splashdam[delta], Iceberg splashdam[iceberg].",
    )(command)


def on_spark(plan: Callable[..., Plan]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of a Spark session, and pass the session to the command as its first argument.

    The plan is made before a session is started: what it refuses takes no ten seconds to be refused. With
    ``--plan`` it is printed, and nothing else is done but what it leaves to Spark to check.

    Failures become a message and a status: 2 if Java or pyspark is missing, 1 for errors of Spark, 130 for
    Ctrl-C. Spark's log goes to a file, which the message names.

    Args:
        plan: gets the command's arguments but the session, checks them, and returns what they mean.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.option(
            "--plan",
            "only_plan",
            is_flag=True,
            help="Check everything, print what would be read, written and committed, and end.",
        )
        @click.option(
            "--master",
            metavar="URL",
            callback=_master,
            help="Spark's master. Default: that of spark-submit, else local[*,4]: all cores of this machine.",
        )
        @click.option(
            "--memory",
            metavar="SIZE",
            default="1g",
            show_default=True,
            callback=_size,
            help="Heap of the driver's JVM; with a local master that of all of Spark.",
        )
        @click.option(
            "--conf",
            "settings",
            metavar="NAME=VALUE",
            multiple=True,
            callback=_settings,
            help="A setting of Spark, as for spark-submit. Repeatable.",
        )
        @click.option(
            "--spark-log",
            type=OutputPath(),
            help="File for Spark's log. Default: a temporary file that is kept only if something fails.",
        )
        @wraps(command)
        def run(
            *args: Any,
            only_plan: bool,
            master: str | None,
            memory: str,
            settings: Mapping[str, str],
            spark_log: Path | None,
            **arguments: Any,
        ) -> None:
            with signals_interrupt(), failures_reported():
                made = _checked(plan, master, args, arguments)
                if only_plan:
                    if made.left_to_spark is not None:
                        with session(master=master, memory=memory, settings=settings, log=spark_log) as spark:
                            made.left_to_spark(spark)
                    for line in made.lines():
                        print_line(line)
                    return
                with session(master=master, memory=memory, settings=settings, log=spark_log) as spark:
                    command(spark, *args, **arguments)

        return run

    return decorate


def _checked(
    plan: Callable[..., Plan], master: str | None, args: Sequence[Any], arguments: Mapping[str, Any]
) -> Plan:
    """Return the plan. The connections for it are closed, because Spark's processes have their own."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise CannotRun(f"the command needs pyspark and pyarrow. Install with: {EXTRA}")
    from splashdam.pipeline.clusters import close_readers
    from splashdam.pipeline.local_source.planning import DataLossError
    from splashdam.pipeline.session import need_master

    need_master(master)
    try:
        return plan(*args, **arguments)
    except KafkaConfigurationError as error:
        raise click.UsageError(error.told(_flag_of_option), click.get_current_context()) from error
    except DataLossError as lost:  # its own remedy is an option that no command has
        raise click.ClickException(
            f"{message_of(lost)}. What to do: give a new --checkpoint to begin anew, at what"
            " --starting-offsets says."
        ) from lost
    finally:
        close_readers()


_PARAMETERS = {
    "startingOffsets": "starting_offsets",
    "maxOffsetsPerTrigger": "max_records",
    "initialOffsetsLocation": "checkpoint",
    "subscribe": "topics",
}
"""Options of the data sources, and the parameters of commands that they are given by."""


def _flag_of_option(option: str) -> str:
    """Return what the user of the current command calls an option of a data source, or another setting."""
    from splashdam.pipeline.options import KAFKA

    if option.startswith(KAFKA):
        return option.removeprefix(KAFKA)  # as it was given, with -X or in the file of --config
    return flag_of_setting(_PARAMETERS.get(option, option))


_MASTERS = re.compile(r"local(\[\s*([1-9]\d*|\*)\s*(,\s*[1-9]\d*\s*)?\])?|local-cluster\[.+\]|yarn|\w+://.+")
"""Cluster managers that are plugged into Spark have addresses of their own."""


def _master(_context: click.Context, _parameter: click.Parameter, url: str | None) -> str | None:
    if url is not None and _MASTERS.fullmatch(url) is None:
        raise click.BadParameter(
            f"{url!r} is no master of Spark: give local[N], spark://HOST:PORT, yarn or k8s://HOST:PORT"
        )
    return url


def _size(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    if re.fullmatch(r"[1-9]\d*[kmgt]b?", text, flags=re.IGNORECASE) is None:
        raise click.BadParameter(f"{text!r} is not a size such as 512m or 2g")
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
    """Run a session for the block, with Spark's log in a file.

    Args:
        master: Spark's master URL, None for the environment's.
        memory: heap of the driver's JVM.
        settings: more settings of Spark.
        log: the file; None for one that is deleted unless something fails.

    Raises:
        CannotRun: pyspark or Java is missing.
        click.ClickException: Spark failed; the message ends with the log's path.
        SystemExit: after an interrupt, with the status that a shell expects.
    """
    from splashdam.pipeline.failures import cause_in, is_of_spark
    from splashdam.pipeline.session import errors_unlogged, interrupts_unlogged

    file = tempfile.TemporaryFile("a+b") if log is None else log.open("ab")  # noqa: SIM115  (closed below)
    try:
        # The JVM writes to a descriptor, so its log goes to the file and never between the command's lines.
        with (
            interrupts_unlogged(),
            errors_unlogged(),
            _started(file.fileno(), master, memory, settings) as spark,
        ):
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
    """Return the interrupt that preceded a failure, or None.

    Ctrl-C goes to the whole process group: it also ends the JVM, and then cleaning up fails.
    """
    behind = error.__context__
    while behind is not None and not isinstance(behind, KeyboardInterrupt):
        behind = behind.__context__
    return behind


@contextmanager
def _started(
    log: int, master: str | None, memory: str, settings: Mapping[str, str]
) -> Iterator[SparkSession]:
    from splashdam.pipeline.session import JavaMissingError, children_log_into, spark_session

    try:
        # A JVM never ends if its parent exits before the JVM has reported its port.
        with interrupts_wait(), children_log_into(log):
            spark = spark_session("splashdam pipeline", master=master, memory=memory, settings=settings)
    except JavaMissingError as missing:
        raise CannotRun(explained(missing)) from missing
    with _bridge_silenced():
        try:
            yield spark
        finally:
            with suppress(Exception):  # the JVM may have died, which is reported already
                spark.stop()


@contextmanager
def _bridge_silenced() -> Iterator[None]:
    """Silence the log of py4j for the block.

    py4j logs the errors that it raises. A root logger without handlers would print them, and after an
    interrupt a traceback.
    """
    silent = logging.NullHandler()
    logging.getLogger().addHandler(silent)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(silent)


def _kept(log: IO[bytes]) -> str:
    """Copy the log to a file with a name, which the log does not have: so a killed command leaves no file."""
    log.seek(0)
    with tempfile.NamedTemporaryFile(prefix="splashdam-spark-", suffix=".log", delete=False) as copy:
        shutil.copyfileobj(log, copy)
    return copy.name
