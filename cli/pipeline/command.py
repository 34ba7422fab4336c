"""``splashdam pipeline``: the group of commands that run on Spark. Each command is a file in ``jobs/``."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import click

from splashdam.cli.pipeline import jobs


def names() -> list[str]:
    """Return the names of all pipelines: each module of ``cli.pipeline.jobs`` has a command of its name."""
    return sorted(module.name.replace("_", "-") for module in iter_modules(jobs.__path__))


class Pipelines(click.Group):
    """Imports the module of a pipeline when it is run or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in names():
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"{jobs.__name__}.{name}"), name)
        return command


@click.group(cls=Pipelines)
def pipeline() -> None:
    """Run a pipeline on Spark, on this machine or, with --master, on a cluster.

    Needs pip install 'splashdam[cli,spark]' and Java 17 or later.
    """
