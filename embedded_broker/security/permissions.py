"""Which of Kafka's operations there are on which resources.

Handlers and guards ask ``RequestContext.authorize``; without an authorizer that is one attribute look-up.
Which operation a request needs is as in Kafka's ``KafkaApis``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from splashdam.model.acls import Operation, ResourceType

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
