"""ACLs as Kafka's clients state them, and filters over them. Pure.

A binding says who (a principal, from a host) may or may not do what (an operation) with which resources (a
pattern). Semantics of the filters: Kafka's ``ResourcePatternFilter`` and ``AccessControlEntryFilter``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import attrs

from splashdam.embedded_broker.security.permissions import CLUSTER_NAME, Operation, ResourceType
from splashdam.model.broker_errors import InvalidRequestError
from splashdam.model.log_text import quoted
from splashdam.wire.messages.create_acls import AclCreation
from splashdam.wire.messages.delete_acls import DeleteAclsFilter
from splashdam.wire.messages.describe_acls import DescribeAclsRequest

WILDCARD = "*"
WILDCARD_PRINCIPAL = "User:*"


class PatternType(IntEnum):
    """How a pattern stands for names, with Kafka's codes."""

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


@attrs.frozen(order=True)
class Acl:
    """One binding; the fields are Kafka's."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission


@attrs.frozen
class AclFilter:
    """What bindings must be like; None matches every text, ANY every code."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @property
    def is_unknown(self) -> bool:
        """Whether it names something that this broker does not know."""
        return 0 in (self.resource_type, self.pattern_type, self.operation, self.permission)

    def matches(self, acl: Acl) -> bool:
        """Whether a binding is as it says."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        wanted, name = self.pattern_type, self.resource_name
        if wanted not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None:
            return True
        if wanted is not PatternType.MATCH:
            return name == acl.resource_name
        if acl.pattern_type is PatternType.LITERAL:
            return acl.resource_name in (name, WILDCARD)
        return name.startswith(acl.resource_name)


def known(kind: Any, code: int) -> Any:
    """The member of an enumeration with this code; UNKNOWN where there is none."""
    return kind(code) if code in kind.__members__.values() else kind(0)


def check_acl(acl: Acl) -> None:
    """Looks at a binding that is to be created.

    Raises:
        InvalidRequestError: it names nothing, no host, or what is no resource, pattern or operation.
    """
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise InvalidRequestError(f"Invalid resourceType {acl.resource_type.name}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequestError(f"Invalid patternType {acl.pattern_type.name}")
    if acl.operation in (Operation.UNKNOWN, Operation.ANY):
        raise InvalidRequestError(f"Invalid operation {acl.operation.name}")
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        raise InvalidRequestError(f"Invalid permissionType {acl.permission.name}")
    if not acl.resource_name:
        raise InvalidRequestError("Invalid empty resource name")
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise InvalidRequestError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.host:
        raise InvalidRequestError("Invalid empty host")
    check_principal(acl.principal)


def check_principal(principal: str) -> None:
    """Looks at the form of a principal: ``type:name``, of which Kafka lets either be empty.

    Raises:
        InvalidRequestError: it has no colon.
    """
    if ":" not in principal:
        raise InvalidRequestError(
            f"expected a string in format principalType:principalName but got {quoted(principal)}"
        )


def acl_of(asked: AclCreation) -> Acl:
    """The ACL that a client wants; codes that are not known here are UNKNOWN."""
    return Acl(
        resource_type=known(ResourceType, asked.resource_type),
        resource_name=asked.resource_name,
        pattern_type=known(PatternType, asked.resource_pattern_type),
        principal=asked.principal,
        host=asked.host,
        operation=known(Operation, asked.operation),
        permission=known(Permission, asked.permission_type),
    )


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """The filter of a client; likewise."""
    return AclFilter(
        resource_type=known(ResourceType, asked.resource_type_filter),
        resource_name=asked.resource_name_filter,
        pattern_type=known(PatternType, asked.pattern_type_filter),
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=known(Operation, asked.operation),
        permission=known(Permission, asked.permission_type),
    )
