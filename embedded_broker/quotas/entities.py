"""Quota entities, and the quota that applies to a client by Kafka's precedence. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from splashdam.model.broker_errors import InvalidRequestError
from splashdam.model.options import MAX_INT, MAX_LONG

USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE = "request_percentage", "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

_CLIENT_KEYS = {
    PRODUCER_BYTE_RATE: MAX_LONG,
    CONSUMER_BYTE_RATE: MAX_LONG,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_IP_KEYS = {CONNECTION_CREATION_RATE: MAX_INT}
"""Largest value of each quota, which must be whole; None: it need not be whole."""

Entity = frozenset[tuple[str, str | None]]
"""Pairs of type and name; None is the default of that type."""

Quotas = Mapping[Entity, Mapping[str, float]]


class Quota(NamedTuple):
    """The quota that applies to a client.

    Attributes:
        bound: limit per second.
        shared_by: user and client id whose requests count together; "" stands for all.
    """

    bound: float
    shared_by: tuple[str, str]


def entity(**names: str | None) -> Entity:
    """Return an entity of ``user``, ``client_id`` and ``ip``."""
    return frozenset((kind.replace("_", "-"), name) for kind, name in names.items())


def check_entity(pairs: Iterable[tuple[str, str | None]]) -> Entity:
    """Return an entity for which quotas may be set.

    Raises:
        InvalidRequestError: a type is unknown or named twice, or the types cannot be combined.
    """
    given = list(pairs)
    kinds = [kind for kind, _ in given]
    if not given:
        raise InvalidRequestError("Invalid empty client quota entity")
    for kind in kinds:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}")
        if kinds.count(kind) > 1:
            raise InvalidRequestError(f"Invalid client quota entity, duplicate entity entry {kind}")
    if IP in kinds and len(kinds) > 1:
        raise InvalidRequestError(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    for kind, name in given:
        if name == "":
            raise InvalidRequestError(f"Empty {kind} not supported")
        if kind == IP and name is not None and not _is_address(name):
            raise InvalidRequestError(f"{name} is not a valid IP address")
    return frozenset(given)


def check_quota(of: Entity, key: str, value: float) -> None:
    """Check the value of a quota.

    Raises:
        InvalidRequestError: there is no such quota for this kind of entity, or the value is illegal.
    """
    keys: Mapping[str, int | None] = _IP_KEYS if any(kind == IP for kind, _ in of) else _CLIENT_KEYS
    if key not in keys:
        raise InvalidRequestError(f"Invalid configuration key {key}")
    largest = keys[key]
    if not value > 0 or math.isinf(value):
        raise InvalidRequestError(f"Quota {key} must be greater than 0")
    if largest is not None and value > largest:
        raise InvalidRequestError(f"Proposed value for {key} is too large; {largest} is the most")
    if largest is not None and abs(value % 1) > 1e-6:
        raise InvalidRequestError(f"{key} cannot be a fractional value")


def quota_for(quotas: Quotas, key: str, user: str, client_id: str) -> Quota | None:
    """Return the most specific quota for a client, None if no quota applies.

    User and client id together come first, each by name and then by default, then the user, then the client
    id (Kafka's ``DefaultQuotaCallback``).
    """
    for (user_name, client_name), shared_by in (
        ((user, client_id), (user, client_id)),
        ((user, None), (user, client_id)),
        ((user, ...), (user, "")),
        ((None, client_id), (user, client_id)),
        ((None, None), (user, client_id)),
        ((None, ...), (user, "")),
        ((..., client_id), ("", client_id)),
        ((..., None), ("", client_id)),
    ):
        if client_name is not ... and not client_id:
            continue  # a client without a client id has no quota by client id
        names = (
            (kind, name) for kind, name in ((USER, user_name), (CLIENT_ID, client_name)) if name is not ...
        )
        found = quotas.get(frozenset(names))
        if found is not None and key in found:
            return Quota(found[key], shared_by)
    return None


def connection_rate(quotas: Quotas, ip: str) -> float | None:
    """Return the limit of connections per second from an address, None without a limit."""
    for name in (ip, None):
        found = quotas.get(entity(ip=name))
        if found is not None:
            return found[CONNECTION_CREATION_RATE]
    return None


def _is_address(text: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
