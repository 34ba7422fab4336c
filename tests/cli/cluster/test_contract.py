"""``splashdam contract``: which behaviours through which clients, and what its status says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running.cli_processes import run
from support.security.security_kit import PASSWORD, USER, Pki, secure_broker

from splashdam import EmbeddedBroker
from splashdam.net.cluster.cluster_client import ClusterClientSettings
from splashdam.testing.contract.available_clients import EMBEDDED_CONFIG
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


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a broker with TLS and SASL, and the properties file that lets clients in."""
    folder = tmp_path_factory.mktemp("secured")
    pki = Pki(folder / "pki")
    certificate = pki.issue("host", "localhost")
    with secure_broker(
        folder / "data", pki, config=EMBEDDED_CONFIG, ssl_keystore_location=certificate, fsync=False
    ) as broker:
        properties = folder / "client.properties"
        properties.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={pki.cafile}\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
            f' username="{USER}" password="{PASSWORD}";\n'
        )
        yield broker.bootstrap_servers, properties


def test_a_cluster_with_tls_and_sasl(secured: tuple[str, Path]) -> None:
    """By the properties file that every command takes; listeners that it does not have are left out."""
    address, properties = secured
    clients, areas = ("splashdam-trio", "protocol"), ("security", "authentication")
    chosen = [*(f"--client={each}" for each in clients), *(f"--area={each}" for each in areas)]
    done = run("contract", "-b", address, "--config", str(properties), *chosen)
    shown = done.stdout.decode()
    assert done.returncode == 0, shown + done.stderr.decode()
    rows = dict(re.findall(r"^ *(.+?) +([✓≠✗·]) *$", shown, re.MULTILINE))
    assert rows["scram sha 256 over tls takes the right password"] == "✓"
    assert rows["scram sha 256 over tls refuses a wrong password"] == "✓"
    assert rows["a certificate of another host is refused"] == "✓"
    assert rows["a certificate is named as the reason"] == "✓"
    assert rows["plain over plaintext takes the right password"] == "·"
    assert rows["wrong users and wrong passwords have one answer"] == "✓"


def test_a_wrong_password_is_told_once(secured: tuple[str, Path]) -> None:
    """Before the behaviours, and without the password."""
    address, properties = secured
    wrong = (
        "-X",
        "sasl.mechanism=PLAIN",
        "-X",
        "sasl.plain.username=anna",
        "-X",
        "sasl.plain.password=n0t-it",
    )
    ca = next(line for line in properties.read_text().splitlines() if "truststore.location" in line)
    done = run("contract", "-b", address, "-X", "security.protocol=SASL_SSL", "-X", ca, *wrong)
    assert done.returncode == 1
    assert "Invalid username or password" in done.stderr.decode()
    assert "n0t-it" not in done.stderr.decode()
    assert done.stdout == b""


def test_settings_without_a_cluster() -> None:
    """The broker that the command starts would not know them."""
    done = run("contract", "-X", "security.protocol=SSL")
    assert done.returncode == 2
    assert "none is named" in done.stderr.decode()


def test_passwords_of_the_embedded_broker() -> None:
    """It has a listener with SASL beside the first; none with TLS."""
    done = run("contract", "--area", "security", "--client", "splashdam")
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    assert " 0 broken, 10 left out" in done.stdout.decode()


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
    [(("--area", "weather"), ", ".join(AREAS)), (("--client", "telnet"), "splashdam, splashdam-trio")],
)
def test_wrong_usage(arguments: tuple[str, ...], named: str) -> None:
    """The error lists the existing ones."""
    done = run("contract", *arguments)
    assert done.returncode == 2
    assert named in done.stderr.decode()
