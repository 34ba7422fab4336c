"""The table of everything that can be configured, Kafka's precedence, and what mistakes are told."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest
from support.running.house_tree import ROOT

from splashdam.embedded_broker.broker import open_broker
from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.described import BrokerLayers, topic_entries
from splashdam.embedded_broker.configs.table import Scope, as_markdown, known_configs
from splashdam.embedded_broker.configs.topics import topic_settings
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import MAX_LONG
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.settings import DAY_MS, HOUR_MS, MINUTE_MS, LogSettings


def defaults(config: dict[str, Any]) -> LogSettings:
    return BrokerSettings.from_properties(config).topic_defaults


BROKER_ROWS = [row for row in known_configs() if row.scope is Scope.BROKER and row.doc]


@pytest.mark.parametrize(
    ("config", "option", "expected"),
    [
        ({}, "retention_ms", 7 * DAY_MS),
        ({"log.retention.hours": "2"}, "retention_ms", 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, "retention_ms", 3 * MINUTE_MS),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, "retention_ms", 4),
        ({"log.retention.ms": "-1", "log.retention.hours": "2"}, "retention_ms", -1),
        ({"log.retention.hours": "-1"}, "retention_ms", -1),
        ({"log.roll.hours": "2"}, "segment_ms", 2 * HOUR_MS),
        ({"log.roll.hours": "2", "log.roll.ms": "9"}, "segment_ms", 9),
        ({"log.roll.jitter.hours": "1"}, "segment_jitter_ms", HOUR_MS),
        ({"log.roll.jitter.hours": "1", "log.roll.jitter.ms": "0"}, "segment_jitter_ms", 0),
        ({"log.flush.interval.ms": "7", "log.flush.scheduler.interval.ms": "8"}, "flush_ms", 7),
        ({"log.flush.scheduler.interval.ms": "8"}, "flush_ms", 8),
        ({}, "flush_ms", MAX_LONG),
        ({"log.segment.delete.delay.ms": "5"}, "file_delete_delay_ms", 5),
        ({"log.cleaner.min.cleanable.ratio": "0.25"}, "min_cleanable_dirty_ratio", 0.25),
        ({"log.preallocate": "true"}, "preallocate", True),
        ({"compression.zstd.level": "9"}, "compression_zstd_level", 9),
    ],
    ids=str,
)
def test_precedence_is_kafkas(config: dict[str, str], option: str, expected: object) -> None:
    """.ms over .minutes over .hours; where nothing is set, Kafka's default."""
    assert getattr(defaults(config), option) == expected


def test_a_topics_own_value_wins() -> None:
    """Over any of the broker's, and it is described as the topic's."""
    broker = BrokerSettings.from_properties({"log.retention.hours": "2", "log.roll.hours": "168"})
    assert topic_settings(broker.topic_defaults, {"retention.ms": "5"}).retention_ms == 5
    found = {
        entry.name: (entry.value, entry.source)
        for entry in topic_entries(BrokerLayers(broker, {}, {}), {"retention.ms": "5"})
    }
    assert found["retention.ms"] == ("5", 1)
    assert found["segment.ms"] == (str(7 * DAY_MS), 4)  # set, be it to the default
    assert found["segment.bytes"] == (str(1 << 30), 5)


def test_an_older_name_of_the_node_id() -> None:
    """broker.id stands in for node.id."""
    assert BrokerSettings.from_properties({"broker.id": "4"}).node_id == 4
    assert BrokerSettings.from_properties({"broker.id": "4", "node.id": "5"}).node_id == 5


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"log.retention.hour": "1"}, "Did you mean 'log.retention.hours'"),
        ({"retention.ms": "1"}, "an option of topics.* set by 'log.retention.ms'"),
        ({"log.retention.hours": "soon"}, "log.retention.hours='soon'"),
        ({"log.roll.ms": "0"}, "broker option 'log.roll.ms': segment_ms=0: must be at least 1"),
        ({"log.roll.ms": "1", "log.roll.hours": "x"}, "log.roll.hours"),
        ({"ssl.keystore.locations": "/x"}, r"Did you mean 'ssl\.keystore\.location'"),
        (
            {"listeners": "SASL_SSL:9092"},
            "listeners='SASL_SSL:9092': 'SASL_SSL:9092' is not NAME://HOST:PORT",
        ),
        ({"sasl.enabled.mechanisms": "NTLM"}, "must be some of PLAIN, SCRAM-SHA-256"),
        ({"ssl.keystore.type": "JKS"}, "must be one of 'PEM'"),
        ({"log.cleanup.policy": "compress"}, "must be of delete and compact"),
    ],
    ids=str,
)
def test_mistakes_are_reported(config: dict[str, str], text: str) -> None:
    """With the right name where there is one, and the name that was written."""
    with pytest.raises(KafkaConfigurationError, match=text):
        BrokerSettings.from_properties(config)


@pytest.mark.parametrize(
    "name", sorted({row.name for row in BROKER_ROWS if row.kind in ("boolean", "integer", "text")})
)
def test_no_setting_accepts_another_type(name: str) -> None:
    """Each is refused by its name: 'false' where True or False belongs counted as true before."""
    for value in (None, b"x", [], 1.5, 10**30):
        with pytest.raises(KafkaConfigurationError, match=re.escape(name)):
            BrokerSettings.from_options({}, {name: value})
        with pytest.raises(KafkaConfigurationError, match=name.replace(".", "_")):
            BrokerSettings.from_options({name.replace(".", "_"): value})
    for text in ("", "1_000_000", "\u0661\u0662", "9" * 5000, "yes", "1e3"):
        with pytest.raises(KafkaConfigurationError, match=re.escape(name)):
            BrokerSettings.from_properties({name: text})


@pytest.mark.parametrize(
    "name", ["log.segment.bytes", "log.index.size.max.bytes", "log.index.interval.bytes", "message.max.bytes"]
)
def test_positions_in_a_segment_fit_into_its_index(name: str) -> None:
    """They are of 32 bits: a segment of 3 GiB took a batch that its index could not, and stayed damaged."""
    BrokerSettings.from_properties({name: str(2**31 - 1)})
    with pytest.raises(KafkaConfigurationError, match="must be at most 2147483647"):
        BrokerSettings.from_properties({name: str(2**31)})


def test_both_ways_to_write_a_name() -> None:
    """Python's and Kafka's go together, but not for the same setting."""
    settings = BrokerSettings.from_options({"log_retention_hours": 1}, {"num.partitions": "3", "node.id": 7})
    assert (settings.topic_defaults.retention_ms, settings.num_partitions, settings.node_id) == (
        HOUR_MS,
        3,
        7,
    )
    with pytest.raises(KafkaConfigurationError, match=r"num\.partitions is given twice"):
        BrokerSettings.from_options({"num_partitions": 1}, {"num.partitions": "1"})
    for mistaken in ({"log.retention.hours": 1}, {"log_retention_hour": 1}):
        with pytest.raises(KafkaConfigurationError, match="Did you mean 'log_retention_hours'"):
            BrokerSettings.from_options(mistaken)
    for wrong in ("3", True, 1.5):
        with pytest.raises(KafkaConfigurationError, match="log_retention_hours"):
            BrokerSettings.from_options({"log_retention_hours": wrong})


STOCK = """
process.roles broker,controller|node.id 1|controller.quorum.bootstrap.servers localhost:9093
listeners PLAINTEXT://:9092,CONTROLLER://:9093|inter.broker.listener.name PLAINTEXT
advertised.listeners PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names CONTROLLER
listener.security.protocol.map CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT|num.network.threads 3|num.io.threads 8
socket.send.buffer.bytes 102400|socket.receive.buffer.bytes 102400|socket.request.max.bytes 104857600
log.dirs /tmp/kraft-combined-logs|num.partitions 1|num.recovery.threads.per.data.dir 1
offsets.topic.replication.factor 1|share.coordinator.state.topic.replication.factor 1
share.coordinator.state.topic.min.isr 1|transaction.state.log.replication.factor 1
transaction.state.log.min.isr 1|log.flush.interval.messages 10000|log.flush.interval.ms 1000
log.retention.hours 168|log.retention.bytes 1073741824|log.segment.bytes 1073741824
log.retention.check.interval.ms 300000
"""


async def test_kafkas_own_server_properties_start_a_broker(caplog: pytest.LogCaptureFixture) -> None:
    """Settings without effect are logged with the reason, and no others."""
    pairs = [pair.split(" ", 1) for pair in STOCK.strip().replace("\n", "|").split("|")]
    config = dict(pairs)
    async with open_broker("/data", port=None, files=MemoryFiles(), config=config) as broker:
        assert broker.settings.topic_defaults.flush_ms == 1000
        assert [each.root for each in broker.logs.directories.all] == ["/data", dict(pairs)["log.dirs"]]
    told = [record.message for record in caplog.records if "has no effect" in record.message]
    assert len(told) == 10
    assert not any("retention" in line or "socket.request" in line for line in told)


def test_settings_without_effect_are_declared_as_such() -> None:
    """Options of the cleaner, for example, whatever they are set to."""
    settings = BrokerSettings.from_properties(
        {"log.cleaner.backoff.ms": "5", "log.cleaner.threads": "2", "num.partitions": "2"}
    )
    assert set(settings.without_effect()) == {"log.cleaner.threads"}


def test_the_table_is_whole() -> None:
    """Each name once per scope, each option of a topic, with type, default and meaning or a reason."""
    rows = known_configs()
    keys = [(row.scope, row.name) for row in rows]
    assert len(keys) == len(set(keys))
    assert {row.name for row in rows if row.scope is Scope.TOPIC} == {
        field.name.replace("_", ".") for field in attrs.fields(LogSettings)
    }
    assert all(row.doc or row.without_effect for row in rows)
    by_name = {row.name: row for row in rows if row.scope is Scope.BROKER}
    assert (by_name["log.retention.hours"].default, by_name["log.retention.ms"].default) == ("168", "")
    assert by_name["log.retention.ms"].synonyms == ("log.retention.minutes", "log.retention.hours")
    assert by_name["log.flush.scheduler.interval.ms"].default == "2^63 - 1"


def test_the_page_holds_the_table() -> None:
    """``python tools/configuration_page.py`` writes it anew."""
    page = (ROOT / "docs/reference/configuration.md").read_text()
    assert page.endswith(as_markdown())


def test_unknown_options_of_topics_name_the_nearest() -> None:
    """40."""
    with pytest.raises(BrokerResponseError, match=r"Did you mean 'retention\.ms'") as caught:
        topic_settings(LogSettings(), {"retention.m": "1"})
    assert caught.value.code == 40
