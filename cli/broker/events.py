"""``splashdam broker -v``: a line on standard error for each event."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import click

from splashdam.embedded_broker.serving.dispatch import Arrived
from splashdam.model.broker_errors import ErrorCode, error_for
from splashdam.wire.answered_errors import errors_in
from splashdam.wire.message import Response


class ErrorLines:
    """An interceptor that lets every request through, and tells the errors in the answers."""

    def admits(self, node_id: int) -> bool:
        """Every connection is served."""
        return True

    async def intercept(self, arrived: Arrived) -> Response | None:
        """Return the handler's answer; its errors are a line."""
        answer = await arrived.handle()
        if answer is not None and (found := Counter(errors_in(answer))):
            what = ", ".join(
                _named(error) if times == 1 else f"{times} times {_named(error)}"
                for error, times in found.items()
            )
            _tell(
                f"{arrived.context.client.name}:"
                f" {type(arrived.request).__name__.removesuffix('Request')}: {what}"
            )
        return answer


def _named(error: tuple[int, str]) -> str:
    code, where = error
    name = ErrorCode(error_for(code).code).name
    return f"{name} ({where})" if where else name


class _EventHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _tell(record.getMessage())


def _tell(line: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {line}", err=True)


@contextmanager
def events_told() -> Iterator[None]:
    """Print what the broker logs at INFO, and connections that come and go, as lines on standard error."""
    ours = logging.getLogger("splashdam")
    connections = logging.getLogger("splashdam.embedded_broker.serving.client_connection")
    handler, levels = _EventHandler(), (ours.level, connections.level)
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    connections.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        ours.setLevel(levels[0])
        connections.setLevel(levels[1])
