"""CreateAcls (key 30), versions 1 to 3: adds ACLs."""

from __future__ import annotations

from splashdam.wire.fields import array, int8, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class AclCreation(Struct):
    """One ACL: principal, host, operation and permission on the resources that match a pattern."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Request["CreateAclsResponse"], key=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    """Error code 0: the ACL is in effect."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class CreateAclsResponse(Response, key=30, versions="1-3", flexible="2+", throttles="1+"):
    """Results in the order of the request's ACLs."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
