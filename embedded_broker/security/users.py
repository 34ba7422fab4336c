"""The users of a broker, in the file ``splashdam-users.json`` of its data directory (docs/format/users.md).

Passwords are not stored: each user has a SCRAM credential per mechanism, which also checks passwords that
PLAIN sends. The file is read with every authentication, so changes take effect at once, for new connections
and for re-authentications.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.errors import IllegalArgumentError
from splashdam.net.sasl.mechanisms import ScramCredential
from splashdam.net.sasl.saslprep import saslprep
from splashdam.net.sasl.scram import HASHES, MAX_ITERATIONS, MIN_ITERATIONS, make_credential
from splashdam.storage.files.disk import DiskFiles, Files

CODES: Mapping[str, int] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
MECHANISMS: Mapping[int, str] = {code: mechanism for mechanism, code in CODES.items()}

MOST_ITERATIONS = 16_384
"""Kafka's maximum for iterations that clients set."""


FILE_NAME = "splashdam-users.json"

_VERSION = 1
_Credentials = dict[str, ScramCredential]


class Cost(NamedTuple):
    """Cost of checking a password."""

    mechanism: str
    iterations: int


_CHEAPEST = Cost("SCRAM-SHA-256", MIN_ITERATIONS)


class _Seen(NamedTuple):
    """The parsed file, cached until its bytes change."""

    data: bytes
    users: dict[str, _Credentials]
    password_cost: Cost
    """The most common cost of checking a password that PLAIN sent."""
    iterations: dict[str, int]
    """The most common iterations by mechanism."""


class UserStore:
    """The users of a data directory; any process may change them.

    Args:
        files: the file system.
        directory: the data directory.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{FILE_NAME}"
        self._seen = _seen(b"", {})

    def add(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Sequence[str] = tuple(HASHES),
        iterations: int = MIN_ITERATIONS,
    ) -> None:
        """Add a user, or set a user's password for these mechanisms; other mechanisms keep theirs.

        Args:
            name: of the user.
            password: not stored, only credentials derived from it.
            mechanisms: SCRAM mechanisms; one is enough for PLAIN.
            iterations: hash iterations, 4096 to 1,000,000; more make guessing slower.

        Raises:
            IllegalArgumentError: an argument is empty, unknown or out of range; or SASLprep would change name
                or password, so that clients may send different bytes for it.
            KafkaStorageError: the file is damaged or cannot be written.
        """
        _check_text("user name", name)
        _check_text("password", password)
        unknown = [each for each in mechanisms if each not in HASHES]
        if unknown or not mechanisms:
            raise IllegalArgumentError(f"mechanisms must be some of {', '.join(HASHES)}")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise IllegalArgumentError(f"iterations must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
        made = {each: make_credential(each, password, iterations) for each in mechanisms}
        with self._changing():
            users = self._read()
            self._write({**users, name: {**users.get(name, {}), **made}})

    def change(self, changes: Mapping[str, Mapping[str, ScramCredential | None]]) -> None:
        """Set credentials by user and mechanism, and delete those that are None; all of them or none.

        Raises:
            IllegalArgumentError: SASLprep would change a new name.
            KafkaStorageError: as ``add``.
        """
        with self._changing():
            users = dict(self._read())
            for name, credentials in changes.items():
                if name not in users:
                    _check_text("user name", name)
                changed = {**users.pop(name, {}), **credentials}
                kept = {mechanism: each for mechanism, each in changed.items() if each is not None}
                if kept:
                    users[name] = kept
            self._write(users)

    def check_name(self, name: str) -> None:
        """Raise IllegalArgumentError for a new name that SASLprep would change."""
        if name not in self._read():
            _check_text("user name", name)

    def delete(self, name: str) -> bool:
        """Delete a user; return whether it existed."""
        with self._changing():
            users = dict(self._read())
            was_there = users.pop(name, None) is not None
            if was_there:
                self._write(users)
        return was_there

    def names(self) -> list[str]:
        """Return all user names, sorted."""
        return sorted(self._read())

    def mechanisms_of(self, name: str) -> list[str]:
        """Return the SCRAM mechanisms for which a user has a credential; none for an unknown user."""
        return sorted(self._read().get(name, {}))

    def credentials_of(self, name: str) -> dict[str, ScramCredential]:
        """Return a user's credentials by mechanism; empty for an unknown user."""
        return self._read().get(name, {})

    def usual_iterations(self, mechanism: str) -> int:
        """Return the most common iterations for a mechanism, used for unknown users, too."""
        return self._look().iterations.get(mechanism, MIN_ITERATIONS)

    def usual_password_cost(self) -> Cost:
        """Return the most common cost; spent on unknown users, too, so that timing does not reveal them."""
        return self._look().password_cost

    def _read(self) -> dict[str, _Credentials]:
        return self._look().users

    def _look(self) -> _Seen:
        data, seen = self._files.read_bytes(self._path) or b"", self._seen
        if data != seen.data:
            seen = self._seen = _seen(data, self._parsed(data))
        return seen

    def _parsed(self, data: bytes) -> dict[str, _Credentials]:
        try:
            found = json.loads(data)
            if found["version"] != _VERSION:
                raise KafkaStorageError(f"{self._path} has version {found['version']}, which is unknown here")
            return {
                str(name): {mechanism: _credential(kept) for mechanism, kept in credentials.items()}
                for name, credentials in found["users"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            kind = type(error).__name__  # the text may quote secrets of the file
            raise KafkaStorageError(f"{self._path} does not hold users ({kind}); move it away") from None

    def _write(self, users: dict[str, _Credentials]) -> None:
        content = {
            "version": _VERSION,
            "users": {
                name: {mechanism: _kept(credential) for mechanism, credential in credentials.items()}
                for name, credentials in sorted(users.items())
            },
        }
        self._files.make_directory(self._directory)
        self._files.write_atomic(self._path, json.dumps(content, indent=1).encode() + b"\n", private=True)

    def _changing(self) -> Any:
        """Lock the directory, so that concurrent changes do not overwrite each other."""
        if not isinstance(self._files, DiskFiles):
            return nullcontext()
        self._files.make_directory(self._directory)
        return _locked(self._directory)


@contextmanager
def _locked(directory: str) -> Iterator[None]:
    # The directory, because each change replaces the file: a lock on that would guard the old one.
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _seen(data: bytes, users: dict[str, _Credentials]) -> _Seen:
    all_costs = [
        [Cost(mechanism, credential.iterations) for mechanism, credential in each.items()]
        for each in users.values()
        if each
    ]
    usual = Counter(costs[0] for costs in all_costs).most_common(1)
    counted = Counter(cost for costs in all_costs for cost in costs).most_common()
    iterations = {cost.mechanism: cost.iterations for cost, _ in reversed(counted)}
    return _Seen(data, users, usual[0][0] if usual else _CHEAPEST, iterations)


def _check_text(what: str, text: str) -> None:
    if not text:
        raise IllegalArgumentError(f"the {what} is empty")
    try:
        prepared = saslprep(text)
    except ValueError as error:
        raise IllegalArgumentError(f"the {what} cannot be used: {error}") from None
    if prepared != text:
        raise IllegalArgumentError(
            f"the {what} cannot be used: some clients would send it in another form (SASLprep); use plain"
            " letters, digits and signs"
        )


def _kept(credential: ScramCredential) -> dict[str, Any]:
    return {
        "iterations": credential.iterations,
        "salt": base64.b64encode(credential.salt).decode(),
        "stored_key": base64.b64encode(credential.stored_key).decode(),
        "server_key": base64.b64encode(credential.server_key).decode(),
    }


def _credential(kept: dict[str, Any]) -> ScramCredential:
    salt, stored, server = (
        base64.b64decode(kept[name], validate=True) for name in ("salt", "stored_key", "server_key")
    )
    return ScramCredential(salt, int(kept["iterations"]), stored, server)
