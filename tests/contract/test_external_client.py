"""Clients in other languages, which run in processes of their own and speak JSON over a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from splashdam.model.secrets import Secret
from splashdam.testing.contract import available_clients
from splashdam.testing.contract.available_clients import ExternalClient
from splashdam.testing.contract.vocabulary import Listener, Read, Record, Refused

DRIVER = """
import json, sys, time
for line in sys.stdin:
    request = json.loads(line)
    op, args = request["op"], request["args"]
    if op == "close":
        break
    if op == "open":
        security = args["security"]
    answers = {
        "open": {"ok": {"name": "python", "version": args.get("bootstrap"), "ops": ["produce", "fetch"]}},
        "describe_configs": {"ok": security},
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


def test_a_twin_at_another_listener(client: ExternalClient) -> None:
    """A process of its own, with the options of that listener; its own twin has the same."""
    login = {"sasl_mechanism": "PLAIN", "sasl_plain_password": Secret("hunter2")}
    with client.twin(Listener("host:2", login)) as other, other.twin() as third:
        assert (other.version, third.version) == ("host:2", "host:2")
        assert third.call("describe_configs") == {"sasl_mechanism": "PLAIN", "sasl_plain_password": "hunter2"}
    assert client.call("describe_configs") == {}
    with client.at(Listener("host:2", login)) as lent:
        assert lent.call("describe_configs") == {"sasl_mechanism": "PLAIN", "sasl_plain_password": "hunter2"}
    assert client.call("describe_configs") == {}


def test_a_driver_that_ends(client: ExternalClient) -> None:
    """Is an error of the operation, and of every one after it."""
    for _ in range(2):
        with pytest.raises(Refused, match="DRIVER_ENDED"):
            client.call("list_groups")


def test_a_driver_that_hangs(client: ExternalClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is killed."""
    monkeypatch.setattr(available_clients, "ANSWER_SECONDS", 0.05)
    with pytest.raises(Refused, match="DRIVER_ENDED"):
        client.call("describe_cluster")


def test_a_driver_that_does_not_start(tmp_path: Path) -> None:
    """Leaves no process."""
    with pytest.raises(Refused, match="DRIVER_ENDED"):
        ExternalClient([sys.executable, "-c", "pass"], "host:1", tmp_path)
