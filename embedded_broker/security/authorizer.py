"""The authorizer: Kafka's ``StandardAuthorizer`` on an index of the ACLs. Pure.

A super user may do everything. A matching DENY overrides every ALLOW. For a resource without any ACL
``allow.everyone.if.no.acl.found`` decides; if it has ACLs and none matches, the operation is denied. ALLOW of
READ, WRITE, DELETE or ALTER implies DESCRIBE, and of ALTER_CONFIGS implies DESCRIBE_CONFIGS; a DENY implies
nothing.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator

from splashdam.embedded_broker.execution.answers import Requester
from splashdam.embedded_broker.security.acls import WILDCARD, WILDCARD_PRINCIPAL, Acl
from splashdam.model.acls import Operation, PatternType, Permission, ResourceType

_IMPLYING = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
"""Operations whose ALLOW implies that of the key."""


class _OfType:
    """Index of the ACLs of one resource type."""

    def __init__(self) -> None:
        self._literal: dict[str, list[Acl]] = {}
        self._prefixed: dict[str, list[Acl]] = {}
        self._prefix_lengths: list[int] = []

    def add(self, acl: Acl) -> None:
        by_name = self._literal if acl.pattern_type is PatternType.LITERAL else self._prefixed
        by_name.setdefault(acl.resource_name, []).append(acl)
        if by_name is self._prefixed and len(acl.resource_name) not in self._prefix_lengths:
            insort(self._prefix_lengths, len(acl.resource_name))

    def about(self, name: str) -> Iterator[Acl]:
        """Yield the ACLs that apply to the resource of this name."""
        yield from self._literal.get(name, ())
        if name != WILDCARD:
            yield from self._literal.get(WILDCARD, ())
        for length in self._prefix_lengths:
            if length > len(name):
                break
            yield from self._prefixed.get(name[:length], ())

    def __iter__(self) -> Iterator[Acl]:
        for by_name in (self._literal, self._prefixed):
            for acls in by_name.values():
                yield from acls


class StandardAuthorizer:
    """Decides by the ACLs that it was given last.

    Args:
        super_users: principals that may do everything.
        allow_if_none: the decision for a resource without any ACL.
    """

    def __init__(self, super_users: Iterable[str] = (), *, allow_if_none: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_none = allow_if_none
        self._by_type: dict[ResourceType, _OfType] = {}

    def take(self, acls: Iterable[Acl]) -> None:
        by_type: dict[ResourceType, _OfType] = {}
        for acl in acls:
            by_type.setdefault(acl.resource_type, _OfType()).add(acl)
        self._by_type = by_type

    def allows(self, requester: Requester, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the requester may perform an operation on a resource."""
        if requester.principal in self._super_users:
            return True
        found = self._by_type.get(kind)
        is_allowed = has_acls = False
        for acl in found.about(name) if found is not None else ():
            has_acls = True
            if _applies(acl, requester, operation):
                if acl.permission is Permission.DENY:
                    return False
                is_allowed = True
        return is_allowed if has_acls else self._allow_if_none

    def allows_some(self, requester: Requester, operation: Operation, kind: ResourceType) -> bool:
        """Whether the requester may perform an operation on at least one possible resource of a type."""
        if self.allows(requester, operation, kind, "hardcode"):
            return True
        allowed: dict[PatternType, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        denied: dict[PatternType, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        for acl in self._by_type.get(kind, ()):
            if _is_of(acl, requester) and acl.operation in (operation, Operation.ALL):
                to = denied if acl.permission is Permission.DENY else allowed
                to[acl.pattern_type].add(acl.resource_name)
        literal, prefixed = denied[PatternType.LITERAL], denied[PatternType.PREFIXED]
        if WILDCARD in literal:
            return False
        candidates = (allowed[PatternType.LITERAL] - literal) | allowed[PatternType.PREFIXED]
        if WILDCARD in allowed[PatternType.LITERAL]:
            return True
        return any(not any(name.startswith(prefix) for prefix in prefixed) for name in candidates)


def _is_of(acl: Acl, requester: Requester) -> bool:
    return acl.principal in (requester.principal, WILDCARD_PRINCIPAL) and acl.host in (
        WILDCARD,
        requester.host,
    )


def _applies(acl: Acl, requester: Requester, operation: Operation) -> bool:
    if not _is_of(acl, requester):
        return False
    if acl.operation in (Operation.ALL, operation):
        return True
    return acl.permission is Permission.ALLOW and acl.operation in _IMPLYING.get(operation, ())
