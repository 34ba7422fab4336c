"""A broker with users and TLS, by commands alone."""

from __future__ import annotations

import stat
from pathlib import Path

from support.running.cli_processes import first_line, run, started
from support.security.security_kit import PASSWORD, USER, Pki


def test_users(tmp_path: Path) -> None:
    """Added, changed, listed, deleted; the password comes from standard input and is in no output or file."""
    data = ("--data", str(tmp_path / "data"))
    added = run("users", "add", USER, *data, lines=PASSWORD.encode() + b"\n")
    assert (added.returncode, added.stdout) == (0, b"added anna\n")
    run("users", "add", "ben", *data, "--mechanism", "SCRAM-SHA-512", lines=b"x\n")
    assert run("users", "add", USER, *data, lines=b"other\n").stdout == b"changed anna\n"
    listed = run("users", "list", *data).stdout.decode().splitlines()
    assert listed == ["anna\tSCRAM-SHA-256,SCRAM-SHA-512", "ben\tSCRAM-SHA-512"]
    (file,) = (tmp_path / "data").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert PASSWORD not in file.read_text()
    assert run("users", "delete", "ben", *data).stdout == b"deleted ben\n"
    gone = run("users", "delete", "ben", *data)
    assert (gone.returncode, b"there is no user 'ben'" in gone.stderr) == (1, True)
    empty = run("users", "add", "cleo", *data, lines=b"\n")
    assert (empty.returncode, b"the password is empty" in empty.stderr) == (1, True)


def test_a_secure_broker_from_the_command_line(tmp_path: Path) -> None:
    """Two listeners; produce and tail find their way by a client.properties, and a wrong password is told."""
    pki = Pki(tmp_path / "pki")
    data = str(tmp_path / "data")
    run("users", "add", USER, "--data", data, lines=PASSWORD.encode())
    client = tmp_path / "client.properties"
    client.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={pki.cafile}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="{USER}" password="{PASSWORD}";\n'
    )
    listeners = ("--listener", "PLAINTEXT://127.0.0.1:0", "--listener", "SASL_SSL://localhost:0")
    keys = ("-X", f"ssl.keystore.location={pki.broker}")
    with started("broker", "--data", data, *listeners, *keys) as process:
        first_line(process)
        assert process.stdout is not None
        second = process.stdout.readline().decode().strip()
        assert second.endswith(" (SASL_SSL)")
        servers = second.removeprefix("listening on ").removesuffix(" (SASL_SSL)")
        secure = ("-b", servers, "--config", str(client))
        sent = run("produce", "greetings", *secure, lines=b"hello\nworld\n")
        assert (sent.returncode, sent.stderr) == (0, sent.stderr)
        read = run("tail", "greetings", *secure, "--from-beginning", "--exit-at-end")
        assert (read.returncode, read.stdout) == (0, b"hello\nworld\n")
        client.write_text(client.read_text().replace(PASSWORD, "hunter9"))
        for command in (("produce", "greetings"), ("tail", "greetings", "--from-beginning")):
            refused = run(*command, *secure, lines=b"x\n")
            assert refused.returncode == 1
            assert b"rejected the SCRAM-SHA-512 credentials of user 'anna'" in refused.stderr
            assert b"hunter9" not in refused.stderr + refused.stdout
            assert b"Traceback" not in refused.stderr


def test_listeners_and_port_contradict_each_other(tmp_path: Path) -> None:
    """Wrong usage."""
    done = run("broker", "--data", str(tmp_path), "--port", "0", "--listener", "SSL://localhost:0")
    assert done.returncode == 2
    assert b"--port contradicts listeners=SSL://localhost:0" in done.stderr
    missing = run("broker", "--data", str(tmp_path), "--listener", "SSL://localhost:0")
    assert (missing.returncode, b"ssl.keystore.location is missing" in missing.stderr) == (2, True)
