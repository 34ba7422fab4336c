"""The users of a broker, in the file ``splashdam-users.json`` of its data directory (docs/format/users.md).

No password is kept: each user has a credential for each SCRAM mechanism, which also checks a password that
PLAIN sends. The file is read whenever somebody wants in, so a change counts at once, for new connections and
for those that have to prove anew who they are.
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
"""Kafka's own maximum for what its clients set."""


FILE_NAME = "splashdam-users.json"

_VERSION = 1
_Credentials = dict[str, ScramCredential]


class Cost(NamedTuple):
    """What it takes to check a password."""

    mechanism: str
    iterations: int


_CHEAPEST = Cost("SCRAM-SHA-256", MIN_ITERATIONS)


class _Seen(NamedTuple):
    """The file as it was read last."""

    data: bytes
    users: dict[str, _Credentials]
    password_cost: Cost
    """Of most users' passwords, as PLAIN checks them."""
    iterations: dict[str, int]
    """Of most users, by mechanism."""


class UserStore:
    """The users of a data directory; made anew, it sees the same ones. Any process may change them.

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
        """Adds a user, or gives one that exists a new password, for these mechanisms; others keep theirs.

        Args:
            name: of the user.
            password: only what proves it is kept.
            mechanisms: for which SCRAM mechanisms; one is enough for PLAIN.
            iterations: how slow guessing is made, 4096 to 1,000,000.

        Raises:
            IllegalArgumentError: an argument is empty, unknown, or out of range; or name or password is a
                text that clients may send in several forms.
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
        """Sets credentials by user and mechanism, and takes away those that are None; all of them or none.

        Raises:
            IllegalArgumentError: a new name is a text that clients may send in several forms.
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
        """Raises IllegalArgumentError for a new name that clients may send in several forms."""
        if name not in self._read():
            _check_text("user name", name)

    def delete(self, name: str) -> bool:
        """Removes a user; whether there was one."""
        with self._changing():
            users = dict(self._read())
            was_there = users.pop(name, None) is not None
            if was_there:
                self._write(users)
        return was_there

    def names(self) -> list[str]:
        """Who is there, sorted."""
        return sorted(self._read())

    def mechanisms_of(self, name: str) -> list[str]:
        """For which SCRAM mechanisms a user has a credential; none where there is no such user."""
        return sorted(self._read().get(name, {}))

    def credentials_of(self, name: str) -> dict[str, ScramCredential]:
        """By mechanism; empty where there is no such user."""
        return self._read().get(name, {})

    def usual_iterations(self, mechanism: str) -> int:
        """How often the passwords of most users are hashed for a mechanism."""
        return self._look().iterations.get(mechanism, MIN_ITERATIONS)

    def usual_password_cost(self) -> Cost:
        """What it takes to check the password of most users."""
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
            kind = type(error).__name__  # its text may quote the file
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
        """One process or thread at a time, so that no change overwrites another."""
        if not isinstance(self._files, DiskFiles):
            return nullcontext()
        self._files.make_directory(self._directory)
        return _locked(self._directory)


@contextmanager
def _locked(directory: str) -> Iterator[None]:
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
