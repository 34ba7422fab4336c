"""Users, ACLs and quotas, which the brokers of a cluster share. Each is loaded on first use."""

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
        self._quota_watchers: list[WeakMethod[Callable[[Quotas], None]]] = []  # brokers come and go

    @cached_property
    def users(self) -> UserStore:
        """The users of listeners with SASL."""
        from splashdam.embedded_broker.security.users import UserStore

        return UserStore(self._files, self._directory)

    @cached_property
    def acls(self) -> AclStore:
        """The ACLs.

        Raises:
            KafkaStorageError: the file does not hold ACLs.
        """
        from splashdam.embedded_broker.security.acls import AclStore

        return AclStore(self._files, self._directory)

    @cached_property
    def quotas(self) -> QuotaStore:
        """The quotas of clients.

        Raises:
            KafkaStorageError: the file does not hold quotas.
        """
        from splashdam.embedded_broker.quotas.store import QuotaStore

        return QuotaStore(self._files, self._directory, self._tell)

    def authorizer(self, settings: SecuritySettings) -> StandardAuthorizer:
        """Return an authorizer that follows changes of the ACLs.

        Raises:
            KafkaStorageError: the file does not hold ACLs.
        """
        from splashdam.embedded_broker.security.authorizer import StandardAuthorizer

        everybody = settings.allow_everyone_if_no_acl_found
        authorizer = StandardAuthorizer(settings.super_user_names, allow_if_none=everybody)
        self.acls.inform(authorizer)
        return authorizer

    def watch_quotas(self, callback: Callable[[Quotas], None]) -> None:
        """Call this method with the quotas: now, if any were ever set, and whenever they change.

        Raises:
            KafkaStorageError: the file does not hold quotas.
        """
        self._quota_watchers.append(WeakMethod(callback))
        if self._files.read_bytes(f"{self._directory}/{_QUOTAS}"):
            callback(self.quotas.quotas)

    def _tell(self, quotas: Quotas) -> None:
        for watcher in list(self._quota_watchers):
            callback = watcher()
            if callback is None:
                self._quota_watchers.remove(watcher)
            else:
                callback(quotas)
