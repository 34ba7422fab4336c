"""The group of all commands, and the kinds of commands.

A command's module is imported when the command runs or is listed. An option that is not repeatable may be
given only once, because click silently keeps the last of several: a line with two offsets would move a group
to the wrong one, and a line with two data directories would open the wrong one.
"""

from __future__ import annotations

from collections import Counter
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
"""The module in this package that defines each command, by the command's name."""


class Commands(click.Group):
    """Import the module of a command when it is needed, so that no command pays for another's imports."""

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
        from importlib.metadata import version  # which imports half of `email`, for one line of text

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


class OnceCommand(click.Command):
    """Refuses an option that is given twice, unless it may be repeated."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raise UsageError for such an option as well."""
        if not ctx.resilient_parsing:  # it is set while a shell completes an unfinished line
            # A parse only to count: click's parameters have the last value, and not how often an option came.
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for parameter, times in Counter(given).items():
                if times > 1 and _is_single(parameter):
                    raise click.UsageError(f"{max(parameter.opts, key=len)} is given {times} times", ctx)
        return super().parse_args(ctx, args)


class OnceGroup(click.Group):
    """A group whose subcommands are `OnceCommand`."""

    command_class = OnceCommand
    group_class = type


def _is_single(parameter: click.Parameter) -> bool:
    """Return whether a second value would replace the first; a repeated flag is harmless."""
    if not isinstance(parameter, click.Option) or parameter.multiple or parameter.count:
        return False
    return not parameter.is_flag or bool(parameter.secondary_opts)
