"""A progress bar on standard error, where somebody sits before it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from splashdam.cli.streams import is_terminal

_WORTH_A_BAR_BYTES = 64 * 1024 * 1024


@contextmanager
def bytes_read(total: int, *, is_wanted: bool = True) -> Iterator[Callable[[int], None]]:
    """Shows how much of ``total`` bytes was read, unless that is too little to wait for.

    Args:
        total: bytes in all.
        is_wanted: False where the bar would stand between lines of output.
    """
    if not is_wanted or total < _WORTH_A_BAR_BYTES or not is_terminal(sys.stderr):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)
