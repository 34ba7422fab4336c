"""The users in the data directory: what is kept, who may read it, what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from pathlib import Path

import pytest
from support.running.house_tree import ROOT

from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.embedded_broker.security.authentication import BrokerAuthority
from splashdam.embedded_broker.security.users import FILE_NAME, UserStore
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.errors import IllegalArgumentError
from splashdam.net.clock import SystemClock
from splashdam.net.sasl.scram import ScramServer, credential_with, proves
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.files.memory import MemoryFiles


@pytest.fixture
def users(tmp_path: Path) -> UserStore:
    """No users yet."""
    return UserStore(DiskFiles(), str(tmp_path / "data"))


def test_only_the_owner_reads_the_file_and_no_password_is_in_it(users: UserStore, tmp_path: Path) -> None:
    """0600, also where it was something else; salts and keys, and iterations."""
    users.add("anna", "hunter2", iterations=8192)
    path = tmp_path / "data" / FILE_NAME
    os.chmod(path, 0o644)
    users.add("ben", "hunter3", mechanisms=["SCRAM-SHA-512"])
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert "hunter" not in text
    kept = json.loads(text)["users"]
    assert kept["anna"]["SCRAM-SHA-256"]["iterations"] == 8192
    assert list(kept["ben"]) == ["SCRAM-SHA-512"]
    assert "hunter" not in repr(vars(users))


def test_the_example_of_the_page() -> None:
    """docs/format/users.md: the password of that user is RFC 7677's."""
    page = (ROOT / "docs/format/users.md").read_text()
    example = re.findall(r"```json\n(.*?)```", page, flags=re.DOTALL)[0]
    files = MemoryFiles()
    files.make_directory("/data")
    files.write_atomic(f"/data/{FILE_NAME}", example.encode())
    credential = UserStore(files, "/data").credentials_of("anna")["SCRAM-SHA-256"]
    made = credential_with("SCRAM-SHA-256", "pencil", credential.salt, 4096)
    assert made == credential


def test_add_change_delete(users: UserStore, tmp_path: Path) -> None:
    """All stores see a change of one."""
    again = UserStore(DiskFiles(), str(tmp_path / "data"))
    users.add("anna", "one")
    assert again.names() == ["anna"]
    again.add("anna", "two")
    credential = users.credentials_of("anna")["SCRAM-SHA-256"]
    assert proves(credential, "SCRAM-SHA-256", "two")
    assert not proves(credential, "SCRAM-SHA-256", "one")
    assert users.mechanisms_of("anna") == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert again.delete("anna")
    assert not users.delete("anna")
    assert users.names() == []


def test_changes_at_once_are_all_kept(tmp_path: Path) -> None:
    """A tool and a broker, or two tools."""
    threads = [
        threading.Thread(
            target=lambda n=number: UserStore(DiskFiles(), str(tmp_path)).add(f"user-{n}", "hunter2")
        )
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(UserStore(DiskFiles(), str(tmp_path)).names()) == 8


@pytest.mark.parametrize(
    ("name", "password", "options", "words"),
    [
        ("", "x", {}, "user name is empty"),
        ("anna", "", {}, "password is empty"),
        ("anna", "\u2168", {}, "some clients would send it in another form"),
        ("\u0007", "x", {}, "user name cannot be used: it has characters"),
        ("anna", "x", {"iterations": 4095}, "from 4096 to 1000000"),
        ("anna", "x", {"mechanisms": ["PLAIN"]}, "must be some of SCRAM-SHA-256, SCRAM-SHA-512"),
        ("anna", "x", {"mechanisms": []}, "must be some of"),
    ],
)
def test_what_is_refused(
    users: UserStore, name: str, password: str, options: dict[str, object], words: str
) -> None:
    """Nothing is written then."""
    with pytest.raises(IllegalArgumentError, match=words):
        users.add(name, password, **options)  # type: ignore[arg-type]  # wrong ones are the point
    assert users.names() == []


@pytest.mark.parametrize(
    "content", [b"x", b"[]", b'{"version": 2, "users": {}}', b'{"version": 1, "users": {"a": {"b": {}}}}']
)
def test_a_damaged_file_is_told(content: bytes) -> None:
    """No user can log in."""
    files = MemoryFiles()
    files.make_directory("/data")
    files.write_atomic(f"/data/{FILE_NAME}", content)
    with pytest.raises(KafkaStorageError, match=r"splashdam-users\.json"):
        UserStore(files, "/data").names()


def test_any_scram_credential_checks_a_password(users: UserStore) -> None:
    """PLAIN needs nothing of its own."""
    users.add("anna", "hunter2", mechanisms=["SCRAM-SHA-512"])
    authority = BrokerAuthority(DiskFiles(), users, SystemClock(), None)
    assert authority.check_password("anna", "hunter2")
    assert not authority.check_password("anna", "hunter3")
    assert not authority.check_password("nobody", "hunter2")


def test_a_stranger_costs_as_much_as_most_users(users: UserStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the time that a refusal takes would tell who exists."""
    hashed: list[tuple[str, int]] = []

    def noted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        hashed.append((name, iterations))
        return pbkdf2(name, password, salt, iterations)

    pbkdf2 = hashlib.pbkdf2_hmac
    users.add("anna", "hunter2", mechanisms=["SCRAM-SHA-512"], iterations=8192)
    users.add("ben", "hunter2", mechanisms=["SCRAM-SHA-512"], iterations=8192)
    users.add("carl", "hunter2")
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", noted)
    authority = BrokerAuthority(DiskFiles(), users, SystemClock(), None)
    for name in ("anna", "nobody"):
        assert not authority.check_password(name, "hunter3")
    assert hashed == [("sha512", 8192)] * 2


def test_a_stranger_is_asked_for_as_many_iterations_as_most_users(users: UserStore) -> None:
    """SCRAM tells every client the iterations before any proof; without users, the minimum."""
    authority = BrokerAuthority(DiskFiles(), users, SystemClock(), None)

    def asked(name: str) -> bytes:
        server = ScramServer("SCRAM-SHA-256", authority, nonce="server")
        return server.step(f"n,,n={name},r=client".encode()).rpartition(b",")[2]

    assert asked("nobody") == b"i=4096"
    for name in ("anna", "ben"):
        users.add(name, "hunter2", iterations=8192)
    users.add("carl", "hunter2")
    assert asked("anna") == asked("nobody") == b"i=8192"


def test_a_new_file_is_its_owners_from_the_first_moment(users: UserStore, tmp_path: Path) -> None:
    """A process that opened it before its mode changed reads on; so does one with a leftover of a crash."""
    (tmp_path / "data").mkdir()
    left = tmp_path / "data" / f"{FILE_NAME}.tmp"
    left.write_bytes(b"")
    with left.open("rb") as seen_by_others:
        users.add("anna", "hunter2")
        assert seen_by_others.read() == b""
    assert (tmp_path / "data" / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_users_of_an_embedded_broker(tmp_path: Path) -> None:
    """Before it runs, and while it does."""
    broker = EmbeddedBroker(tmp_path)
    broker.users.add("anna", "hunter2")
    with broker:
        assert broker.users.names() == ["anna"]
