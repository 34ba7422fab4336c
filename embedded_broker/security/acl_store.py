"""The ACLs of a cluster, in the file ``splashdam-acls.json`` of its directory (docs/format/acls.md).

Kafka keeps them in its metadata log. The brokers of one cluster share one store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

from splashdam.embedded_broker.answering.turns import Steps, in_steps
from splashdam.embedded_broker.configs.listed_json import listed
from splashdam.embedded_broker.security.acls import Acl, PatternType, Permission
from splashdam.embedded_broker.security.authorizer import StandardAuthorizer
from splashdam.embedded_broker.security.permissions import Operation, ResourceType
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.storage.files.disk import Files

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
        self._lines: dict[Acl, str] = {} if not data else {acl: _line(acl) for acl in self._parsed(data)}

    def inform(self, authorizer: StandardAuthorizer) -> None:
        """Lets an authorizer decide by these ACLs, now and whenever they change."""
        self._authorizers.add(authorizer)
        authorizer.take(self._lines)

    @property
    def all(self) -> tuple[Acl, ...]:
        """Every ACL, the oldest first."""
        return tuple(self._lines)

    def add(self, acls: Iterable[Acl]) -> Steps[None]:
        """Adds ACLs with one write of the file; what is there already stays.

        Raises:
            KafkaStorageError: they cannot be written; nothing has changed.
        """
        lines = yield from in_steps(acls, lambda acl: (acl, _line(acl)))
        added = {acl: line for acl, line in lines if acl not in self._lines}
        if added:
            self._replace({**self._lines, **added})

    def delete(self, acls: Iterable[Acl]) -> None:
        """Deletes those that are there, with one write of the file.

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
        self._files.write_atomic(self._path, listed(_VERSION, "acls", lines.values()), private=True)
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
