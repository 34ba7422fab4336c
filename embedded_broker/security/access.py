"""Who may come in, who may do what, and how much of it: what the brokers of a cluster share.

Nothing of it is loaded before it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakMethod

from splashdam.storage.files.disk import Files

if TYPE_CHECKING:
    from splashdam.embedded_broker.configs.security import SecuritySettings
    from splashdam.embedded_broker.quotas.entities import Quotas
    from splashdam.embedded_broker.quotas.store import QuotaStore
    from splashdam.embedded_broker.security.acls import AclStore
    from splashdam.embedded_broker.security.authorizer import StandardAuthorizer
    from splashdam.embedded_broker.security.users import UserStore

_QUOTAS = "splashdam-quotas.json"


class AccessControl:
    """Users, ACLs and quotas, in files of a directory.

    Args:
        files: the file system.
        directory: the data directory of a broker, or another that several brokers share.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._watching: list[WeakMethod[Callable[[Quotas], None]]] = []  # brokers come and go

    @cached_property
    def users(self) -> UserStore:
        """Who may come in by listeners that ask."""
        from splashdam.embedded_broker.security.users import UserStore

        return UserStore(self._files, self._directory)

    @cached_property
    def acls(self) -> AclStore:
        """Who may do what.

        Raises:
            KafkaStorageError: the file does not hold ACLs.
        """
        from splashdam.embedded_broker.security.acls import AclStore

        return AclStore(self._files, self._directory)

    @cached_property
    def quotas(self) -> QuotaStore:
        """How much clients may ask for.

        Raises:
            KafkaStorageError: the file does not hold quotas.
        """
        from splashdam.embedded_broker.quotas.store import QuotaStore

        return QuotaStore(self._files, self._directory, self._tell)

    def authorizer(self, settings: SecuritySettings) -> StandardAuthorizer:
        """One that decides by the ACLs, now and when they change.

        Raises:
            KafkaStorageError: the file does not hold ACLs.
        """
        from splashdam.embedded_broker.security.authorizer import StandardAuthorizer

        everybody = settings.allow_everyone_if_no_acl_found
        authorizer = StandardAuthorizer(settings.super_user_names, allow_if_none=everybody)
        self.acls.inform(authorizer)
        return authorizer

    def watch_quotas(self, told: Callable[[Quotas], None]) -> None:
        """Calls this method with the quotas, now if there ever were any, and whenever they change.

        Raises:
            KafkaStorageError: the file does not hold quotas.
        """
        self._watching.append(WeakMethod(told))
        if self._files.read_bytes(f"{self._directory}/{_QUOTAS}"):
            told(self.quotas.quotas)

    def _tell(self, quotas: Quotas) -> None:
        for watching in list(self._watching):
            told = watching()
            if told is None:
                self._watching.remove(watching)
            else:
                told(quotas)
