"""GSSAPI with Kerberos (RFC 4752): tickets authenticate both sides. Needs ``splashdam[gssapi]``.

As in Kafka there is no security layer; use TLS for confidentiality. Only the client's first step uses the
network, to reach the KDC, so ``open_client`` runs it in a thread; all other steps are pure computation.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

import trio

from splashdam.model.errors import SaslError
from splashdam.net.sasl.mechanisms import Authenticated, Authority, Credentials, Refusal

_log = logging.getLogger(__name__)

_NO_LAYER = b"\x01"
_NO_SIZE = b"\0\0\0"
"""Maximum size of wrapped messages: none follow."""


async def open_client(_name: str, credentials: Credentials) -> KerberosClient:
    """See ``mechanisms.py``; gets a ticket for the broker.

    Raises:
        SaslError: the KDC gives no ticket.
    """
    return await trio.to_thread.run_sync(_begun, credentials, abandon_on_cancel=True)


def open_server(_name: str, authority: Authority) -> KerberosServer:
    """See ``mechanisms.py``."""
    return KerberosServer(authority.keytab)


def _begun(credentials: Credentials) -> KerberosClient:
    gssapi: Any = import_module("gssapi")

    service, host = credentials.service, credentials.service_host or credentials.host
    if isinstance(service, str):
        is_principal = "/" in service or "@" in service
        kind = gssapi.NameType.kerberos_principal if is_principal else gssapi.NameType.hostbased_service
        service = gssapi.Name(service if is_principal else f"{service}@{host}", kind)
    try:
        context = gssapi.SecurityContext(
            name=service,
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
        )
        return KerberosClient(context, context.step() or b"")
    except gssapi.exceptions.GSSError as error:
        raise SaslError(f"GSSAPI: no ticket for {service}: {_reason(error)}") from error


class KerberosClient:
    """Sends the ticket, verifies the broker's proof, and selects no security layer.

    Args:
        context: security context of gssapi, after its first step.
        first: the token of that step.
    """

    complaint = ""

    def __init__(self, context: Any, first: bytes) -> None:
        self._context = context
        self._first = first
        self._is_done = False

    def start(self) -> bytes:
        """Return the first token, with the ticket."""
        return self._first

    def step(self, challenge: bytes) -> bytes | None:
        """See ``ClientSide``. Challenges are the broker's proof, its security layers, then nothing."""
        gssapi: Any = import_module("gssapi")

        if self._is_done:
            if challenge:
                raise SaslError("GSSAPI: the broker sent a challenge after the end of the exchange")
            return None
        try:
            if not self._context.complete:
                return self._context.step(challenge) or b""
            layers = self._context.unwrap(challenge).message
            if len(layers) != 4 or not layers[0] & _NO_LAYER[0]:
                raise SaslError("GSSAPI: the broker requires a security layer, which Kafka does not support")
            self._is_done = True
            answer: bytes = self._context.wrap(_NO_LAYER + _NO_SIZE, False).message
        except gssapi.exceptions.GSSError as error:
            raise SaslError(f"GSSAPI: the exchange failed: {_reason(error)}") from error
        return answer


class KerberosServer:
    """Verifies the ticket, and proves the broker's identity.

    Args:
        keytab: path of the broker's keytab; empty: Kerberos' default.
    """

    def __init__(self, keytab: str) -> None:
        self.outcome: Authenticated | None = None
        self._keytab = keytab
        self._context: Any = None
        self._has_offered = False

    def step(self, message: bytes) -> bytes:
        """See ``ServerSide``."""
        gssapi: Any = import_module("gssapi")

        try:
            if self._context is None:
                store = {"keytab": self._keytab} if self._keytab else None
                mechs = [gssapi.MechType.kerberos]  # and no other mechanism of this machine, such as SPNEGO
                own = gssapi.Credentials(usage="accept", store=store, mechs=mechs)
                self._context = gssapi.SecurityContext(creds=own, usage="accept")
            if not self._context.complete:
                # For a wrong ticket this is Kerberos' error token, and the next step raises.
                answer: bytes | None = self._context.step(message)
                return answer or self._offer()
            return self._end(message) if self._has_offered else self._offer()
        except gssapi.exceptions.GSSError as error:
            _log.warning("GSSAPI: authentication of a client failed: %s", _reason(error))
            raise Refusal("Authentication failed: the Kerberos ticket is not accepted") from None

    def _offer(self) -> bytes:
        """Offer security layers: only none."""
        if not self._context.complete:
            raise Refusal("Authentication failed: the Kerberos exchange is incomplete")
        self._has_offered = True
        wrapped: bytes = self._context.wrap(_NO_LAYER + _NO_SIZE, False).message
        return wrapped

    def _end(self, message: bytes) -> bytes:
        chosen = self._context.unwrap(message).message
        if chosen[:1] != _NO_LAYER or len(chosen) < 4:
            raise Refusal("Authentication failed: the client requests a security layer")
        principal, own = str(self._context.initiator_name), str(self._context.target_name)
        name, acting_for = _short_name(principal, own), chosen[4:].decode(errors="replace")
        if acting_for not in ("", name, principal):
            raise Refusal(
                "Authentication failed: Client requested an authorization id that is different from its"
                " principal"
            )
        self.outcome = Authenticated(name)
        return b""


def _short_name(principal: str, own: str) -> str:
    """Apply Kafka's default ``sasl.kerberos.principal.to.local.rules``: ``anna/host@REALM`` is ``anna``.

    Raises:
        Refusal: the client's realm is not the broker's.
    """
    name, _, realm = principal.rpartition("@")
    if realm != own.rpartition("@")[2]:
        raise Refusal(f"Authentication failed: no rule gives {principal} a short name")
    return name.partition("/")[0]


def _reason(error: Any) -> str:
    """Return Kerberos' own texts; those of the GSSAPI layer only if there are none."""
    texts = [*error.get_all_statuses(error.min_code, False)] if error.min_code else []
    return "; ".join(filter(None, texts)) or "; ".join(error.get_all_statuses(error.maj_code, True))
