"""The ACLs of a cluster, in the file ``splashdam-acls.json`` of its directory (docs/format/acls.md).

Kafka keeps them in its metadata log. The brokers of one cluster share one store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakSet

from splashdam.embedded_broker.permissions import Operation, ResourceType
from splashdam.embedded_broker.security.acls import Acl, AclFilter, PatternType, Permission
from splashdam.embedded_broker.security.authorizer import StandardAuthorizer
from splashdam.embedded_broker.storage.files import Files
from splashdam.model.broker_errors import KafkaStorageError

FILE_NAME = "splashdam-acls.json"

_VERSION = 1
_Enums: tuple[tuple[str, Any], ...] = (
    ("resource_type", ResourceType),
    ("pattern_type", PatternType),
    ("operation", Operation),
    ("permission", Permission),
)


class AclStore:
    """The ACLs in a directory; only the process whose it is may change them.

    Args:
        files: the file system.
        directory: where the file is.

    Raises:
        KafkaStorageError: the file does not hold ACLs.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{FILE_NAME}"
        self._authorizers: WeakSet[StandardAuthorizer] = WeakSet()  # brokers come and go
        data = files.read_bytes(self._path)
        self._acls: frozenset[Acl] = frozenset() if not data else self._parsed(data)

    def inform(self, authorizer: StandardAuthorizer) -> None:
        """Lets an authorizer decide by these ACLs, now and whenever they change."""
        self._authorizers.add(authorizer)
        authorizer.take(self._acls)

    def matching(self, wanted: AclFilter) -> list[Acl]:
        """Those that match a filter, sorted."""
        return sorted(acl for acl in self._acls if wanted.matches(acl))

    def add(self, acls: Iterable[Acl]) -> None:
        """Adds ACLs; what is there already stays.

        Raises:
            KafkaStorageError: they cannot be written; nothing has changed.
        """
        self._replace(self._acls | frozenset(acls))

    def delete(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Deletes what matches any filter; what each of them matched.

        Raises:
            KafkaStorageError: as ``add``.
        """
        deleted = [self.matching(each) for each in filters]
        self._replace(self._acls.difference(*deleted))
        return deleted

    def _replace(self, acls: frozenset[Acl]) -> None:
        if acls == self._acls:
            return
        content = {"version": _VERSION, "acls": [_kept(acl) for acl in sorted(acls)]}
        self._files.make_directory(self._directory)
        self._files.write_atomic(self._path, json.dumps(content, indent=1).encode() + b"\n", private=True)
        self._acls = acls
        for authorizer in self._authorizers:
            authorizer.take(acls)

    def _parsed(self, data: bytes) -> frozenset[Acl]:
        try:
            found = json.loads(data)
            if found["version"] != _VERSION:
                raise KafkaStorageError(f"{self._path} has version {found['version']}, which is unknown here")
            return frozenset(_acl(kept) for kept in found["acls"])
        except (ValueError, KeyError, TypeError) as error:
            raise KafkaStorageError(
                f"{self._path} does not hold ACLs ({type(error).__name__}: {error}); move it away"
            ) from None


def _kept(acl: Acl) -> dict[str, str]:
    return {
        "resource_type": acl.resource_type.name,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


def _acl(kept: dict[str, Any]) -> Acl:
    named = {name: kind[kept[name]] for name, kind in _Enums}
    return Acl(resource_name=kept["resource_name"], principal=kept["principal"], host=kept["host"], **named)
