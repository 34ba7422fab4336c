"""The words of access control lists, with Kafka's codes; broker and commands use the same."""

from __future__ import annotations

from enum import IntEnum


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


class PatternType(IntEnum):
    """Kafka's ``PatternType``, with its codes; MATCH finds every pattern that a name falls under."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Kafka's ``AclPermissionType``, with its codes."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3
