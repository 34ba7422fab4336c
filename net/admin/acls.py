"""Access control lists: describe, create and delete them."""

from __future__ import annotations

from typing import NamedTuple

from splashdam.model.acls import Operation, PatternType, Permission, ResourceType
from splashdam.model.broker_errors import error_for
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from splashdam.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from splashdam.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

ANY_HOST = "*"


class AclBinding(NamedTuple):
    """Who may or may not do what with which resources, from where.

    Attributes:
        resource: type of the resources.
        name: their name or, with the pattern PREFIXED, its beginning; ``*`` stands for all.
        pattern: LITERAL or PREFIXED.
        principal: for example ``User:anna``.
        host: address of the client; ``*`` stands for all.
        operation: what it is about.
        permission: ALLOW or DENY.
    """

    resource: ResourceType
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclFilter(NamedTuple):
    """Which bindings are meant; each default matches all."""

    resource: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY


async def describe_acls(client: ClusterClient, wanted: AclFilter) -> list[AclBinding]:
    """Return the bindings that a filter matches, sorted.

    Raises:
        BrokerResponseError: the cluster has no authorizer, or this client may not ask.
        KafkaTimeoutError: the cluster did not answer.
    """

    def bindings(answer: DescribeAclsResponse) -> list[AclBinding]:
        if answer.error_code:
            raise error_for(answer.error_code, answer.error_message or "describing ACLs")
        return [
            AclBinding(
                ResourceType(found.resource_type),
                found.resource_name,
                PatternType(found.pattern_type),
                each.principal,
                each.host,
                Operation(each.operation),
                Permission(each.permission_type),
            )
            for found in answer.resources
            for each in found.acls
        ]

    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    return sorted(await client.any(request, bindings))


async def create_acls(client: ClusterClient, bindings: list[AclBinding]) -> None:
    """Add bindings; one that exists already stays.

    Raises:
        BrokerResponseError: the cluster has no authorizer, or refuses a binding; the others are added.
        KafkaTimeoutError: the cluster did not answer.
    """
    creations = [
        AclCreation(
            resource_type=each.resource,
            resource_name=each.name,
            resource_pattern_type=each.pattern,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        for each in bindings
    ]

    def check(answer: CreateAclsResponse) -> None:
        for each in answer.results:
            if each.error_code:
                raise error_for(each.error_code, each.error_message or "creating ACLs")

    await client.controller(CreateAclsRequest(creations=creations), check)


async def delete_acls(client: ClusterClient, wanted: AclFilter) -> list[AclBinding]:
    """Delete the bindings that a filter matches, and return them, sorted.

    Raises:
        BrokerResponseError: the cluster has no authorizer, or this client may not change them.
        KafkaTimeoutError: the cluster did not answer.
    """
    asked = DeleteAclsFilter(
        resource_type_filter=wanted.resource,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )

    def deleted(answer: DeleteAclsResponse) -> list[AclBinding]:
        found = []
        for result in answer.filter_results:
            outcomes = [(each.error_code, each.error_message) for each in result.matching_acls]
            for code, message in ((result.error_code, result.error_message), *outcomes):
                if code:
                    raise error_for(code, message or "deleting ACLs")
            found += [
                AclBinding(
                    ResourceType(each.resource_type),
                    each.resource_name,
                    PatternType(each.pattern_type),
                    each.principal,
                    each.host,
                    Operation(each.operation),
                    Permission(each.permission_type),
                )
                for each in result.matching_acls
            ]
        return sorted(found)

    return await client.controller(DeleteAclsRequest(filters=[asked]), deleted)
