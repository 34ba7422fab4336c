"""One measurement: ``python -m splashdam.cli.measuring.worker TASK`` prints its figures as JSON."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.metadata import version

from splashdam.cli.measuring.task import Task


def main() -> None:
    """Measure the task that the only argument describes."""
    task = Task.from_json(sys.argv[1])
    client = import_module(f"splashdam.cli.measuring.clients.{task.client.replace('-', '_')}")
    figures = client.measure(task)
    sys.stdout.write(json.dumps({**figures, "version": version(task.client)}) + "\n")


if __name__ == "__main__":
    main()
