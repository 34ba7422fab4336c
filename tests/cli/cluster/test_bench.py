"""``splashdam bench`` against a cluster: a topic of its own that is gone afterwards, and clear errors."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import confluent_kafka
import pytest
from support.running.cli_processes import first_line, run, started
from support.security.security_kit import PASSWORD, USER, Pki

from splashdam.cli.measuring.turns import MeasurementError
from splashdam.embedded_broker.embedded import EmbeddedBroker

SMALL = ("--rounds", "1", "--scale", "0.0001")


@pytest.mark.slow
def test_all_clients_that_are_installed(tmp_path: Path) -> None:
    """They send to the cluster, every record is found by offsets, and the topic is deleted."""
    result = tmp_path / "result.json"
    with EmbeddedBroker(tmp_path / "data", fsync=False) as broker:
        where = ("-b", broker.bootstrap_servers, "--json", str(result))
        done = run("bench", *where, *SMALL, "-s", "send-100")
        assert (done.returncode, done.stderr) == (0, b"")
        topics = (
            confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers}).list_topics().topics
        )
        assert topics == {}
    runs = json.loads(result.read_text())["runs"]
    assert {each["client"] for each in runs} == {"splashdam", "confluent-kafka", "kafka-python", "aiokafka"}
    assert all(each["records"] == each["count"] + 1 for each in runs)
    for client in ("splashdam", "confluent-kafka", "kafka-python", "aiokafka"):
        assert client in done.stdout.decode()


def test_one_client_on_a_directory(tmp_path: Path) -> None:
    """``embedded:DIR`` is served to the measuring processes while the command runs."""
    done = run("bench", "-b", f"embedded:{tmp_path}", *SMALL, "-s", "send-100", "-c", "splashdam")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"splashdam send()" in done.stdout
    assert b"kafka-python send()" not in done.stdout
    assert b"the first is" not in done.stdout  # nothing is compared


def test_a_secured_cluster(tmp_path: Path) -> None:
    """Every client gets in by the settings of one file, and the report holds no password."""
    pki, data, result = Pki(tmp_path / "pki"), str(tmp_path / "data"), tmp_path / "result.json"
    run("users", "add", USER, "--data", data, lines=PASSWORD.encode())
    client = tmp_path / "client.properties"
    client.write_text(
        f"security.protocol=SASL_SSL\nssl.truststore.location={pki.cafile}\nlinger.ms=50\n"
        f"sasl.mechanism=SCRAM-SHA-512\nsasl.plain.username={USER}\nsasl.plain.password={PASSWORD}\n"
    )
    keys = ("-X", f"ssl.keystore.location={pki.broker}")
    with started("broker", "--data", data, "--listener", "SASL_SSL://localhost:0", *keys) as process:
        servers = first_line(process).removeprefix("listening on ").split()[0]
        where = ("-b", servers, "--config", str(client), "--json", str(result))
        done = run("bench", *where, *SMALL, "-s", "send-100", "-s", "cold-start")
        assert (done.returncode, done.stderr) == (0, b"")
        refused = run("bench", *where, *SMALL, "-X", "sasl.plain.password=hunter9")
    runs = json.loads(result.read_text())["runs"]
    clients = {"splashdam", "confluent-kafka", "kafka-python", "aiokafka"}
    for scenario in ("send-100", "cold-start"):
        assert {each["client"] for each in runs if each["scenario"] == scenario} >= clients
    assert PASSWORD not in result.read_text() + done.stdout.decode()
    assert (refused.returncode, b"rejected the SCRAM-SHA-512 credentials" in refused.stderr) == (1, True)


def test_the_address_of_the_file(tmp_path: Path) -> None:
    """It counts where no option names another."""
    config = tmp_path / "client.properties"
    config.write_text(f"bootstrap.servers=embedded:{tmp_path / 'data'}\n")
    done = run("bench", "--config", str(config), *SMALL, "-s", "send-100", "-c", "splashdam")
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "data").is_dir()


def test_nobody_listens() -> None:
    """The address is named, without a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = run("bench", "-b", f"127.0.0.1:{port}", *SMALL)
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_a_topic_that_the_cluster_refuses(tmp_path: Path) -> None:
    """One broker cannot keep three replicas; what it says is shown."""
    done = run("bench", "-b", f"embedded:{tmp_path}", *SMALL, "--replication-factor", "3")
    assert done.returncode == 1
    assert "replication factor" in done.stderr.decode().lower()


def test_a_run_that_cannot_be_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the command with status 1, and the topic is deleted all the same."""

    def fail(*_: object) -> None:
        raise MeasurementError("sent 2 records, 1 arrived")

    monkeypatch.setattr("splashdam.cli.cluster.bench.measure_all", fail)
    with EmbeddedBroker(tmp_path, fsync=False) as broker:
        done = run("bench", "-b", broker.bootstrap_servers, *SMALL)
        client = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
        assert client.list_topics().topics == {}
    assert (done.returncode, done.stderr) == (1, b"Error: sent 2 records, 1 arrived\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_deletes_the_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int
) -> None:
    """The status is that of an interrupt. SIGTERM left the topic there."""

    def interrupt(*_: object) -> None:
        signal.raise_signal(number)

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # else it would end this process
    monkeypatch.setattr("splashdam.cli.cluster.bench.measure_all", interrupt)
    try:
        with EmbeddedBroker(tmp_path, fsync=False) as broker:
            done = run("bench", "-b", broker.bootstrap_servers, *SMALL)
            client = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
            assert client.list_topics().topics == {}
    finally:
        signal.signal(signal.SIGTERM, before)
    assert done.returncode == status


def test_an_unknown_scenario() -> None:
    """The names are listed."""
    done = run("bench", "-s", "send-99")
    assert done.returncode == 2
    assert "send-100" in done.stderr.decode()
