"""kafka-python's options of earlier and later versions in ours."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from splashdam.model.errors import KafkaConfigurationError

_RETIRED: Mapping[str, str] = {
    "bootstrap_topics_filter": "the first question for metadata names no topics",
    "sock_chunk_bytes": "sockets are read as much as they hold",
    "sock_chunk_buffer_count": "sockets are read as much as they hold",
}
"""Options of 2.x: why they have no effect."""

_RENAMED: Mapping[str, str] = {
    "api_version_auto_timeout_ms": "bootstrap_timeout_ms",
    "socks5_proxy": "proxy_url",
}

_REFUSED: Mapping[str, str] = {
    "default_api_timeout_ms": "max_block_ms is how long calls wait",
    "net": "connections are driven by trio; AsyncKafkaProducer runs in your own loop",
}
"""Options of versions to come: what to do instead."""

_CALLER = 5
"""Frames from here to who has called a producer's constructor."""


def present_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` by their present names, without those that have no effect any more.

    Raises:
        KafkaConfigurationError: one cannot be met here, the text says what to do; or two say the same.
    """
    present: dict[str, Any] = {}
    for name, value in options.items():
        if name in _RETIRED:
            _warn(f"{name} has no effect: {_RETIRED[name]}")
        elif name in _REFUSED:
            if value is not None:
                raise KafkaConfigurationError(f"{name} cannot be set: {_REFUSED[name]}")
        elif name in _RENAMED:
            if value is not None:
                _rename(present, options, name, value)
        else:
            present[name] = value
    return present


def refusal_of(name: str) -> str:
    """Why a property of this dotted name cannot be set, or an empty text."""
    return _REFUSED.get(name.replace(".", "_"), "")


def _rename(present: dict[str, Any], options: Mapping[str, Any], name: str, value: Any) -> None:
    new = _RENAMED[name]
    if options.get(new) is not None:
        raise KafkaConfigurationError(f"{name} is an earlier name of {new}, which is given, too")
    _warn(f"{name} is now {new}")
    present[new] = value


def _warn(text: str) -> None:
    warnings.warn(text, DeprecationWarning, stacklevel=_CALLER)
