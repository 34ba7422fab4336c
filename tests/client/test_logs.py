"""Log lines: one family of loggers, fields beside the text, nothing per batch."""

from __future__ import annotations

import ast
import logging
from pathlib import Path

import pytest
from support.running.house_tree import ROOMS, files

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.client.logs import KeyValueFormatter
from splashdam.model.errors import KafkaTimeoutError
from splashdam.model.log_text import fields

OTHERS = {"resources.py", "in_process.py", "spark.py", "session.py"}
"""The first shows and sets the levels of loggers, the others silence those of other clients and of Spark."""


@pytest.mark.parametrize("room", ROOMS)
def test_every_logger_is_below_splashdam(room: str) -> None:
    """``getLogger("splashdam…")``, or the module's name, which begins so."""
    for path in files(room, ".py"):
        if path.name in OTHERS:
            continue
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "getLogger" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger":
                name = ast.unparse(node.args[0])
                assert name == "__name__" or name.startswith("'splashdam"), path


def test_ten_thousand_records_are_not_worth_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At DEBUG there are the connections, each with its fields; at INFO nothing."""
    with caplog.at_level(logging.DEBUG, "splashdam"), EmbeddedBroker(tmp_path, fsync=False) as broker:
        options = {"bootstrap_servers": broker.bootstrap_servers, "client_id": "me"}
        with KafkaProducer(batch_size=1_000, **options) as producer:
            for number in range(10_000):
                producer.send("t", b"%d" % number)
    lines = [each for each in caplog.records if each.name in ("splashdam.client", "splashdam.sender")]
    assert {each.levelno for each in lines} == {logging.DEBUG}
    assert len(lines) <= 3
    connected = lines[0].splashdam  # type: ignore[attr-defined]  # where `extra` has put it
    assert connected["client_id"] == "me"
    assert connected["address"] == options["bootstrap_servers"]


def test_a_lost_connection_names_its_error(closed_port: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "splashdam.sender"):
        producer = KafkaProducer(bootstrap_servers=closed_port, max_block_ms=50, client_id="me")
        with producer:
            while not caplog.records:  # the attempt may take longer than `max_block_ms`
                with pytest.raises(KafkaTimeoutError, match="did not appear"):
                    producer.send("t", b"value")
    about = caplog.records[0].splashdam  # type: ignore[attr-defined]  # as above
    assert about == {
        "client_id": "me",
        "node_id": -1,
        "address": closed_port,
        "error": "CannotConnectError",
    }


@pytest.mark.parametrize(
    ("extra", "shown"),
    [
        (None, "text"),
        (fields(), "text"),
        (fields(client_id="a", records=3), "text client_id=a records=3"),
        (fields(client_id="a b", other='c"', none=""), r'text client_id="a b" other="c\"" none=""'),
    ],
)
def test_fields_behind_the_text(extra: dict[str, dict[str, object]] | None, shown: str) -> None:
    record = logging.getLogger("splashdam").makeRecord(
        "splashdam", logging.INFO, "file", 1, "text", (), None, extra=extra
    )
    assert KeyValueFormatter("%(message)s").format(record) == shown
