"""Times on the command line: a date and time, or how long ago."""

from __future__ import annotations

import re
import time
from datetime import datetime

import click

_AGO = re.compile(r"(\d+)(ms|s|m|h|d)", re.ASCII)
_LATEST_MS = 2**63 - 1
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment(text: str) -> int:
    """Return milliseconds since the epoch: of a date and time, or of a time ago such as ``90s`` or ``15m``.

    A duration that reaches before 1970 means 1970: Kafka's requests have no earlier times.

    Raises:
        click.BadParameter: the text is neither, or later than Kafka's last time.
    """
    at_ms = _parsed(text.strip())
    if at_ms > _LATEST_MS:
        raise click.BadParameter(f"{text!r} is beyond the last time that Kafka knows, {_LATEST_MS} ms")
    return max(at_ms, 0)


def _parsed(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) > 8:  # shorter ones are dates: 20260131
        return int(text)
    if (ago := _AGO.fullmatch(text)) is not None:
        return time.time_ns() // 1_000_000 - int(ago[1]) * _UNITS_MS[ago[2]]
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is neither a time (2026-01-31, 2026-01-31T10:00, 2026-01-31T10:00Z, milliseconds since"
            " 1970) nor a duration before now (90s, 15m, 2h, 1d)"
        ) from None
