"""Output about a streaming query: a progress line on standard error, and a summary."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from splashdam.cli.output import is_terminal, print_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from splashdam.pipeline.jobs.micro_batches import BatchProgress

LOOK_SECONDS = 0.3
"""How often Spark is polled for its tasks."""


@contextmanager
def query_progress() -> Iterator[Callable[[BatchProgress], None]]:
    """Show the last micro-batch in a line; nothing if standard error is not a terminal."""
    if not is_terminal(sys.stderr):
        yield lambda _: None
        return
    from rich.console import Console

    rows = 0
    with Console(stderr=True).status("waiting for the first batch") as status:

        def tell(progress: BatchProgress) -> None:
            nonlocal rows
            rows += progress.rows
            status.update(progress_line(progress, rows))

        yield tell


@contextmanager
def task_progress(spark: SparkSession) -> Iterator[None]:
    """Show how many tasks of Spark's jobs are done, while the block waits for them in this thread."""
    if not is_terminal(sys.stderr):
        yield
        return
    from rich.console import Console

    # A lock that is held until the end, not an Event: Ctrl-C on Python 3.14 may leave an Event's lock locked.
    ends = threading.Lock()
    ends.acquire()
    with Console(stderr=True).status("planning") as status:

        def look() -> None:
            while not ends.acquire(timeout=LOOK_SECONDS):
                line = tasks_line(spark)
                if line:
                    status.update(line)

        thread = threading.Thread(target=look, name="splashdam-task-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ends.release()
            thread.join()


def tasks_line(spark: SparkSession) -> str:
    """Return the done and all tasks of the running stages; "" between stages."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    done, tasks = sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
    return f"{done:,} of {tasks:,} tasks" if tasks else ""


def progress_line(progress: BatchProgress, rows: int) -> str:
    """Return batch, rows so far, speed, and the lag of every topic.

    Args:
        progress: of the last batch.
        rows: of all batches so far.
    """
    parts = [f"batch {progress.batch}", f"{rows:,} rows", f"{progress.rows_per_second:,.0f} rows/s"]
    parts += [f"{topic}: {behind:,} behind" for topic, behind in sorted(progress.lag.items())]
    return ", ".join(parts)


def print_summary(rows: Sequence[tuple[str, object]]) -> None:
    """Print a line for each figure: its name, then its value."""
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        print_line(f"{name:<{width}}  {f'{value:,}' if isinstance(value, int) else value}")
