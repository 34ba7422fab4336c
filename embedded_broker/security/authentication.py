"""The SASL session of one connection, and the check of passwords and tokens. No I/O.

As in Kafka's ``SaslServerAuthenticator``: before a client has authenticated it may ask for versions, once,
and choose a mechanism. A session that ends can be renewed before (KIP-368), with the same mechanism and as
the same user.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import auto
from functools import partial
from typing import Any, TypeVar

import trio

from splashdam.embedded_broker.execution.answers import CloseConnectionError
from splashdam.embedded_broker.security.users import UserStore
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.lifecycle import Stage, next_state
from splashdam.model.log_text import quoted
from splashdam.model.options import MAX_LONG
from splashdam.net.clock import Clock
from splashdam.net.sasl.mechanisms import (
    MECHANISMS,
    Authenticated,
    Authority,
    Refusal,
    ScramCredential,
    ServerSide,
)
from splashdam.net.sasl.scram import make_credential, proves
from splashdam.net.sasl.unsecured_jws import check_unsecured
from splashdam.storage.files.disk import Files
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


class SessionState(Stage):
    """State of a SASL session."""

    UNAUTHENTICATED = auto()
    INFORMED = auto()
    AUTHENTICATING = auto()
    AUTHENTICATED = auto()
    REAUTHENTICATING = auto()
    MISCHOSEN = auto()
    FAILED = auto()


class SessionEvent(Stage):
    """Event in a SASL session."""

    INFORM = auto()
    CHOOSE = auto()
    CHOOSE_OTHER = auto()
    SUCCEED = auto()
    FAIL = auto()


TRANSITIONS: dict[tuple[SessionState, SessionEvent], SessionState] = {
    (SessionState.UNAUTHENTICATED, SessionEvent.INFORM): SessionState.INFORMED,
    (SessionState.UNAUTHENTICATED, SessionEvent.CHOOSE): SessionState.AUTHENTICATING,
    (SessionState.UNAUTHENTICATED, SessionEvent.FAIL): SessionState.FAILED,
    (SessionState.INFORMED, SessionEvent.CHOOSE): SessionState.AUTHENTICATING,
    (SessionState.INFORMED, SessionEvent.FAIL): SessionState.FAILED,
    (SessionState.AUTHENTICATING, SessionEvent.SUCCEED): SessionState.AUTHENTICATED,
    (SessionState.AUTHENTICATING, SessionEvent.FAIL): SessionState.FAILED,
    (SessionState.AUTHENTICATED, SessionEvent.CHOOSE): SessionState.REAUTHENTICATING,
    (SessionState.AUTHENTICATED, SessionEvent.CHOOSE_OTHER): SessionState.MISCHOSEN,
    (SessionState.AUTHENTICATED, SessionEvent.FAIL): SessionState.FAILED,
    (SessionState.REAUTHENTICATING, SessionEvent.SUCCEED): SessionState.AUTHENTICATED,
    (SessionState.REAUTHENTICATING, SessionEvent.FAIL): SessionState.FAILED,
    (SessionState.MISCHOSEN, SessionEvent.FAIL): SessionState.FAILED,
}

_HANDSHAKE, _AUTHENTICATE = SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY
_LEGAL: dict[SessionState, frozenset[int]] = {
    SessionState.UNAUTHENTICATED: frozenset({ApiVersionsRequest.API_KEY, _HANDSHAKE}),
    SessionState.INFORMED: frozenset({_HANDSHAKE}),
    SessionState.AUTHENTICATING: frozenset({_AUTHENTICATE, _HANDSHAKE}),
    SessionState.REAUTHENTICATING: frozenset({_AUTHENTICATE, _HANDSHAKE}),
}
"""Legal requests by state; those that are legal but out of order get ILLEGAL_SASL_STATE (34).

In the state AUTHENTICATED every request is legal, in MISCHOSEN none.
"""


async def _at_once(work: Callable[[], Any]) -> Any:
    return work()


class SaslSession:
    """The SASL session of one connection.

    Args:
        authority: checks credentials.
        mechanisms: that are offered.
        max_reauth_ms: ``connections.max.reauth.ms``, 0 for no limit.
        clock: for session lifetimes.
        beside: runs work that hashes, see ``takes_long``.

    Attributes:
        user: the authenticated user; None before authentication.
        failure: why authentication has failed, in which case the connection is closed; "" otherwise.
        wants_tokens: bare tokens follow, without a header, as after SaslHandshake v0.
    """

    def __init__(
        self,
        authority: Authority,
        mechanisms: Sequence[str],
        max_reauth_ms: float,
        clock: Clock,
        beside: Callable[[Callable[[], Any]], Awaitable[Any]] = _at_once,
    ) -> None:
        self.user: str | None = None
        self.failure = ""
        self.wants_tokens = False
        self._authority = authority
        self._mechanisms = list(mechanisms)
        self._max_reauth_ms = max_reauth_ms
        self._clock = clock
        self._beside = beside
        self._state = SessionState.UNAUTHENTICATED
        self._mechanism = ""
        self._side: ServerSide | None = None
        self._ends_at_ms = math.inf

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has authenticated."""
        return self.user is not None

    @property
    def is_authenticating(self) -> bool:
        """Whether an authentication or re-authentication is under way."""
        return self._state in (SessionState.AUTHENTICATING, SessionState.REAUTHENTICATING)

    @property
    def takes_long(self) -> bool:
        """Whether the next message is checked by hashing, which must not block the loop."""
        return self._side is not None and MECHANISMS[self._mechanism].hashes

    def admit(self, api_key: int) -> None:
        """Check that a request is legal in this state.

        Raises:
            CloseConnectionError: it is not, or the session has expired.
        """
        if self._state is SessionState.AUTHENTICATED:
            if self._clock.now_ms() >= self._ends_at_ms and api_key != _HANDSHAKE:
                raise CloseConnectionError(
                    f"the session of {quoted(self.user)} has expired, and was not renewed"
                )
        elif self._state is SessionState.MISCHOSEN:
            raise CloseConnectionError(
                f"the session of {quoted(self.user)} began with {self._mechanism}, and is not renewed with"
                f" another mechanism"
            )
        elif api_key not in _LEGAL.get(self._state, ()):
            raise CloseConnectionError(f"API key {api_key} is not answered before authentication has ended")

    def inform(self) -> None:
        """Note that the client has learnt the broker's versions."""
        if self._state is SessionState.UNAUTHENTICATED:
            self._advance(SessionEvent.INFORM)

    def choose(self, mechanism: str, version: int) -> SaslHandshakeResponse:
        """Handle SaslHandshake."""
        if self._state is SessionState.AUTHENTICATED and math.isinf(self._ends_at_ms):
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)  # nothing is to be renewed
        if self.is_authenticating:
            self._fail("SaslHandshake came in the middle of an exchange")
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        if mechanism not in self._mechanisms:
            self._fail(f"SASL mechanism {quoted(mechanism)} is not offered")
            return SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=self._mechanisms
            )
        if self.user is not None and mechanism != self._mechanism:
            # As in Kafka: the handshake succeeds, and whatever comes next ends the connection.
            self._advance(SessionEvent.CHOOSE_OTHER)
            return SaslHandshakeResponse(mechanisms=self._mechanisms)
        self._advance(SessionEvent.CHOOSE)
        self._mechanism = mechanism
        self._side = MECHANISMS[mechanism].open_server(self._authority)
        self.wants_tokens = version == 0
        return SaslHandshakeResponse(mechanisms=self._mechanisms)

    def authenticate(self, message: bytes) -> SaslAuthenticateResponse:
        """Handle SaslAuthenticate."""
        side = self._side
        if side is None:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received after successful authentication",
            )
        try:
            answer = side.step(message)
            if side.outcome is not None:
                self._known(side.outcome)
        except Refusal as refusal:
            self._fail(str(refusal))
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(refusal)
            )
        if side.outcome is None:
            return SaslAuthenticateResponse(auth_bytes=answer)
        left_ms = self._ends_at_ms - self._clock.now_ms()
        lifetime_ms = 0 if math.isinf(left_ms) else max(1, min(int(left_ms), MAX_LONG))
        return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)

    async def authenticate_beside(self, message: bytes) -> SaslAuthenticateResponse:
        """As ``authenticate``, in a thread, if it ``takes_long``; the session must not be used meanwhile."""
        answer: SaslAuthenticateResponse = await self._beside(partial(self.authenticate, message))
        return answer

    async def authenticate_bare(self, message: bytes) -> bytes | None:
        """As ``authenticate``, for a bare token (SaslHandshake 0); None to close the connection."""
        answer = await self.authenticate_beside(message) if self.takes_long else self.authenticate(message)
        return None if answer.error_code else bytes(answer.auth_bytes)

    def _known(self, outcome: Authenticated) -> None:
        if self.user not in (None, outcome.name):
            raise Refusal(
                f"Authentication failed: Cannot change principals during re-authentication from"
                f" {quoted(f'User:{self.user}')}: {quoted(f'User:{outcome.name}')}"
            )
        self._advance(SessionEvent.SUCCEED)
        self.user = outcome.name
        self._side = None
        self.wants_tokens = False
        lifetime_ms = self._max_reauth_ms or math.inf
        if outcome.expires_at_ms is not None:
            lifetime_ms = min(lifetime_ms, max(0.0, outcome.expires_at_ms - self._clock.wall_ms()))
        self._ends_at_ms = self._clock.now_ms() + lifetime_ms

    def _fail(self, why: str) -> None:
        self._advance(SessionEvent.FAIL)
        self._side = None
        self.failure = why

    def _advance(self, event: SessionEvent) -> None:
        self._state = next_state(TRANSITIONS, self._state, event, "a SASL session")


_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_MOST_HASHING = 2
"""Passwords hashed at a time, so that guessing clients leave threads for disks and a core for the broker."""

TokenValidator = Callable[[str], Authenticated]
"""For OAUTHBEARER: returns whose token it is, or raises. Called in the broker's loop: it must not block."""


class BrokerAuthority:
    """Checks passwords of the data directory's users, and tokens.

    Args:
        files: of the broker; runs hashing in threads.
        users: for passwords.
        clock: for the expiry of tokens.
        token_validator: for tokens; None accepts unsigned tokens, which is Kafka's default.
        keytab: path of the broker's Kerberos keys; empty for Kerberos' default.
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
        return self._users.credentials_of(username).get(mechanism)

    def usual_iterations(self, mechanism: str) -> int:
        return self._users.usual_iterations(mechanism)

    def check_password(self, username: str, password: str) -> bool:
        for mechanism, credential in self._users.credentials_of(username).items():
            return proves(credential, mechanism, password)
        mechanism, iterations = self._users.usual_password_cost()
        # Hashed in vain: a refusal must take as long as that of a user who exists.
        make_credential(mechanism, password, iterations)
        return False

    async def beside(self, work: Callable[[], _T]) -> _T:
        """Run work that hashes in a thread."""
        async with self._hashing:
            return await self._files.run(work)

    def check_token(self, token: str, extensions: Mapping[str, str]) -> Authenticated:
        if self._token_validator is None:
            return check_unsecured(token, self._clock.wall_ms() / 1000)
        try:
            return self._token_validator(token)
        except Refusal:
            raise
        except Exception as error:
            # Only the type is logged: the text may contain the token.
            _log.warning("the token validator raised %s", type(error).__name__)
            raise Refusal("Authentication failed: the token is not valid") from None
