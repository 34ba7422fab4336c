"""Clients in Go, Java and JavaScript: fetched and built once, and not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.running.cli_processes import run

from lab.drivers import toolchains
from lab.drivers.toolchains import all_drivers, cache_directory
from splashdam.testing.contract import available_clients
from splashdam.testing.contract.available_clients import MissingToolError, available, checkout_drivers


def test_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the variable says, or in the user's cache."""
    monkeypatch.setenv("SPLASHDAM_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path / "contract"
    monkeypatch.delenv("SPLASHDAM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "splashdam" / "contract"


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A language, a package, a folder of jars."""
    monkeypatch.setattr(toolchains.shutil, "which", lambda tool: None)
    monkeypatch.setitem(sys.modules, "splashdam.testing.contract.clients.aiokafka_client", None)
    missing: dict[str, str] = {}
    names = ("aiokafka", "kafkajs", "franz-go", "java 9.9.9")
    assert available(names, all_drivers([tmp_path / "9.9.9"]), missing.__setitem__) == {}
    assert list(missing) == list(names)
    assert missing["kafkajs"] == "node is not installed"
    assert missing["franz-go"] == "go is not installed"
    assert "is missing: `make kafka` fetches" in missing["java 9.9.9"]


def test_a_driver_is_built_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is built again once its source has changed; a failed build leaves nothing."""
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


def test_a_checkout_has_them() -> None:
    """They are found beside the package, which does not import them."""
    assert list(checkout_drivers([Path("4.4.0")])) == ["kafkajs", "franz-go", "java 4.4.0"]


@pytest.mark.parametrize("wanted", [("--all-clients",), ("--client", "kafkajs"), ("--client", "java 4.4.0")])
def test_an_installation_says_that_it_has_none(
    wanted: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One sentence with the remedy, and nothing is asked of a cluster."""
    monkeypatch.setattr(available_clients, "CHECKOUT", tmp_path)
    assert checkout_drivers([]) == {}
    done = run("contract", "-b", "127.0.0.1:1", *wanted)
    assert (done.returncode, done.stdout) == (1, b"")
    (sentence,) = done.stderr.decode().splitlines()
    assert "run this from a checkout of splashdam" in sentence
