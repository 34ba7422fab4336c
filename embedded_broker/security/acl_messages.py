"""ACLs and filters out of requests."""

from __future__ import annotations

from splashdam.embedded_broker.security.acls import Acl, AclFilter, PatternType, Permission, known
from splashdam.embedded_broker.security.permissions import Operation, ResourceType
from splashdam.wire.messages.create_acls import AclCreation
from splashdam.wire.messages.delete_acls import DeleteAclsFilter
from splashdam.wire.messages.describe_acls import DescribeAclsRequest


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
