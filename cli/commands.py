"""The group of all commands. A command is imported when it is asked for or listed."""

from __future__ import annotations

from importlib import import_module

import click

COMMANDS = (
    "bench",
    "broker",
    "contract",
    "dump-log",
    "groups",
    "pipeline",
    "produce",
    "tail",
    "topics",
    "users",
    "verify-log",
)
"""Each is a module of this room with a command of the same name in it, with ``_`` for ``-``."""


class Commands(click.Group):
    """Finds commands in modules of their own, so that none pays for the imports of another."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"splashdam.cli.{name}"), name)
        return command


def _show_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        import platform
        from importlib.metadata import version  # with half of `email`, for one line of text

        from splashdam.record.kernel import IMPL

        twin = "compiled" if IMPL == "c" else "pure Python"
        click.echo(f"splashdam {version('splashdam')}, {twin}, on Python {platform.python_version()}")
        context.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def splashdam() -> None:
    """A Kafka producer with a broker in the box."""
