"""``splashdam contract``: which behaviours through which clients, and what its status says."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.running.cli_processes import run

from splashdam import EmbeddedBroker
from splashdam.net.cluster.cluster_client import ClusterClientSettings
from splashdam.testing.contract.behaviours import AREAS, all_behaviours
from splashdam.testing.contract.clients import splashdam_client


def test_an_embedded_broker(tmp_path: Path) -> None:
    """Without an address there is one for the run; the table is shown, and written as Markdown."""
    page = tmp_path / "contract.md"
    done = run("contract", "--area", "topics", "--client", "splashdam", "--markdown", str(page))
    assert done.returncode == 0, done.stderr
    shown = done.stdout.decode()
    assert "a topic is created once" in shown
    assert "offsets are consecutive" not in shown
    assert " 0 differs, 0 broken, 0 left out" in shown
    assert page.read_text().startswith("## The embedded broker\n")


def test_a_cluster_that_breaks_a_promise(tmp_path: Path) -> None:
    """Status 1, and what was found; nothing of the run is left in the cluster."""
    with EmbeddedBroker(tmp_path, fsync=False) as broker:
        broker.faults.create_topics(error="POLICY_VIOLATION")
        done = run("contract", "-b", broker.bootstrap_servers, "--area", "topics", "--client", "splashdam")
        assert done.returncode == 1
        assert "✗ a topic is created once, splashdam" in done.stdout.decode()
        assert "POLICY_VIOLATION" in done.stdout.decode()


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that cannot be reached is a message and no table."""
    monkeypatch.setattr(splashdam_client, "_ADMIN_SETTINGS", ClusterClientSettings(timeout_ms=10))
    done = run("contract", "-b", "127.0.0.1:1", "--area", "topics", "--client", "splashdam")
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr.decode()
    assert done.stdout == b""


def test_the_list() -> None:
    """Every behaviour with what it promises."""
    done = run("contract", "--list")
    listed = done.stdout.decode()
    assert done.returncode == 0
    assert all(f"{each.area}: {each.title}\n" in listed for each in all_behaviours())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("--area", "weather"), ", ".join(AREAS)), (("--client", "telnet"), "splashdam, kafka-python")],
)
def test_wrong_usage(arguments: tuple[str, ...], named: str) -> None:
    """The error lists the existing ones."""
    done = run("contract", *arguments)
    assert done.returncode == 2
    assert named in done.stderr.decode()
