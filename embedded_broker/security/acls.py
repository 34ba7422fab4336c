"""ACLs as Kafka's clients state them, filters over them, and the store that keeps those of a cluster.

A binding says who (a principal, from a host) may or may not do what (an operation) with which resources (a
pattern). Semantics of the filters: Kafka's ``ResourcePatternFilter`` and ``AccessControlEntryFilter``. Kafka
keeps ACLs in its metadata log, this broker in ``splashdam-acls.json`` (docs/format/acls.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Protocol
from weakref import WeakSet

import attrs

from splashdam.embedded_broker.execution.turns import Steps, in_steps
from splashdam.model.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from splashdam.model.broker_errors import InvalidRequestError, KafkaStorageError
from splashdam.model.log_text import quoted
from splashdam.storage.files.disk import Files
from splashdam.wire.messages.create_acls import AclCreation
from splashdam.wire.messages.delete_acls import DeleteAclsFilter
from splashdam.wire.messages.describe_acls import DescribeAclsRequest

WILDCARD = "*"
WILDCARD_PRINCIPAL = "User:*"


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
    """A filter of bindings; None matches every string, ANY every code."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @property
    def is_unknown(self) -> bool:
        """Whether it names a code that this broker does not know."""
        return 0 in (self.resource_type, self.pattern_type, self.operation, self.permission)

    def matches(self, acl: Acl) -> bool:
        """Whether a binding matches."""
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
    """Return the member of an enumeration with this code, UNKNOWN for other codes."""
    return kind(code) if code in kind.__members__.values() else kind(0)


def check_acl(acl: Acl) -> None:
    """Check a binding that is to be created.

    Raises:
        InvalidRequestError: the resource name or host is empty, or a code or the principal is illegal.
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
    """Check the form of a principal: ``type:name``; Kafka allows either part to be empty.

    Raises:
        InvalidRequestError: it has no colon.
    """
    if ":" not in principal:
        raise InvalidRequestError(
            f"expected a string in format principalType:principalName but got {quoted(principal)}"
        )


def acl_of(asked: AclCreation) -> Acl:
    """Return the ACL of a request; unknown codes become UNKNOWN."""
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
    """Return the filter of a request; unknown codes become UNKNOWN."""
    return AclFilter(
        resource_type=known(ResourceType, asked.resource_type_filter),
        resource_name=asked.resource_name_filter,
        pattern_type=known(PatternType, asked.pattern_type_filter),
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=known(Operation, asked.operation),
        permission=known(Permission, asked.permission_type),
    )


FILE_NAME = "splashdam-acls.json"

_VERSION = 1
_Enums: tuple[tuple[str, Any], ...] = (
    ("resource_type", ResourceType),
    ("pattern_type", PatternType),
    ("operation", Operation),
    ("permission", Permission),
)


class TakesAcls(Protocol):
    """An authorizer that is given the ACLs (`StandardAuthorizer`)."""

    def take(self, acls: Iterable[Acl]) -> None:
        """Decides by these ACLs from now on."""
        ...


class AclStore:
    """The ACLs in a directory; only the process that has locked it may change them.

    Args:
        files: the file system.
        directory: of the file.

    Raises:
        KafkaStorageError: the file does not hold ACLs.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{FILE_NAME}"
        self._authorizers: WeakSet[TakesAcls] = WeakSet()  # brokers come and go
        data = files.read_bytes(self._path)
        self._lines: dict[Acl, str] = {} if not data else {acl: _line(acl) for acl in self._parsed(data)}

    def inform(self, authorizer: TakesAcls) -> None:
        """Pass the ACLs to an authorizer, now and whenever they change."""
        self._authorizers.add(authorizer)
        authorizer.take(self._lines)

    @property
    def all(self) -> tuple[Acl, ...]:
        """Every ACL, the oldest first."""
        return tuple(self._lines)

    def add(self, acls: Iterable[Acl]) -> Steps[None]:
        """Add ACLs with one write of the file; those that exist already are kept.

        Raises:
            KafkaStorageError: they cannot be written; nothing has changed.
        """
        lines = yield from in_steps(acls, lambda acl: (acl, _line(acl)))
        # Compared only now: another request may have changed the ACLs between the steps above.
        added = {acl: line for acl, line in lines if acl not in self._lines}
        if added:
            self._replace({**self._lines, **added})

    def delete(self, acls: Iterable[Acl]) -> None:
        """Delete ACLs with one write of the file; unknown ones are ignored.

        Raises:
            KafkaStorageError: as ``add``.
        """
        kept = dict(self._lines)
        for acl in acls:
            kept.pop(acl, None)
        if len(kept) < len(self._lines):
            self._replace(kept)

    def _replace(self, lines: dict[Acl, str]) -> None:
        self._files.make_directory(self._directory)
        # A change writes the whole file. Each entry was encoded when it was new: to encode tens of thousands
        # of them takes a second, to join their lines a millisecond.
        entries = ",\n".join(lines.values())
        text = f'{{"version": {_VERSION}, "acls": [\n{entries}\n]}}\n'
        self._files.write_atomic(self._path, text.encode(), private=True)
        self._lines = lines
        for authorizer in self._authorizers:
            authorizer.take(lines)

    def _parsed(self, data: bytes) -> list[Acl]:
        try:
            found = json.loads(data)
            if found["version"] != _VERSION:
                raise KafkaStorageError(f"{self._path} has version {found['version']}, which is unknown here")
            return [_acl(kept) for kept in found["acls"]]
        except (ValueError, KeyError, TypeError) as error:
            raise KafkaStorageError(
                f"{self._path} does not hold ACLs ({type(error).__name__}: {error}); move it away"
            ) from None


def _line(acl: Acl) -> str:
    return json.dumps(
        {
            "resource_type": acl.resource_type.name,
            "resource_name": acl.resource_name,
            "pattern_type": acl.pattern_type.name,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation.name,
            "permission": acl.permission.name,
        }
    )


def _acl(kept: dict[str, Any]) -> Acl:
    named = {name: kind[kept[name]] for name, kind in _Enums}
    return Acl(resource_name=kept["resource_name"], principal=kept["principal"], host=kept["host"], **named)
