"""The group of all commands. A command is imported when it is asked for or listed."""

from __future__ import annotations

from importlib import import_module

import click

COMMANDS = {
    "bench": "cluster.bench",
    "broker": "broker.broker",
    "contract": "cluster.contract",
    "dump-log": "records.dump_log",
    "groups": "cluster.groups",
    "pipeline": "pipeline.command",
    "produce": "records.produce",
    "tail": "records.tail",
    "topics": "cluster.topics",
    "users": "broker.users",
    "verify-log": "broker.verify_log",
}
"""By name: the module of this room with a command of this name in it, with ``_`` for ``-``."""


class Commands(click.Group):
    """Finds commands in modules of their own, so that none pays for the imports of another."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"splashdam.cli.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
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
