"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs; codes are those of a real Kafka 4.3."""

from __future__ import annotations

import logging

import pytest
import trio
from support.broker.admin_talk import (
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    LOGGER,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    describe,
    replace,
    value_of,
)
from support.broker.broker_talk import Talk, batch, produce
from support.broker.steps import at_once
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from splashdam.wire.messages.list_config_resources import ListConfigResourcesRequest

T0 = TopicPartition("t", 0)


@pytest.fixture
async def talk(talk: Talk, broker: Broker) -> Talk:
    """A connection to a broker that has a topic."""
    broker.topics.create("t")
    return talk


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topic_is_described_whole(talk: Talk, version: int) -> None:
    """Every option, with its type and meaning from version 3 on, and where its value comes from."""
    code, entries = await describe(talk, TOPIC, "t", version=version)
    assert (code, len(entries)) == (0, 29)
    (policy,) = [entry for entry in entries if entry.name == "cleanup.policy"]
    assert (policy.value, policy.config_source, policy.read_only) == ("delete", 5, False)
    assert [(each.name, each.value, each.source) for each in policy.synonyms] == [
        ("log.cleanup.policy", "delete", 5)
    ]
    assert policy.config_type == (7 if version >= 3 else 0)
    assert bool(policy.documentation) == (version >= 3)


async def test_many_resources(talk: Talk) -> None:
    """Each is described, in order, and once: a small request makes no answer of any size."""
    names = [f"g{number}" for number in range(120)]
    asked = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in [(GROUP, name) for name in names] + [(BROKER, "1")] * 1_000
    ]
    answer = await talk.ask(DescribeConfigsRequest(resources=asked), 4)
    assert [each.resource_name for each in answer.results] == [*names, "1"]
    assert {each.error_code for each in answer.results} == {0}
    assert [each.name for each in answer.results[0].configs] == [
        "consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms",
    ]


async def test_where_values_come_from(talk: Talk, broker: Broker) -> None:
    """The topic, this broker, all brokers, the default: the first one counts, and all are named."""
    broker.configs.static = broker.configs.static.overlaid({"log.retention.hours": "3"})
    await alter(talk, BROKER, "", ("log.retention.ms", SET, "30"))
    await alter(talk, BROKER, "1", ("log.retention.ms", SET, "20"))
    below = [("log.retention.ms", "20", 2), ("log.retention.ms", "30", 3), ("log.retention.hours", "3", 4)]
    below.append(("log.retention.hours", "168", 5))
    assert await value_of(talk, TOPIC, "t", "retention.ms") == ("20", below)
    await alter(talk, TOPIC, "t", ("retention.ms", SET, "10"))
    assert await value_of(talk, TOPIC, "t", "retention.ms") == ("10", [("retention.ms", "10", 1), *below])
    await alter(talk, TOPIC, "t", ("retention.ms", DELETE, None))
    await alter(talk, BROKER, "1", ("log.retention.ms", DELETE, None))
    assert await value_of(talk, TOPIC, "t", "retention.ms") == ("30", below[1:])
    assert await value_of(talk, BROKER, "1", "log.retention.ms") == ("30", below[1:])
    assert await value_of(talk, BROKER, "", "log.retention.ms") == ("30", below[1:2])


async def test_secrets_are_not_shown(talk: Talk, broker: Broker) -> None:
    """Passwords and keys are named, and have no value; nor have settings that nobody here knows."""
    broker.configs.static = BrokerSettings.from_properties({"ssl.key.password": "secret"})
    assert await alter(talk, BROKER, "1", ("my.plugin.key", SET, "secret")) == 0
    for name, source in (("ssl.key.password", 4), ("my.plugin.key", 2)):
        _, (entry,) = await describe(talk, BROKER, "1", [name])
        assert (entry.value, entry.is_sensitive, entry.config_source) == (None, True, source)
        assert not any(each.value for each in entry.synonyms)
    assert "secret" not in repr(broker.settings)


async def test_tls_is_described_as_in_kafka(talk: Talk) -> None:
    """It may change, and the passwords that stores here do not have are secrets without a value."""
    for name in ("ssl.keystore.password", "ssl.truststore.password", "ssl.keystore.location"):
        _, (entry,) = await describe(talk, BROKER, "1", [name])
        is_password = name.endswith("password")
        assert (entry.value, entry.is_sensitive, entry.read_only) == (None, is_password, False)
        assert (entry.config_source, entry.synonyms, entry.config_type) == (5, [], 9 if is_password else 2)
        assert entry.documentation
        assert await alter(talk, BROKER, "1", (name, SET, "secret")) == 42


@pytest.mark.parametrize("name", ["super.users", "allow.everyone.if.no.acl.found"])
async def test_settings_of_the_authorizer_are_described_if_they_are_set(
    talk: Talk, broker: Broker, name: str
) -> None:
    """As in Kafka, whose broker has no such setting of its own."""
    assert await describe(talk, BROKER, "1", [name]) == (0, [])
    value = {"super.users": "User:anna"}.get(name, "true")
    broker.configs.static = BrokerSettings.from_properties({name: value})
    _, (entry,) = await describe(talk, BROKER, "1", [name])
    assert (entry.name, entry.value, entry.config_source) == (name, value, 4)


@pytest.mark.parametrize(("kind", "count"), [(CLIENT_METRICS, 3), (GROUP, 2)])
async def test_metrics_and_groups_are_documented(talk: Talk, kind: int, count: int) -> None:
    """Each key has a meaning of its own."""
    _, entries = await describe(talk, kind, "x")
    assert len({entry.documentation for entry in entries} - {"", None}) == count


async def test_lists_grow_and_shrink(talk: Talk) -> None:
    """They begin with the value in force; a repeated element counts once, a missing one can be removed."""
    name = "cleanup.policy"
    assert await alter(talk, TOPIC, "t", (name, APPEND, "compact")) == 0
    assert await alter(talk, TOPIC, "t", (name, APPEND, "compact")) == 0
    assert (await value_of(talk, TOPIC, "t", name))[0] == "delete,compact"
    assert await alter(talk, TOPIC, "t", (name, SUBTRACT, "delete")) == 0
    assert (await value_of(talk, TOPIC, "t", name))[0] == "compact"
    assert await alter(talk, TOPIC, "t", (name, DELETE, None)) == 0
    assert await alter(talk, TOPIC, "t", (name, DELETE, None)) == 0
    assert (await value_of(talk, TOPIC, "t", name))[0] == "delete"
    throttled = "follower.replication.throttled.replicas"
    assert await alter(talk, TOPIC, "t", (throttled, APPEND, "0:1,1:1")) == 0
    assert await alter(talk, TOPIC, "t", (throttled, SUBTRACT, "0:1")) == 0
    assert (await value_of(talk, TOPIC, "t", throttled))[0] == "1:1"


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "t", ("retention.ms", SET, "x"), 40),
        (TOPIC, "t", ("retention.ms", SET, ""), 40),
        (TOPIC, "t", ("retention.ms", SET, None), 42),
        (TOPIC, "t", ("retention.ms", APPEND, "1"), 40),
        (TOPIC, "t", ("retention.ms", 9, "1"), 42),
        (TOPIC, "t", ("nope", SET, "1"), 40),
        (TOPIC, "t", ("nope", DELETE, None), 0),
        (TOPIC, "t", ("min.compaction.lag.ms", SET, str(2**63 - 1)), 0),
        (TOPIC, "t", ("follower.replication.throttled.replicas", SET, "zz"), 40),
        (TOPIC, "t", ("remote.storage.enable", SET, "true"), 40),
        (TOPIC, "missing", ("retention.ms", SET, "1"), 3),
        (TOPIC, "", ("retention.ms", SET, "1"), 42),
        (BROKER, "1", ("node.id", SET, "3"), 42),
        (BROKER, "1", ("num.partitions", SET, "3"), 42),
        (BROKER, "1", ("log.retention.hours", SET, "3"), 42),
        (BROKER, "1", ("log.retention.ms", SET, "x"), 42),
        (BROKER, "1", ("message.max.bytes", SET, "-2"), 42),
        (BROKER, "1", ("num.io.threads", SET, "16"), 0),
        (BROKER, "1", ("nope", SET, "3"), 0),
        (BROKER, "1", ("ssl.keystore.password", SET, "secret"), 42),
        (BROKER, "", ("listeners", SET, "PLAINTEXT://x:1"), 42),
        (BROKER, "2", ("log.retention.ms", SET, "1"), 42),
        (BROKER, "x", ("log.retention.ms", SET, "1"), 42),
        (LOGGER, "1", ("kafka.nope", SET, "INFO"), 40),
        (LOGGER, "1", ("root", SET, "info"), 40),
        (LOGGER, "1", ("root", DELETE, None), 42),
        (LOGGER, "1", ("root", APPEND, "INFO"), 42),
        (LOGGER, "2", ("root", SET, "INFO"), 42),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "10"), 42),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "x"), 40),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "1" * 5000), 40),
        (CLIENT_METRICS, "m", ("match", SET, "zz=1"), 40),
        (CLIENT_METRICS, "m", ("match", SET, "client_id=("), 40),
        (CLIENT_METRICS, "m", ("nope", SET, "1"), 42),
        (CLIENT_METRICS, "", ("metrics", SET, "*"), 42),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "5"), 40),
        (GROUP, "g", ("nope", SET, "1"), 40),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), 42),
        (3, "x", ("a", SET, "1"), 42),
    ],
)
async def test_what_is_refused(
    talk: Talk, kind: int, name: str, change: tuple[str, int, str | None], code: int
) -> None:
    """Nothing has changed afterwards; with validate_only the answer is the same."""
    before = await describe(talk, kind, name)
    assert await alter(talk, kind, name, change, validate_only=True) == code
    assert await describe(talk, kind, name) == before
    assert await alter(talk, kind, name, change) == code
    if code:
        assert await describe(talk, kind, name) == before


async def test_a_resource_or_a_name_twice(talk: Talk) -> None:
    """42."""
    change = ("retention.ms", SET, "1")
    assert await alter(talk, TOPIC, "t", change, change) == 42
    assert await replace(talk, TOPIC, "t", {"retention.ms": None}) == 42
    assert await replace(talk, LOGGER, "1", {}) == 42


@pytest.mark.parametrize("version", range(3))
async def test_replacing_removes_configs_that_are_not_named(talk: Talk, version: int) -> None:
    """AlterConfigs, of every version."""
    await alter(talk, TOPIC, "t", ("segment.ms", SET, "5"), ("retention.ms", SET, "6"))
    assert await replace(talk, TOPIC, "t", {"retention.ms": "7"}, version, validate_only=True) == 0
    assert (await value_of(talk, TOPIC, "t", "segment.ms"))[0] == "5"
    assert await replace(talk, TOPIC, "t", {"retention.ms": "7"}, version) == 0
    assert (await value_of(talk, TOPIC, "t", "retention.ms"))[0] == "7"
    assert (await value_of(talk, TOPIC, "t", "segment.ms"))[0] == str(7 * 86_400_000)
    assert await replace(talk, TOPIC, "t", {"nope": "7"}, version) == 40


async def test_a_topics_options_take_effect_at_once(talk: Talk, broker: Broker) -> None:
    """The next batch is refused, or begins a new segment."""
    assert (await produce(talk, "t", batch(b"x" * 200))).error_code == 0
    await alter(talk, TOPIC, "t", ("max.message.bytes", SET, "100"))
    assert (await produce(talk, "t", batch(b"x" * 200))).error_code == 10
    await alter(talk, TOPIC, "t", ("max.message.bytes", DELETE, None), ("segment.bytes", SET, "300"))
    assert (await produce(talk, "t", batch(b"x" * 200))).error_code == 0
    assert len(broker.logs.logs[T0].segments) == 2


async def test_a_brokers_new_retention_takes_effect(
    talk: Talk, broker: Broker, autojump_clock: MockClock
) -> None:
    """Where the topic sets none: at the next look."""
    await produce(talk, "t", batch(b"x"))
    await alter(talk, BROKER, "", ("log.retention.ms", SET, "1"))
    assert broker.settings.topic_defaults.retention_ms == 1
    await trio.sleep(40)
    assert broker.logs.logs[T0].log_start_offset == 1


async def test_a_brokers_settings_take_effect_at_once(talk: Talk, broker: Broker) -> None:
    """Those of the cleaner and of the housekeeping among them; taken away, what was before counts again."""
    await alter(talk, BROKER, "1", ("log.cleaner.backoff.ms", SET, "7"), ("message.max.bytes", SET, "99"))
    assert broker.settings.directories.log_cleaner_backoff_ms == 7
    assert broker.logs.cleaner.settings.log_cleaner_backoff_ms == 7
    assert (await produce(talk, "t", batch(b"x" * 200))).error_code == 10
    await alter(
        talk, BROKER, "1", ("log.cleaner.backoff.ms", DELETE, None), ("message.max.bytes", DELETE, None)
    )
    assert broker.logs.cleaner.settings.log_cleaner_backoff_ms == 15_000
    assert (await produce(talk, "t", batch(b"x" * 200))).error_code == 0


async def test_dynamic_configs_survive_a_restart(autojump_clock: MockClock) -> None:
    """A crash, too: of topics, brokers, groups and client metrics."""
    network, files, clock = MemoryNetwork(), MemoryFiles(), VirtualClock(autojump_clock)
    for is_first in (True, False):
        async with open_broker(
            "/d", host="b", port=1, listen=network.listen, files=files, clock=clock
        ) as broker:
            talk = Talk(await network.connect("b", 1))
            if is_first:
                broker.topics.create("t")
                await alter(talk, TOPIC, "t", ("retention.ms", SET, "5"))
                await alter(talk, BROKER, "", ("log.segment.bytes", SET, "6000"))
                await alter(talk, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
                await alter(talk, CLIENT_METRICS, "m", ("metrics", SET, "a.,b."), ("interval.ms", SET, "200"))
            settings = broker.logs.logs[T0].settings
            assert (settings.retention_ms, settings.segment_bytes) == (5, 6000)
            assert broker.configs.of_group("g") == {"consumer.session.timeout.ms": "50000"}
            assert (await value_of(talk, GROUP, "g", "consumer.session.timeout.ms"))[0] == "50000"
            assert broker.telemetry.offered
            _, _, wanted = at_once(broker.telemetry.asked(bytes(15) + b"1", "c", 0))
            assert (wanted.metrics, wanted.interval_ms) == (("a.", "b."), 200)
            assert await listed(talk, 1, [CLIENT_METRICS, GROUP]) == [("m", CLIENT_METRICS), ("g", GROUP)]
        files.crash()


async def listed(talk: Talk, version: int, kinds: list[int]) -> object:
    answer = await talk.ask(ListConfigResourcesRequest(resource_types=kinds), version)
    if answer.error_code:
        return answer.error_code
    return [(each.resource_name, each.resource_type) for each in answer.config_resources]


async def test_resources_are_listed(talk: Talk) -> None:
    """Those of a kind, or all; version 0 knows client metrics alone."""
    await alter(talk, CLIENT_METRICS, "m", ("metrics", SET, ""))
    assert await listed(talk, 0, []) == [("m", 16)]
    assert await listed(talk, 1, [TOPIC]) == [("t", 2)]
    assert await listed(talk, 1, []) == [("t", 2), ("1", 4), ("1", 8), ("m", 16)]
    assert await listed(talk, 1, [3]) == 35
    await alter(talk, CLIENT_METRICS, "m", ("metrics", DELETE, None))
    assert await listed(talk, 0, []) == []


async def test_levels_of_loggers(talk: Talk) -> None:
    """The root is this package's; levels are the process's, and Kafka's in name."""
    name = "splashdam.embedded_broker.configs"
    logger = logging.getLogger(name)
    try:
        assert await alter(talk, LOGGER, "1", (name, SET, "TRACE"), validate_only=True) == 0
        assert logger.level == logging.NOTSET
        assert await alter(talk, LOGGER, "1", (name, SET, "DEBUG")) == 0
        assert logger.level == logging.DEBUG
        _, (entry,) = await describe(talk, LOGGER, "1", [name])
        assert (entry.value, entry.config_source) == ("DEBUG", 6)
        assert await alter(talk, LOGGER, "1", (name, DELETE, None)) == 0
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [(TOPIC, "missing", 3), (TOPIC, "", 17), (TOPIC, "bäd", 17), (BROKER, "2", 42), (BROKER, "x", 42),
     (BROKER, "9" * 5000, 42),
     (LOGGER, "", 42), (LOGGER, "2", 42), (CLIENT_METRICS, "", 42), (GROUP, "", 42), (0, "x", 42)],
)  # fmt: skip
async def test_resources_that_cannot_be_described(talk: Talk, kind: int, name: str, code: int) -> None:
    """The code beside no entries."""
    assert await describe(talk, kind, name) == (code, [])
