"""Kafka's ACL operations and resource types.

Handlers and guards ask ``RequestContext.authorize``; without an authorizer that is one attribute look-up.
Which operation a request needs is as in Kafka's ``KafkaApis``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import cache


class Operation(IntEnum):
    """Kafka's ``AclOperation``, with its codes."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(IntEnum):
    """Kafka's ``ResourceType``, with its codes."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_NAME = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""

_O = Operation
SUPPORTED: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        *(_O.READ, _O.WRITE, _O.CREATE, _O.DESCRIBE),
        *(_O.DELETE, _O.ALTER, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ),
    ResourceType.GROUP: (_O.READ, _O.DESCRIBE, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        *(_O.CREATE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS),
        *(_O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE, _O.ALTER, _O.DESCRIBE),
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.DESCRIBE, _O.WRITE),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}
"""Operations by resource type, as ``authorized_operations`` of answers may name them."""


def operation_bits(kind: ResourceType, may: Callable[[Operation], bool]) -> int:
    """Return the bit field of the operations on a resource type that ``may`` allows."""
    return sum(1 << operation for operation in SUPPORTED[kind] if may(operation))


@cache
def all_operation_bits(kind: ResourceType) -> int:
    """Return the bit field of all operations."""
    return operation_bits(kind, lambda _: True)
