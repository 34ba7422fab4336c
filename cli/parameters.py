"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP_SERVERS = "localhost:9092"


def bootstrap_servers_option(command: Command) -> Command:
    """``--bootstrap-servers``: whom to talk to."""
    return click.option(
        "-b",
        "--bootstrap-servers",
        metavar="HOST:PORT[,…]",
        default=DEFAULT_BOOTSTRAP_SERVERS,
        show_default=True,
        help="Brokers to start from, or embedded:DIR for a broker of one's own on a directory.",
    )(command)


def property_option(what: str) -> Callable[[Command], Command]:
    """``--property NAME=VALUE``, repeatable: any setting by the name that Kafka gives it."""

    def decorate(command: Command) -> Command:
        return click.option(
            "-X",
            "--property",
            "properties",
            metavar="NAME=VALUE",
            multiple=True,
            callback=_parse_properties,
            help=f"A setting of the {what} by Kafka's name, for example {_EXAMPLES[what]}. Repeatable.",
        )(command)

    return decorate


_EXAMPLES = {"broker": "num.partitions=6", "producer": "linger.ms=50"}


def _parse_properties(
    _context: click.Context, _parameter: click.Parameter, texts: Iterable[str]
) -> dict[str, str]:
    properties = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        properties[name.strip()] = value.strip()
    return properties
