"""What background work shares: the time of a turn, and failures that become lines in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from splashdam.model.broker_errors import BrokerResponseError

_logger = logging.getLogger(__name__)


class Now(NamedTuple):
    """The time of one turn by both clocks, in milliseconds: monotonic for delays, wall for records."""

    now_ms: float
    wall_ms: int


@contextmanager
def log_failures(what: str) -> Iterator[None]:
    """Log a failure of the block instead of raising it; log an unexpected one with its traceback."""
    try:
        yield
    except BrokerResponseError as error:
        _logger.warning("%s: %s", what, error.message)
    except Exception:
        _logger.exception("%s failed", what)
