"""Kafka's names for how much clients may ask of the broker: connections, requests, answers, quotas."""

from __future__ import annotations

from typing import Any

import attrs

from splashdam.model.options import MAX_INT, MAX_LONG, option, whole_number

_OWN_REQUEST_BYTES = 256 * 1024 * 1024


def _overrides(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"must be a text, not {type(value).__name__}"
    try:
        parse_overrides(value)
    except ValueError:
        return "must be ADDRESS:COUNT, separated by commas"
    return None


def parse_overrides(text: str) -> dict[str, int]:
    """``ADDRESS:COUNT,…``

    Raises:
        ValueError: it is not that.
    """
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        address, _, count = part.rpartition(":")
        found[address.strip().strip("[]")] = int(count)
        if not address or int(count) < 0:
            raise ValueError(part)
    return found


@attrs.frozen(kw_only=True)
class LimitSettings:
    """What bounds clients, one by one and together."""

    quota_window_num: int = option(
        11, check=whole_number(1, MAX_INT), doc="Windows that the rates of quotas are measured over."
    )
    quota_window_size_seconds: int = option(
        1, check=whole_number(1, MAX_INT), doc="Seconds of each of these windows."
    )
    max_connections: int = option(
        MAX_INT,
        check=whole_number(0, MAX_INT),
        doc="Most connections at a time; half of the files that the process may open is the most in any case,"
        " since the log needs some, too.",
    )
    max_connections_per_ip: int = option(
        MAX_INT, check=whole_number(0, MAX_INT), doc="Most connections of one address at a time."
    )
    max_connections_per_ip_overrides: str = option(
        "",
        check=_overrides,
        notes={"kind": "list"},
        doc="The same for single addresses, as ADDRESS:COUNT separated by commas.",
    )
    max_connection_creation_rate: int = option(
        MAX_INT,
        check=whole_number(0, MAX_INT),
        doc="Most new connections per second, measured as quotas are; who comes beyond waits.",
    )
    queued_max_request_bytes: int = option(
        -1,
        check=whole_number(-1, MAX_LONG),
        doc="Most bytes of requests that are received and not answered yet, all clients together, and one"
        " request beyond that; further ones wait. While some wait, the smallest is first, users and networks"
        " have equal shares, and who sends less than 16 KiB/s is closed."
        " -1: 256 MiB (Kafka: no limit).",
    )
    socket_request_max_bytes: int = option(
        104_857_600,
        doc="Largest request in bytes; a larger one closes its connection.",
        check=whole_number(1, MAX_INT),
    )
    connections_max_idle_ms: int = option(
        600_000,
        doc="A connection that neither sends nor takes a byte for this long is closed.",
        check=whole_number(1),
    )
    fetch_max_bytes: int = option(
        57_671_680,
        doc="Most bytes one fetch answers with, whatever it asks for.",
        check=whole_number(1024, MAX_INT),
    )
    max_incremental_fetch_session_cache_slots: int = option(
        1000,
        doc="Fetch sessions (KIP-227) that are kept at most; who has none asks for everything each time.",
        check=whole_number(0, MAX_INT),
    )
    telemetry_max_bytes: int = option(
        1_048_576,
        doc="Most bytes of metrics that a client may push at one time.",
        check=whole_number(1, MAX_INT),
    )

    @property
    def request_bytes(self) -> int:
        """``queued_max_request_bytes``, or what stands in for it."""
        return _OWN_REQUEST_BYTES if self.queued_max_request_bytes < 1 else self.queued_max_request_bytes
