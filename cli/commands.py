"""The group of all commands, and the kinds of commands.

A command's module is imported when the command runs; `SECTIONS` lists it in ``splashdam --help``. An option
that is not repeatable may be given only once, because click silently keeps the last of several, and only one
of options that exclude each other (`splashdam.cli.parameters.exclusive`): a line with two offsets would move
a group to the wrong one, and a line with two data directories would open the wrong one.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from splashdam.cli.entry import INTERRUPTED, leave_at_once


class Entry(NamedTuple):
    """A line of ``splashdam --help``.

    Attributes:
        module: in this package, defines the command.
        does: what the command does, in a line.
    """

    module: str
    does: str


SECTIONS = {
    "Records": {
        "tail": Entry("records.tail", "Write the records of topics to standard output."),
        "produce": Entry("records.produce", "Send lines of standard input or of files to a topic."),
        "delete-records": Entry("records.delete_records", "Delete the oldest records of a partition."),
        "dump-log": Entry("records.dump_log", "Print the contents of log files."),
    },
    "A cluster": {
        "brokers": Entry("cluster.brokers", "List the brokers."),
        "topics": Entry("cluster.topics", "Create, list, describe, alter and delete topics."),
        "groups": Entry("cluster.groups", "List, describe, reset and delete consumer groups."),
        "acls": Entry("cluster.acls", "List, add and remove access control lists."),
        "quotas": Entry("cluster.quotas", "List, set and remove quotas of users and clients."),
        "transactions": Entry("cluster.transactions", "List and describe transactions, abort a hanging one."),
        "producers": Entry("cluster.producers", "List the producers that a topic's partitions know."),
        "log-dirs": Entry("cluster.log_dirs", "List the log directories of brokers with their sizes."),
        "elect-leaders": Entry("cluster.elect_leaders", "Give partitions back to their preferred leaders."),
        "console": Entry("cluster.console", "Serve a page with topics, records and groups."),
        "top": Entry("cluster.top", "Watch topics and groups in the terminal."),
        "contract": Entry("cluster.contract", "Check a cluster for the behaviour that Kafka promises."),
        "bench": Entry("cluster.bench", "Measure splashdam and the other clients on your cluster."),
    },
    "A broker of your own": {
        "broker": Entry("broker.broker", "Serve Kafka clients from a directory."),
        "users": Entry("broker.users", "Add, delete and list the users of a broker."),
        "verify-log": Entry("broker.verify_log", "Check a data directory, or one partition of it."),
    },
    "Reference": {
        "options": Entry("reference.options", "Show the options of the producers."),
        "configs": Entry("reference.configs", "Show the configuration of broker and topics."),
    },
    "Spark": {
        "pipeline": Entry("pipeline.command", "Topics and logs through Spark: tables, windows, audits."),
    },
}
"""The commands by their names, in the order of ``splashdam --help``."""

COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class Commands(click.Group):
    """Import the module of a command when it is needed, so that no command pays for another's imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"splashdam.cli.{COMMANDS[cmd_name].module}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table, which needs no command's module."""
        width = max(map(len, COMMANDS))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), entry.does) for name, entry in section.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an interrupt ends it with the status of its signal, and without a traceback."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            from splashdam.cli.exiting import exit_status  # imports modules that ``--help`` does not need

            raise SystemExit(exit_status(interrupt)) from None
        except click.Abort as abort:
            if isinstance(abort.__context__, KeyboardInterrupt):  # Ctrl-C at a question
                raise SystemExit(INTERRUPTED) from None
            raise


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
    """Kafka from a shell, and a broker in the box.

    \b
      splashdam broker                           a broker on localhost:9092
      echo hello | splashdam produce greetings   send a record
      splashdam tail greetings --from-beginning  read it, and wait for more
      splashdam topics list -b HOST:PORT         ask any cluster

    `splashdam COMMAND --help` shows the options and an example. The exit status is 0 for success, 1 for a
    failure, 2 for wrong usage, 130 after Ctrl-C.
    """


class OnceCommand(click.Command):
    """A command whose help ends with an example, and that refuses contradicting options.

    Args:
        example: a command line that does something useful; several are separated by newlines.
    """

    def __init__(self, *args: Any, example: str = "", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.example = example

    @property
    def exclusives(self) -> list[tuple[str, ...]]:
        """The names of parameters of which a command line may give one."""
        return getattr(self.callback, "exclusives", [])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raise UsageError for a repeated option, and for two options that contradict each other, as well."""
        if not ctx.resilient_parsing:  # it is set while a shell completes an unfinished line
            # A parse only to count: click's parameters have the last value, and not how often an option came.
            values, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for parameter, times in Counter(given).items():
                if times > 1 and _is_single(parameter):
                    raise click.UsageError(f"{shown_name(parameter)} is given {times} times", ctx)
            for names in self.exclusives:
                # A repeatable option comes as often as it is given, and does not contradict itself.
                found = [
                    shown_name(each)
                    for each in dict.fromkeys(given)
                    if each.name in names and _is_given(each, values)
                ]
                if len(found) > 1:
                    raise click.UsageError(f"{found[0]} contradicts {found[1]}", ctx)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example, as long as its lines are: a wrapped line could not be copied."""
        if self.example:
            is_one = len(self.example.replace("\\\n", "").splitlines()) == 1
            with formatter.section("Example" if is_one else "Examples"):
                for line in self.example.splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. From here on Ctrl-C raises KeyboardInterrupt, for its summary."""
        if signal.getsignal(signal.SIGINT) is leave_at_once:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                return super().invoke(ctx)
            finally:
                signal.signal(signal.SIGINT, leave_at_once)  # nothing is left to sum up
        return super().invoke(ctx)


class OnceGroup(click.Group):
    """A group whose subcommands are `OnceCommand`."""

    command_class = OnceCommand
    group_class = type


def _is_given(parameter: click.Parameter, values: Mapping[str, Any]) -> bool:
    """Return whether a parameter stands on the command line: the parser names every argument."""
    if isinstance(parameter, click.Option):
        return True
    value = values.get(parameter.name or "")
    return isinstance(value, str | tuple) and bool(value)


def shown_name(parameter: click.Parameter) -> str:
    """Return the name of a parameter for messages: an option's long one, an argument's as in the help."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.human_readable_name


def _is_single(parameter: click.Parameter) -> bool:
    """Return whether a second value would replace the first; a repeated flag is harmless."""
    if not isinstance(parameter, click.Option) or parameter.multiple or parameter.count:
        return False
    return not parameter.is_flag or bool(parameter.secondary_opts)
