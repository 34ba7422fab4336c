"""What work in turns shares: the time it is, and that a failure ends in a line of the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from splashdam.model.broker_errors import BrokerResponseError

_logger = logging.getLogger(__name__)


class Now(NamedTuple):
    """Both clocks: monotonic, for delays, and wall, for what records are compared with; milliseconds."""

    now_ms: float
    wall_ms: int


@contextmanager
def log_failures(what: str) -> Iterator[None]:
    """Turns a failure of the block into a line in the log, an unforeseen one with its traceback."""
    try:
        yield
    except BrokerResponseError as error:
        _logger.warning("%s: %s", what, error.message)
    except Exception:
        _logger.exception("%s failed", what)
