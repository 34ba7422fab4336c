"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click
from click.core import ParameterSource

from splashdam.cli.commands import shown_name
from splashdam.client.sending.arguments import check_topic_name
from splashdam.model.errors import KafkaConfigurationError, WrongSettingError

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP_SERVERS = "localhost:9092"

DEFAULT_TIMEOUT_SECONDS = 10.0
"""Default of ``--timeout`` for every command that talks to a cluster."""


def topic_argument(command: Command) -> Command:
    """``TOPIC``: a name that Kafka would accept."""
    return click.argument("topic", callback=_check_topic)(command)


def _check_topic(_context: click.Context, _parameter: click.Parameter, topic: str) -> str:
    return legal_topic(topic)


def legal_topic(topic: str) -> str:
    """Return a topic's name.

    Raises:
        click.BadParameter: no broker would accept it.
    """
    try:
        return check_topic_name(topic)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


class DirectoryPath(click.Path):
    """A directory. Empty text, as from an unset variable, is refused: it would mean the current directory."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        if value == "":
            self.fail("the path is empty; '.' is the current directory", param, ctx)
        return super().convert(value, param, ctx)


class OutputPath(click.Path):
    """A file that the command writes, in a directory that exists. All this is checked before anything starts.

    Args:
        may_be_in_data: whether it may be among the files of a broker, which it could replace.
    """

    def __init__(self, *, may_be_in_data: bool = False) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)
        self._may_be_in_data = may_be_in_data

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        path = super().convert(value, param, ctx)
        from splashdam.storage.directories.identity import data_directory_of  # not for ``--help``
        from splashdam.storage.files.new_files import no_new_file_in

        file = Path(os.fsdecode(path)).absolute()
        if not file.parent.is_dir():
            self.fail(f"there is no directory {file.parent}", param, ctx)
        if not file.exists() and (obstacle := no_new_file_in(file.parent)):
            self.fail(f"{file} cannot be written: {obstacle}", param, ctx)
        if not self._may_be_in_data and (data := data_directory_of(file)) is not None:
            self.fail(
                f"{file} is in {data}, the data directory of a broker: name a file elsewhere", param, ctx
            )
        return path


SECONDS = "number of seconds"


class FiniteRange(click.FloatRange):
    """A number within limits. ``nan``, which no limit stops, and ``inf`` are refused.

    Args:
        min, max, min_open: as for ``click.FloatRange``.
        what: names it in messages.
    """

    def __init__(self, min: float, max: float | None = None, *, what: str, min_open: bool = False) -> None:
        super().__init__(min, max, min_open=min_open)
        self._what = what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isfinite(click.FLOAT.convert(value, param, ctx)):
            self.fail(f"{value!r} is no {self._what}", param, ctx)
        return super().convert(value, param, ctx)


def given_bytes(text: str) -> bytes:
    """Return the bytes of a text as they stand on the command line, those that are not UTF-8 as well."""
    return text.encode("utf-8", "surrogateescape")


def bootstrap_servers_option(command: Command) -> Command:
    """Add ``--bootstrap-servers``."""
    return click.option(
        "-b",
        "--bootstrap-servers",
        metavar="HOST:PORT[,…]",
        default=DEFAULT_BOOTSTRAP_SERVERS,
        show_default=True,
        help="Brokers to connect to first, or embedded:DIR for a broker in this process on a directory.",
    )(command)


def timeout_option(command: Command) -> Command:
    """Add ``--timeout``: the longest wait for an answer; the command gets ``timeout_seconds``."""
    return click.option(
        "--timeout",
        "timeout_seconds",
        type=FiniteRange(0, 86_400, what=SECONDS, min_open=True),
        metavar="SECONDS",
        default=DEFAULT_TIMEOUT_SECONDS,
        show_default=True,
        help="How long to wait for an answer from the cluster.",
    )(command)


def property_option(what: str) -> Callable[[Command], Command]:
    """Add ``--property NAME=VALUE`` (or ``--set``), repeatable: any setting by Kafka's name."""

    def decorate(command: Command) -> Command:
        return click.option(
            "-X",
            "--property",
            "--set",
            "properties",
            metavar="NAME=VALUE",
            multiple=True,
            callback=pairs,
            help=f"Set a {what} property by Kafka's name, for example {_EXAMPLES[what]}. Repeatable.",
        )(command)

    return decorate


_EXAMPLES = {
    "broker": "num.partitions=6",
    "producer": "linger.ms=50",
    "client": "security.protocol=SSL",
}


def config_option(what: str) -> Callable[[Command], Command]:
    """Add ``--config FILE``: settings in a file, which keeps passwords off the command line."""
    return click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help=f"A properties file like Kafka's {what}.properties; options of the command override it.",
    )


def json_option(command: Command) -> Command:
    """Add ``--json``; the command gets ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print each row as a line of JSON.")(command)


def yes_option(command: Command) -> Command:
    """Add ``--yes``, for commands that ask before they change something for good."""
    return click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def partition_list(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse ``TOPIC`` or ``TOPIC:0,2``: a topic with the numbers of its partitions, none for all.

    Raises:
        click.BadParameter: the text is neither.
    """
    topic, colon, numbers = text.partition(":")
    try:
        found = tuple(map(int, numbers.split(","))) if colon else ()
    except ValueError:
        raise click.BadParameter(f"{text!r} is not TOPIC or TOPIC:NUMBER,…") from None
    return legal_topic(topic), found


def cluster_options(what: str = "client") -> Callable[[Command], Command]:
    """Add ``-b``, ``--config``, ``-X`` and ``--timeout``: the cluster and its settings.

    The command gets ``bootstrap_servers``, ``config``, ``properties`` and ``timeout_seconds``.
    """

    def decorate(command: Command) -> Command:
        command = property_option(what)(timeout_option(command))
        return bootstrap_servers_option(config_option(what)(command))

    return decorate


def pairs(_context: click.Context, parameter: click.Parameter, texts: Iterable[str]) -> dict[str, str]:
    """Parse a repeatable option that takes NAME=VALUE (a click callback)."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        if found.setdefault(name, value) != value:
            flag = parameter.opts[0]
            raise click.BadParameter(f"{flag} {name}={found[name]} contradicts {flag} {name}={value}")
    return found


def is_given(context: click.Context, parameter: str) -> bool:
    """Whether the option was given, even with its default value."""
    return context.get_parameter_source(parameter) is not ParameterSource.DEFAULT


def flag_of(context: click.Context, parameter: str) -> str:
    """Return the name of a parameter for messages, as `shown_name`."""
    return shown_name(next(each for each in context.command.params if each.name == parameter))


def flag_of_setting(setting: str) -> str:
    """Return what the user of the current command calls a setting: its flag, or ``-X`` with Kafka's name.

    Args:
        setting: as programs write it, ``bootstrap_servers``.

    Returns:
        The name as given, if the command has neither.
    """
    return flags_of_command()(setting)


def flags_of_command() -> Callable[[str], str]:
    """Return `flag_of_setting` of the current command, for other threads, which have no current command."""
    context = click.get_current_context(silent=True)
    parameters = {} if context is None else {each.name: each for each in context.command.params}
    return partial(_flag_among, parameters)


def _flag_among(parameters: Mapping[str, click.Parameter], setting: str) -> str:
    from splashdam.client.settings.producer_settings import ProducerSettings  # ``--help`` does not need them
    from splashdam.model.options import kafka_name

    if setting in parameters:
        return shown_name(parameters[setting])
    field = attrs.fields_dict(ProducerSettings).get(setting)
    return setting if field is None or "properties" not in parameters else f"-X {kafka_name(field)}"


def exclusive(*parameters: str) -> Callable[[Command], Command]:
    """Refuse a command line with more than one of these options; `OnceCommand` does.

    Args:
        parameters: their names as the command gets them.
    """

    def decorate(command: Command) -> Command:
        vars(command)["exclusives"] = [*vars(command).get("exclusives", ()), parameters]
        return command

    return decorate


def settled_cluster(config: Path | None, properties: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Combine ``cluster_options`` into the cluster's address and its settings.

    The address comes from ``--bootstrap-servers``, a property, the file, or the default, in this order.

    Args:
        config: the properties file, if any.
        properties: from ``-X``; they override the file.

    Raises:
        click.UsageError: option and property contradict each other.
        KafkaConfigurationError: the file cannot be read, or a line is not NAME=VALUE.
    """
    context = click.get_current_context()
    option: str = context.params["bootstrap_servers"]
    in_file = read_properties(config)
    settings = {**in_file, **properties}
    given = properties.get("bootstrap.servers")
    if not is_given(context, "bootstrap_servers"):
        if given:
            return _address(given, "-X bootstrap.servers"), settings
        if in_file.get("bootstrap.servers"):
            return _address(in_file["bootstrap.servers"], f"bootstrap.servers in {config}"), settings
        return option, settings
    if given is not None and given != option:
        raise click.UsageError(
            f"--bootstrap-servers {option} contradicts -X bootstrap.servers={given}", context
        )
    return _address(option, "--bootstrap-servers"), settings


def _address(servers: str, given_by: str) -> str:
    """Return a cluster's address.

    Raises:
        click.BadParameter: ``servers`` is no address. The message names ``given_by``.
    """
    from splashdam.client.local import local_address  # ``--help`` does not need them
    from splashdam.net.addresses import parse_bootstrap_servers

    try:
        if local_address(servers) is None:
            parse_bootstrap_servers(servers)
    except WrongSettingError as error:
        raise click.BadParameter(error.problem, click.get_current_context(), param_hint=given_by) from error
    return servers


def read_properties(path: Path | None) -> dict[str, str]:
    """Read a Java properties file such as Kafka's ``server.properties``; without a file return no settings.

    Lines that begin with ``#`` or ``!`` are comments, and a backslash at its end continues a line.

    Raises:
        KafkaConfigurationError: the file cannot be read, or a line is not NAME=VALUE.
    """
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KafkaConfigurationError(f"cannot read {path}: {error}") from error
    properties = {}
    for line in map(str.strip, text.replace("\\\n", "").splitlines()):
        if not line or line[0] in "#!":
            continue
        name, separator, value = line.partition("=")
        if not separator or not name.strip():
            raise KafkaConfigurationError(f"{path}: {line!r} is not NAME=VALUE")
        properties[name.strip()] = value.strip()
    return properties


def settled_properties(
    context: click.Context, properties: Mapping[str, str], options: Mapping[str, str]
) -> dict[str, str]:
    """Combine properties with the options that set properties as well.

    Args:
        context: of the command.
        properties: from `-X`; they override an option's default.
        options: the command's parameters by the names of their properties.

    Raises:
        click.UsageError: an option and a property contradict each other.
    """
    settled = dict(properties)
    for name, parameter in options.items():
        value = context.params[parameter]
        if is_given(context, parameter) and properties.get(name, value) != value:
            flag = flag_of(context, parameter)
            raise click.UsageError(f"{flag} {value} contradicts -X {name}={properties[name]}", context)
        settled.setdefault(name, value)
    return settled
