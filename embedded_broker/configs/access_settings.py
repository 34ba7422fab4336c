"""Kafka's names for what clients may do and how much of it: authorization, quotas, limits."""

from __future__ import annotations

from typing import Any

import attrs

from splashdam.embedded_broker.groups.consumer.settings import ConsumerGroupSettings
from splashdam.model.options import MAX_INT, MAX_LONG, one_of, option, whole_number

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_OWN_REQUEST_BYTES = 256 * 1024 * 1024


def _principals(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"must be a text, not {type(value).__name__}"
    for each in filter(None, map(str.strip, value.split(";"))):
        kind, _, name = each.partition(":")
        if not (kind and name):
            return f"{each!r} is not TYPE:NAME, as in User:anna; several are separated by semicolons"
    return None


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


@attrs.frozen(kw_only=True, init=False, repr=False, eq=False)  # ``BrokerSettings`` has them
class AccessSettings(ConsumerGroupSettings):
    """The part of ``BrokerSettings`` that says what clients may do, and how much of it."""

    authorizer_class_name: str = option(
        "",
        check=one_of("", AUTHORIZER),
        notes={"kind": "class"},
        doc=f"Whether clients need ACLs for what they do: {AUTHORIZER}, or empty for no authorization.",
    )
    super_users: str = option(
        "",
        check=_principals,
        notes={"kind": "list"},
        doc="Principals that may do everything, as User:NAME separated by semicolons.",
    )
    allow_everyone_if_no_acl_found: bool = option(
        False, doc="Whether a resource that no ACL is about is open to everybody."
    )
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

    @property
    def request_bytes(self) -> int:
        """``queued_max_request_bytes``, or what stands in for it."""
        return _OWN_REQUEST_BYTES if self.queued_max_request_bytes < 1 else self.queued_max_request_bytes

    @property
    def super_user_names(self) -> list[str]:
        """``super_users``, one by one."""
        return [each.strip() for each in self.super_users.split(";") if each.strip()]
