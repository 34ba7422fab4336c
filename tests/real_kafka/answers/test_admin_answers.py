"""The same requests about topics and configurations to a real Kafka and to ours: the same answers.

Where ours are meant to be others, `docs/decisions/configurations.md` says so, and so do the tables here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from support.broker.admin_talk import (
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    describe,
    grow,
    page,
    replace,
)
from support.broker.broker_talk import Talk, create_request
from support.kafka.kafka_jars import KafkaBroker

from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.net.addresses import parse_bootstrap_servers

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

OTHER_TOPIC_OPTIONS = {
    "min.insync.replicas",  # it sets a default for the cluster
    "errors.deadletterqueue.group.enable",  # of share groups, since 4.4
    "max.decompressed.message.bytes",  # of one record, since 4.4
}

CHANGES: list[tuple[int, str, tuple[str, int, str | None]]] = [
    (TOPIC, "t", ("retention.ms", SET, " 1000 ")),
    (TOPIC, "t", ("retention.ms", SET, "x")),
    (TOPIC, "t", ("retention.ms", SET, None)),
    (TOPIC, "t", ("retention.ms", APPEND, "1")),
    (TOPIC, "t", ("nope", SET, "1")),
    (TOPIC, "t", ("nope", DELETE, None)),
    (TOPIC, "t", ("cleanup.policy", APPEND, "compact")),
    (TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")),
    (TOPIC, "t", ("cleanup.policy", SET, "bogus")),
    (TOPIC, "missing", ("retention.ms", SET, "1")),
    (TOPIC, "", ("retention.ms", SET, "1")),
    (BROKER, "1", ("log.retention.ms", SET, "9000")),
    (BROKER, "", ("log.retention.ms", SET, "8000")),
    (BROKER, "1", ("log.retention.ms", SET, "x")),
    (BROKER, "1", ("node.id", SET, "3")),
    (BROKER, "1", ("num.partitions", SET, "3")),
    (BROKER, "1", ("log.retention.hours", SET, "3")),
    (BROKER, "1", ("ssl.keystore.password", SET, "x")),
    (BROKER, "", ("listeners", SET, "PLAINTEXT://x:1")),
    (BROKER, "2", ("log.retention.ms", SET, "1")),
    (BROKER, "x", ("log.retention.ms", SET, "1")),
    (CLIENT_METRICS, "m", ("metrics", SET, "a.,b.")),
    (CLIENT_METRICS, "m", ("interval.ms", SET, "10")),
    (CLIENT_METRICS, "m", ("match", SET, "zz=1")),
    (CLIENT_METRICS, "m", ("nope", SET, "1")),
    (GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")),
    (GROUP, "g", ("consumer.session.timeout.ms", SET, "5")),
    (GROUP, "g", ("nope", SET, "1")),
    (3, "x", ("a", SET, "1")),
]


async def asked(servers: str) -> list[Any]:
    """All answers of one broker."""
    ((host, port),) = parse_bootstrap_servers(servers)
    said: list[Any] = []
    async with await trio.open_tcp_stream(host, port) as stream:
        talk = Talk(stream)
        for name in ("t", "t", "a.b", "a_b", "bäd", "", "x" * 249, "x" * 250):
            (result,) = (await talk.ask(create_request(name, partitions=2, replication_factor=1), 7)).topics
            said.append((name, result.error_code))
        await trio.sleep(1)
        said += [(count, await grow(talk, "t", count)) for count in (2, 1, 3)]
        said += [await grow(talk, "t", 4, each) for each in ([[7]], [[1], [1]], [], [[]], [[1, 1]])]
        said.append(await entries(talk, TOPIC, "t", OTHER_TOPIC_OPTIONS))
        for kind, name, change in CHANGES:
            said.append((kind, name, change, await alter(talk, kind, name, change)))
            await trio.sleep(0.2)  # a real broker follows its controller
        said.append(await entries(talk, TOPIC, "t", OTHER_TOPIC_OPTIONS))
        said.append(await replace(talk, TOPIC, "t", {"segment.ms": "7000"}))
        await trio.sleep(0.2)
        said.append(await entries(talk, TOPIC, "t", OTHER_TOPIC_OPTIONS))
        said.append(await entries(talk, CLIENT_METRICS, "m"))
        said.append(await page(talk, limit=4))
        said.append(await page(talk, limit=4, cursor=("t", 1)))
        said.append(await page(talk, "t", cursor=("zzz", 0)))
    return said


async def entries(talk: Talk, kind: int, name: str, left_out: set[str] | None = None) -> list[Any]:
    """Names, values, types and sources, synonyms included; tiered storage, which is not here, left out."""
    _, found = await describe(talk, kind, name)
    return [
        (
            each.name,
            each.value,
            each.config_type,
            each.config_source,
            each.read_only,
            each.is_sensitive,
            *((synonym.name, synonym.value, synonym.source) for synonym in each.synonyms),
        )
        for each in found
        if each.name not in (left_out or set()) and not each.name.startswith(("remote.", "local."))
    ]


def test_the_same_answers(broker: KafkaBroker, version: str, tmp_path: Path) -> None:
    """Compared with a Kafka that has all of these APIs."""
    if version.startswith("3."):
        pytest.skip("groups have configurations since Kafka 4.0")
    with EmbeddedBroker(tmp_path / "ours", auto_create_topics_enable=False) as ours:
        for theirs, own in zip(
            trio.run(asked, broker.bootstrap_servers), trio.run(asked, ours.bootstrap_servers), strict=True
        ):
            assert own == theirs
