"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): both sides prove the password without sending it.

As in Kafka's brokers and clients, the password is hashed as plain UTF-8, without SASLprep; ``saslprep.py``
says where that matters. As in Kafka there is no channel binding.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from typing import Any

from splashdam.model.errors import SaslError
from splashdam.net.sasl.mechanisms import Authenticated, Authority, Credentials, Refusal, ScramCredential

HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

MIN_ITERATIONS = 4096
"""Minimum iterations, which slow down guessing (RFC 7677; Kafka's minimum, too)."""
MAX_ITERATIONS = 1_000_000
"""Maximum iterations, so that a hostile broker cannot keep a client busy; Kafka's maximum is 16,384."""

_NO_BINDING = base64.b64encode(b"n,,").decode()
_SALT_BYTES = 16
_NOT_ESCAPED = re.compile("=(?!2C|3D)")
_DECOY_KEY = os.urandom(32)
"""Makes salts for unknown users, the same each time: a client cannot find out which users exist."""


async def open_client(name: str, credentials: Credentials) -> ScramClient:
    """See ``mechanisms.py``."""
    return ScramClient(name, credentials, nonce=secrets.token_urlsafe(24))


def open_server(name: str, authority: Authority) -> ScramServer:
    """See ``mechanisms.py``."""
    return ScramServer(name, authority, nonce=secrets.token_urlsafe(24))


def make_credential(mechanism: str, password: str, iterations: int = MIN_ITERATIONS) -> ScramCredential:
    """Make the stored credential of a password, with a new salt."""
    return credential_with(mechanism, password, os.urandom(_SALT_BYTES), iterations)


def credential_with(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Make the stored credential of a password with a given salt."""
    return credential_of_salted(mechanism, _salted(mechanism, password, salt, iterations), salt, iterations)


def credential_of_salted(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Make the stored credential of a salted password, as AlterUserScramCredentials sends it."""
    stored_key = _hash(mechanism, _hmac(mechanism, salted, b"Client Key"))
    return ScramCredential(salt, iterations, stored_key, _hmac(mechanism, salted, b"Server Key"))


def proves(credential: ScramCredential, mechanism: str, password: str) -> bool:
    """Return whether a credential was made of this password."""
    found = credential_with(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)


class ScramClient:
    """Proves that it knows the password, and verifies the broker's proof."""

    complaint = ""

    def __init__(self, mechanism: str, credentials: Credentials, *, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = credentials.password or ""
        self._nonce = nonce
        self._first = f"n={_escaped(credentials.username or '')},r={nonce}"
        self._server_signature = b""
        self._is_done = False

    def start(self) -> bytes:
        """Return the client-first-message."""
        return f"n,,{self._first}".encode()

    def step(self, challenge: bytes) -> bytes | None:
        """See ``ClientSide``. Returns the client-final-message, then verifies the server's signature."""
        if not self._server_signature:
            return self._final(challenge)
        fields = self._fields(challenge)
        if self._is_done or "v" not in fields:
            raise self._error(f"the broker sent {fields.get('e', 'nothing')!r} instead of its proof")
        if not hmac.compare_digest(self._decoded(fields["v"]), self._server_signature):
            raise self._error("the broker does not know the password, so it is not trusted")
        self._is_done = True
        return None

    def _final(self, challenge: bytes) -> bytes:
        fields = self._fields(challenge)
        nonce, salt, iterations = fields.get("r", ""), fields.get("s", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self._error("the broker's nonce does not continue ours")
        if not (iterations.isascii() and iterations.isdigit() and len(iterations) <= 10):
            raise self._error("the broker sent no number of iterations")
        # With fewer, a false broker could guess the password from the proof that it gets.
        if not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise self._error(
                f"the broker requests {int(iterations)} iterations;"
                f" {MIN_ITERATIONS} to {MAX_ITERATIONS} are accepted"
            )
        name, salt_bytes = self._mechanism, self._decoded(salt)
        if not salt_bytes:
            raise self._error("the broker sent no salt")
        salted = _salted(name, self._password, salt_bytes, int(iterations))
        client_key = _hmac(name, salted, b"Client Key")
        final = f"c={_NO_BINDING},r={nonce}"
        signed = f"{self._first},{challenge.decode()},{final}".encode()
        proof = _xor(client_key, _hmac(name, _hash(name, client_key), signed))
        self._server_signature = _hmac(name, _hmac(name, salted, b"Server Key"), signed)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def _fields(self, message: bytes) -> dict[str, str]:
        try:
            fields = _fields(message.decode())
        except UnicodeDecodeError:
            fields = None
        if fields is None:
            raise self._error("the broker's message is not valid SCRAM")
        return fields

    def _decoded(self, text: str) -> bytes:
        data = strict_base64(text)
        if data is None:
            raise self._error("the broker's message contains invalid base64")
        return data

    def _error(self, text: str) -> SaslError:
        return SaslError(f"{self._mechanism}: {text}")


class ScramServer:
    """Verifies the client's proof, and sends its own."""

    def __init__(self, mechanism: str, authority: Authority, *, nonce: str) -> None:
        self.outcome: Authenticated | None = None
        self._mechanism = mechanism
        self._authority = authority
        self._own_nonce = nonce
        self._nonce = ""
        self._user = ""
        self._exists = False
        self._credential: ScramCredential | None = None
        self._signed = ""

    def step(self, message: bytes) -> bytes:
        """See ``ServerSide``."""
        return self._first(message) if self._credential is None else self._final(message, self._credential)

    def _first(self, message: bytes) -> bytes:
        binding, _, rest = _text(message, "first").partition(",")
        acting_for, _, bare = rest.partition(",")
        fields = _fields(bare)
        if binding not in ("n", "y") or not fields or not fields.get("r") or "n" not in fields:
            raise Refusal("Invalid SCRAM client first message format")
        if fields.get("tokenauth", "").lower() == "true":
            raise Refusal("Delegation tokens are not supported")
        user = _unescaped(fields["n"])
        if user is None or acting_for not in ("", f"a={fields['n']}"):
            raise Refusal("Invalid SCRAM client first message format")
        found = self._authority.scram_credential(self._mechanism, user)
        self._user, self._exists = user, found is not None
        self._credential = found or self._decoy(user)
        self._nonce = fields["r"] + self._own_nonce
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._signed = f"{bare},{answer}"
        return answer.encode()

    def _final(self, message: bytes, credential: ScramCredential) -> bytes:
        text, _, proof_text = _text(message, "final").rpartition(",p=")
        fields, proof = _fields(text), strict_base64(proof_text)
        # "eSws" is ``y,,``: the client knows channel binding, and believes that
        # the server does not (RFC 5802, 6).
        if fields is None or proof is None or fields.get("c") not in (_NO_BINDING, "eSws"):
            raise Refusal("Invalid SCRAM client final message format")
        if fields.get("r") != self._nonce or self.outcome is not None:
            raise Refusal("Invalid client nonce in the final client message.")
        name, signed = self._mechanism, f"{self._signed},{text}".encode()
        signature = _hmac(name, credential.stored_key, signed)
        is_proven = len(proof) == len(signature) and hmac.compare_digest(
            _hash(name, _xor(proof, signature)), credential.stored_key
        )
        # Last: the proof of an unknown user takes as long as any, so time does not tell who exists.
        if not (is_proven and self._exists):
            raise Refusal(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism"
                f" {self._mechanism}"
            )
        self.outcome = Authenticated(self._user)
        return b"v=" + base64.b64encode(_hmac(name, credential.server_key, signed))

    def _decoy(self, user: str) -> ScramCredential:
        salt = hmac.digest(_DECOY_KEY, user.encode(), "sha256")[:_SALT_BYTES]
        nothing = bytes(hashlib.new(HASHES[self._mechanism]).digest_size)
        iterations = self._authority.usual_iterations(self._mechanism)
        return ScramCredential(salt, iterations, nothing, nothing)


def _text(message: bytes, which: str) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise Refusal(f"Invalid SCRAM client {which} message format") from None


def _salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def _hmac(mechanism: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, HASHES[mechanism])


def _hash(mechanism: str, data: bytes) -> bytes:
    hasher: Any = hashlib.new(HASHES[mechanism], data)
    digest: bytes = hasher.digest()
    return digest


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))


def strict_base64(text: str) -> bytes | None:
    """Decode `text`; None unless encoding gives exactly it again, which ``validate`` does not check."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return data if base64.b64encode(data).decode() == text else None


def _fields(text: str) -> dict[str, str] | None:
    """Parse ``a=…,b=…``; return None for anything else, and for a repeated name."""
    parts = [part.partition("=") for part in text.split(",")]
    fields = {name: value for name, mark, value in parts if mark}
    return fields if len(fields) == len(parts) else None


def _escaped(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def _unescaped(text: str) -> str | None:
    """Decode a user name; return None for an invalid escape."""
    if not text or _NOT_ESCAPED.search(text):
        return None
    return text.replace("=2C", ",").replace("=3D", "=")
