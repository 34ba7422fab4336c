"""Clients of other languages: the processes they run in, and where these come from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from splashdam.testing.contract import line_up, toolchains
from splashdam.testing.contract.line_up import ExternalClient, available
from splashdam.testing.contract.toolchains import MissingToolError, all_drivers, cache_directory
from splashdam.testing.contract.vocabulary import Read, Record, Refused

DRIVER = """
import json, sys, time
for line in sys.stdin:
    request = json.loads(line)
    op, args = request["op"], request["args"]
    if op == "close":
        break
    answers = {
        "open": {"ok": {"name": "python", "version": args.get("bootstrap"), "ops": ["produce", "fetch"]}},
        "produce": {"ok": [{"offset": 7}, {"error": "INVALID_RECORD", "text": "no key"}]},
        "fetch": {"ok": [{"partition": 0, "offset": 3, "key": None, "value": "YQ==", "timestamp_ms": 5,
            "headers": [["h", None], ["i", "Yg=="]]}]},
        "committed": {"ok": {"1": [5, None]}},
        "list_topics": {"error": "NOT_CONTROLLER", "text": "moved"},
    }
    if op == "list_groups":
        sys.exit(1)
    if op == "describe_cluster":
        time.sleep(60)
    print(json.dumps(answers[op]), flush=True)
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ExternalClient]:
    (tmp_path / "driver.py").write_text(DRIVER)
    with ExternalClient([sys.executable, "-S", "driver.py"], "host:1", tmp_path) as found:
        yield found


def test_operations_over_a_pipe(client: ExternalClient) -> None:
    """Arguments and answers are those of a client in this process."""
    assert (client.name, client.version, client.ops) == ("python", "host:1", {"produce", "fetch"})
    sent = client.produce("t", [Record(b"a"), Record(b"b")])
    assert [(each.offset, each.error, each.text) for each in sent] == [
        (7, None, ""),
        (-1, "INVALID_RECORD", "no key"),
    ]
    assert client.fetch("t", count=1) == [Read(0, 3, None, b"a", 5, (("h", None), ("i", b"b")))]
    assert client.committed("g", "t") == {1: (5, "")}
    with pytest.raises(Refused, match="NOT_CONTROLLER: moved"):
        client.call("list_topics")


def test_a_driver_that_ends(client: ExternalClient) -> None:
    """Is an error of the operation, and of every one after it."""
    for _ in range(2):
        with pytest.raises(Refused, match="DRIVER_ENDED"):
            client.call("list_groups")


def test_a_driver_that_hangs(client: ExternalClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is killed."""
    monkeypatch.setattr(line_up, "ANSWER_SECONDS", 0.05)
    with pytest.raises(Refused, match="DRIVER_ENDED"):
        client.call("describe_cluster")


def test_a_driver_that_does_not_start(tmp_path: Path) -> None:
    """Leaves no process."""
    with pytest.raises(Refused, match="DRIVER_ENDED"):
        ExternalClient([sys.executable, "-c", "pass"], "host:1", tmp_path)


def test_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the variable says, or in the user's cache."""
    monkeypatch.setenv("SPLASHDAM_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path / "contract"
    monkeypatch.delenv("SPLASHDAM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "splashdam" / "contract"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A language, a package, a folder of jars."""
    monkeypatch.setattr(toolchains.shutil, "which", lambda tool: None)
    monkeypatch.setitem(sys.modules, "splashdam.testing.contract.clients.aiokafka_client", None)
    missing: dict[str, str] = {}
    names = ("aiokafka", "kafkajs", "franz-go", "java 9.9.9")
    assert available(names, [tmp_path / "9.9.9"], missing.__setitem__) == {}
    assert list(missing) == list(names)
    assert missing["kafkajs"] == "node is not installed"
    assert missing["franz-go"] == "go is not installed"
    assert "is missing: `make kafka` fetches" in missing["java 9.9.9"]


def test_a_driver_is_built_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And again once its source has changed; a build that fails leaves nothing."""
    (sources := tmp_path / "sources").mkdir()
    (sources / "kafkajs_driver.js").write_text("first")
    commands: list[str] = []
    monkeypatch.setattr(toolchains, "DRIVERS", sources)
    monkeypatch.setattr(toolchains.shutil, "which", lambda tool: f"/bin/{tool}")
    monkeypatch.setattr(toolchains, "_run", lambda command, directory: commands.append(command[0]))
    make = all_drivers((), tmp_path / "cache")["kafkajs"]
    assert make() == make()
    assert commands == ["/bin/npm"]
    (sources / "kafkajs_driver.js").write_text("second")
    driver = make()
    assert commands == ["/bin/npm"] * 2
    assert (driver.directory / "kafkajs_driver.js").read_text() == "second"

    def fail(command: object, directory: object) -> None:
        raise MissingToolError("npm install … failed: no network")

    monkeypatch.setattr(toolchains, "_run", fail)
    (sources / "kafkajs_driver.js").write_text("third")
    with pytest.raises(MissingToolError):
        make()
    assert [each.name for each in (tmp_path / "cache").iterdir()] == [driver.directory.name]
