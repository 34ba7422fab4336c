"""``splashdam acls``, ``quotas``, ``transactions``, ``producers``, ``log-dirs`` and others, over TCP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner, Result

from splashdam import EmbeddedBroker, EmbeddedCluster, KafkaProducer
from splashdam.cli.commands import splashdam
from splashdam.net.clock import SystemClock

CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
Invoke = Callable[..., Result]


@pytest.fixture
def servers() -> Iterator[str]:
    """The address of a broker with a topic of two partitions."""
    with EmbeddedBroker(config=CONFIG, topics={"t": 2}, clock=SystemClock()) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def invoke(servers: str) -> Invoke:
    """Runs a command against it."""
    return lambda *arguments: CliRunner().invoke(splashdam, [*arguments, "-b", servers])


def said(result: Result) -> str:
    """What a command that succeeded has printed."""
    assert result.exit_code == 0, result.output
    return result.output


def listed(result: Result) -> list[dict[str, Any]]:
    """The lines of ``--json``."""
    return [json.loads(line) for line in said(result).splitlines() if line.startswith("{")]


def test_access_control_lists(invoke: Invoke) -> None:
    """Added, listed by what bears on a name, and removed."""
    anna = ("--principal", "User:anna", "--operation", "read")
    added = said(invoke("acls", "add", "--topic", "t", *anna, "--operation", "WRITE"))
    assert added == "added 2 access control lists\n"
    said(invoke("acls", "add", "--topic", "t", "--prefixed", "--deny", "--host", "10.0.0.1", *anna))
    said(invoke("acls", "add", "--cluster", "--principal", "User:ben", "--operation", "alter"))
    of_t = listed(invoke("acls", "list", "--topic", "t", "--json"))
    assert [(each["pattern"], each["operation"], each["permission"], each["host"]) for each in of_t] == [
        ("literal", "read", "allow", "*"),
        ("literal", "write", "allow", "*"),
        ("prefixed", "read", "deny", "10.0.0.1"),
    ]
    assert listed(invoke("acls", "list", "--principal", "User:ben", "--json"))[0]["name"] == "kafka-cluster"
    assert said(invoke("acls", "remove", "--topic", "t", "--yes")) == "removed 2 access control lists\n"
    asked = invoke("acls", "remove")
    assert (asked.exit_code, "Remove these" in asked.output, "User:ben" in asked.output) == (1, True, True)
    assert len(listed(invoke("acls", "list", "--json"))) == 2


def test_brokers_are_listed(tmp_path: Path) -> None:
    """As kcat -L does: for people and as JSON, with racks, and the controller among them."""
    with EmbeddedCluster(tmp_path, 2, fsync=False, racks=("a", "b"), clock=SystemClock()) as cluster:
        servers = cluster.bootstrap_servers
        where = ("-b", servers)
        found = listed(CliRunner().invoke(splashdam, ["brokers", "--json", *where]))
        table = said(CliRunner().invoke(splashdam, ["brokers", *where])).splitlines()
    addresses = [f"{each['host']}:{each['port']}" for each in found]
    assert ",".join(addresses) == servers
    assert [(each["broker"], each["rack"]) for each in found] == [(1, "a"), (2, "b")]
    assert sum(each["controller"] for each in found) == 1
    assert table[0] == "broker\thost\tport\track\tcontroller"
    assert len(table) == 3


def test_quotas(invoke: Invoke) -> None:
    """Quotas of a user and of every client id are set, listed and removed."""
    set_ = invoke("quotas", "set", "--user", "anna", "producer_byte_rate=1000")
    assert said(set_) == "set producer_byte_rate\n"
    said(invoke("quotas", "set", "--client-id", "<default>", "request_percentage=12.5"))
    assert said(invoke("quotas", "list")).splitlines() == [
        "user\tclient-id\tip\tquota\tvalue",
        "-\t<default>\t-\trequest_percentage\t12.5",
        "anna\t-\t-\tproducer_byte_rate\t1000",
    ]
    assert listed(invoke("quotas", "list", "--user", "anna", "--json")) == [
        {"user": "anna", "client-id": None, "ip": None, "quota": "producer_byte_rate", "value": 1000}
    ]
    said(invoke("quotas", "remove", "--user", "anna", "producer_byte_rate"))
    assert listed(invoke("quotas", "list", "--user", "anna", "--json")) == []


def test_transactions_and_producers(invoke: Invoke, servers: str) -> None:
    """An open transaction is found, fenced by its id, and aborted where it hangs."""
    with KafkaProducer(bootstrap_servers=servers, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"1", partition=1)
        producer.flush()
        assert listed(invoke("transactions", "list", "--state", "Ongoing", "--json")) == [
            {"transactional_id": "x", "state": "Ongoing", "producer_id": 0, "coordinator": 1}
        ]
        described = listed(invoke("transactions", "describe", "x", "--json"))[0]
        assert (described["state"], described["partitions"]) == ("Ongoing", ["t-1"])
        assert said(invoke("transactions", "describe", "x")).splitlines()[1] == "t-1"
        (known,) = listed(invoke("producers", "t", "--json"))
        assert (known["partition"], known["producer_id"], known["transaction_start"]) == (1, 0, 0)
        hanging = ("transactions", "abort", "t", "--partition", "1", "--start-offset")
        assert said(invoke(*hanging, "0", "--yes")) == "aborted the transaction of producer id 0 in t-1\n"
        again = invoke(*hanging, "0", "--yes")
        assert (again.exit_code, "no open transaction begins at offset 0 of t-1" in again.output) == (1, True)
        assert listed(invoke("producers", "t:1", "--json"))[0]["transaction_start"] is None
        assert said(invoke("transactions", "fence", "x", "--yes")) == "fenced x\n"
        producer.close(timeout=0)
    assert listed(invoke("transactions", "list", "--state", "Ongoing", "--json")) == []


def test_records_and_where_they_lie(invoke: Invoke, servers: str) -> None:
    """Counted, measured, and deleted by offset, by age and altogether."""
    said(invoke("topics", "alter", "t", "-c", "retention.ms=-1"))
    with KafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(6):
            producer.send("t", b"x", partition=0, timestamp_ms=500_000_000_000 * (1 + number // 4) + number)
    (sized,) = listed(invoke("topics", "list", "--json"))
    assert (sized["records"], sized["newest"]) == (6, 1_000_000_000_005)
    replicas = listed(invoke("log-dirs", "--partitions", "--topic", "t", "--json"))
    assert sum(each["bytes"] for each in replicas) == sized["bytes"] > 0
    assert listed(invoke("log-dirs", "--json"))[0]["partitions"] == 2
    described = listed(invoke("topics", "describe", "t", "--json"))[0]
    assert [(each["earliest"], each["latest"]) for each in described["partitions"]] == [(0, 6), (0, 0)]

    def delete(*options: str) -> list[int]:
        return [
            each["first_offset"] for each in listed(invoke("delete-records", *options, "--yes", "--json"))
        ]

    assert delete("t:0", "--before-offset", "1") == [1]
    assert delete("t", "--older-than", "750000000000") == [4, 0]
    assert delete("t", "--older-than", "1500000000000") == [6, 0]
    assert delete("t", "--all") == [6, 0]


def test_the_preferred_leader_gets_its_partition_back() -> None:
    """A leader was moved; a second election has nothing to do."""
    with TemporaryDirectory() as folder, EmbeddedCluster(folder, brokers=2) as cluster:
        where = ("-b", cluster.bootstrap_servers)
        created = ("topics", "create", "t", "--partitions", "1", "--replication-factor", "2")
        said(CliRunner().invoke(splashdam, [*created, *where]))
        cluster.wait_in_sync()
        preferred, other = cluster.replicas_of("t")
        cluster.move_leader("t", 0, other)
        (moved,) = listed(CliRunner().invoke(splashdam, ["elect-leaders", "t", "--json", *where]))
        assert moved == {"topic": "t", "partition": 0, "result": "elected"}
        assert cluster.leader_of("t") == preferred
        assert listed(CliRunner().invoke(splashdam, ["elect-leaders", "t", "--json", *where])) == []


@pytest.mark.parametrize(
    ("line", "status", "text"),
    [
        ("acls add --principal User:a --operation read", 2, "say for what"),
        ("quotas set producer_byte_rate=1", 2, "say whose"),
        ("quotas set --user a bytes=1", 2, "no quota 'bytes'"),
        ("quotas set --user a producer_byte_rate=many", 2, "is not NAME=NUMBER"),
        ("elect-leaders", 2, "name partitions, or give --all"),
        ("elect-leaders t:9", 1, "t has no partition 9; it has 2"),
        ("elect-leaders t:x", 2, "'t:x' is not TOPIC or TOPIC:NUMBER"),
        ("delete-records t", 2, "say which"),
        ("delete-records t:0 --before-offset 9 --yes", 1, "OffsetOutOfRange"),
        ("producers u", 1, "topic 'u'"),
        ("transactions describe u", 1, "transactional id 'u'"),
        ("transactions list --state Sleeping", 1, "no transaction is in state 'Sleeping'"),
    ],
)
def test_what_is_refused_is_explained(invoke: Invoke, line: str, status: int, text: str) -> None:
    """One message, and a status that scripts can use."""
    done = invoke(*line.split())
    assert (done.exit_code, text in done.output) == (status, True), done.output


def test_elections_that_nobody_needs(invoke: Invoke) -> None:
    """Are no failure."""
    done = invoke("elect-leaders", "--all")
    assert (done.exit_code, "no partition needs an election" in done.output) == (0, True)
