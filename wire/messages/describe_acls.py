"""DescribeAcls (key 29), versions 1 to 3: the ACLs that match a filter."""

from __future__ import annotations

from splashdam.wire.fields import array, int8, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class DescribeAclsRequest(Request["DescribeAclsResponse"], key=29, versions="1-3", flexible="2+"):
    """The filter; null matches everything."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Struct):
    """Principal, host, operation and permission of one ACL."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Response, key=29, versions="1-3", flexible="2+", throttles="1+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
