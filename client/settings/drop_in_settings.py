"""kafka-python's options that say how its client reaches the cluster; those without a meaning here say so."""

from __future__ import annotations

import re
from typing import Any

import attrs

from splashdam.client.settings.listener_settings import ListenerSettings
from splashdam.model.options import at_least, option, parse_float
from splashdam.model.secrets import secret_or_none

_VERSION = re.compile(r"auto|[0-9]+(\.[0-9]+)*")
_PROXY = re.compile(r"(socks5h?|socks4a?|http)://[^/?#\s]+/?")


def _version_or_none(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and _VERSION.fullmatch(value)):
        return None
    fine = isinstance(value, tuple | list) and value and all(type(part) is int for part in value)
    return None if fine else "must be a tuple of whole numbers, as (2, 8), or None"


def _time_or_none(value: Any) -> str | None:
    return None if value is None else at_least(0)(value)


def _lookup(value: Any) -> str | None:
    if value == "resolve_canonical_bootstrap_servers_only":
        return "is not supported: give the canonical names in bootstrap_servers"
    return None if value in ("use_all_dns_ips", "default") else "must be 'use_all_dns_ips'"


def _proxy_or_none(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and _PROXY.fullmatch(value)):
        return None
    return "must be socks5://HOST:PORT, socks5h://… (the proxy looks names up), socks4://… or http://…"


def _client_or_none(value: Any) -> str | None:
    if value is None or getattr(value, "__module__", "").partition(".")[0] == "kafka":
        return None
    return "cannot be replaced: for tests give AsyncKafkaProducer a `connect`, or use EmbeddedBroker"


def _no_class(text: str) -> Any:
    raise ValueError("names a class; it has no effect here, leave it out")


@attrs.frozen(kw_only=True, eq=False, init=False, repr=False)  # a part only
class DropInSettings(ListenerSettings):
    """Part of ``ProducerSettings``. What has no effect says so."""

    bootstrap_timeout_ms: float | None = option(
        None,
        check=_time_or_none,
        parse=parse_float,
        doc="How long the constructor (of the trio producer: entering its block) waits for a first broker,"
        " and raises NoBrokersAvailable. Default: it does not wait, the first send does",
    )
    api_version: Any = option(
        None,
        check=_version_or_none,
        parse=str,
        doc="Has no effect but that the constructor does not wait for a broker, as in kafka-python: each"
        " broker is asked which versions it speaks",
    )
    client_dns_lookup: str = option(
        "use_all_dns_ips",
        check=_lookup,
        doc="'use_all_dns_ips': all addresses of a name are tried, which is always so",
    )
    proxy_url: str | None = option(
        None,
        convert=secret_or_none,
        check=_proxy_or_none,
        parse=str,
        doc="A proxy for all connections: socks5, socks5h, socks4 or http://[USER:PASSWORD@]HOST:PORT; needs"
        " splashdam[proxy]",
    )
    selector: Any = option(
        None, parse=_no_class, doc="Has no effect: connections are driven by trio, which has its own"
    )
    kafka_client: Any = option(
        None,
        check=_client_or_none,
        parse=_no_class,
        doc="Has no effect: connections are driven by trio",
    )
