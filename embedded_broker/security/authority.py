"""What the broker knows of those who want in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

import trio

from splashdam.embedded_broker.security.users import UserStore
from splashdam.net.clock import Clock
from splashdam.net.sasl.mechanisms import Authenticated, Refusal, ScramCredential
from splashdam.net.sasl.scram import make_credential, proves
from splashdam.net.sasl.unsecured_jws import check_unsecured
from splashdam.storage.files.disk import Files

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_MOST_HASHING = 2
"""Passwords that are hashed at a time: guessers leave threads to the disks, and a core to the broker."""

TokenValidator = Callable[[str], Authenticated]
"""For OAUTHBEARER: says whose token it is, or raises. Called in the broker's loop, so it must not wait."""


class BrokerAuthority:
    """Users of the data directory, and tokens.

    Args:
        files: of the broker; runs what takes long aside.
        users: for passwords.
        clock: for tokens.
        token_validator: for tokens; None: those without a signature are believed, as Kafka does by default.
        keytab: where the broker's own Kerberos keys are; empty: where Kerberos looks for them.
    """

    def __init__(
        self,
        files: Files,
        users: UserStore,
        clock: Clock,
        token_validator: TokenValidator | None,
        keytab: str = "",
    ) -> None:
        self.keytab = keytab
        self._files = files
        self._hashing = trio.CapacityLimiter(_MOST_HASHING)
        self._users = users
        self._clock = clock
        self._token_validator = token_validator

    def scram_credential(self, mechanism: str, username: str) -> ScramCredential | None:
        """See ``Authority``."""
        return self._users.credentials_of(username).get(mechanism)

    def usual_iterations(self, mechanism: str) -> int:
        """See ``Authority``."""
        return self._users.usual_iterations(mechanism)

    def check_password(self, username: str, password: str) -> bool:
        """See ``Authority``."""
        for mechanism, credential in self._users.credentials_of(username).items():
            return proves(credential, mechanism, password)
        mechanism, iterations = self._users.usual_password_cost()
        make_credential(mechanism, password, iterations)
        return False

    async def aside(self, work: Callable[[], _T]) -> _T:
        """Does work that hashes, while the broker's loop goes on."""
        async with self._hashing:
            return await self._files.run(work)

    def check_token(self, token: str, extensions: Mapping[str, str]) -> Authenticated:
        """See ``Authority``."""
        if self._token_validator is None:
            return check_unsecured(token, self._clock.wall_ms() / 1000)
        try:
            return self._token_validator(token)
        except Refusal:
            raise
        except Exception as error:
            # Only its kind: its text may hold the token.
            _log.warning("the token validator raised %s", type(error).__name__)
            raise Refusal("Authentication failed: the token is not valid") from None
