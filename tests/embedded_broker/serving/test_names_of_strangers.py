"""What clients name reaches the log on one line, escaped and short: nobody forges lines, or floods it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from support.broker.broker_talk import Talk, batch, produce_request
from trio.testing import MockClock

import splashdam.embedded_broker
from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock
from splashdam.wire.header import encode_request
from splashdam.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from splashdam.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from splashdam.wire.messages.end_txn import EndTxnRequest
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest
from splashdam.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from splashdam.wire.messages.heartbeat import HeartbeatRequest
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest
from splashdam.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from splashdam.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from splashdam.wire.messages.push_telemetry import PushTelemetryRequest
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest

HOSTILE = "evil\n1999-01-01 ERROR splashdam.embedded_broker: forged\x1b[31m\u202e\r" + "x" * 30_000
LONGEST_LINE = 2_000


def check(records: list[logging.LogRecord]) -> list[str]:
    """The lines, none of which is more than one, long, or anything a terminal acts upon."""
    lines = [record.getMessage() for record in records if record.name.startswith("splashdam")]
    for line in lines:
        assert line.isprintable(), line[:300]
        assert len(line) < LONGEST_LINE, line[:300]
    return lines


def join(**fields: Any) -> JoinGroupRequest:
    """A member of a classic group."""
    protocol = JoinGroupRequestProtocol(name=HOSTILE, metadata=b"")
    return JoinGroupRequest(
        **{
            "group_id": HOSTILE,
            "session_timeout_ms": 6_000,
            "rebalance_timeout_ms": 6_000,
            "protocol_type": HOSTILE,
            "protocols": [protocol],
            **fields,
        }
    )


REQUESTS: dict[str, tuple[Callable[[], Any], int]] = {
    "metadata": (
        partial(MetadataRequest, topics=[MetadataRequestTopic(name=HOSTILE)], allow_auto_topic_creation=True),
        9,
    ),
    "topic": (
        partial(
            CreateTopicsRequest, topics=[CreatableTopic(name=HOSTILE, num_partitions=1, replication_factor=1)]
        ),
        7,
    ),
    "option": (
        lambda: CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name="t",
                    num_partitions=1,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name=HOSTILE, value=HOSTILE)],
                )
            ]
        ),
        7,
    ),
    "coordinator": (partial(FindCoordinatorRequest, coordinator_keys=[HOSTILE], key_type=0), 4),
    "group": (join, 3),
    "instance": (partial(join, group_instance_id=HOSTILE), 5),
    "member": (partial(join, member_id=HOSTILE), 5),
    "heartbeat": (partial(HeartbeatRequest, group_id=HOSTILE, generation_id=1, member_id=HOSTILE), 4),
    "leave": (partial(LeaveGroupRequest, group_id=HOSTILE, members=[MemberIdentity(member_id=HOSTILE)]), 5),
    "consumer group": (
        partial(
            ConsumerGroupHeartbeatRequest,
            group_id=HOSTILE,
            member_id=HOSTILE,
            member_epoch=0,
            instance_id=HOSTILE,
            rebalance_timeout_ms=6_000,
            subscribed_topic_names=[HOSTILE],
            topic_partitions=[],
        ),
        1,
    ),
    "transactional id": (
        partial(InitProducerIdRequest, transactional_id=HOSTILE, transaction_timeout_ms=1_000),
        4,
    ),
    "end of a transaction": (
        partial(EndTxnRequest, transactional_id=HOSTILE, producer_id=7, producer_epoch=0, committed=True),
        3,
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_what_a_request_names(
    talk: Talk, broker: Broker, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Also what comes of it later: members whose session ends, transactions that are open too long."""
    caplog.set_level(logging.DEBUG, "splashdam")
    make, version = REQUESTS[name]
    await talk.send(make(), version)
    await trio.sleep(120)
    check(caplog.records)


async def test_the_lines_of_groups_say_whose_they_are(
    talk: Talk, broker: Broker, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The name is logged, at least its beginning."""
    caplog.set_level(logging.DEBUG, "splashdam")
    await talk.send(join(), 3)
    await trio.sleep(120)
    assert any(r"group 'evil\n1999" in line and "characters" in line for line in check(caplog.records))


async def test_acks_0_for_a_hostile_topic_name(
    talk: Talk, broker: Broker, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """acks=0 to a topic of that name closes the connection, and the log says which."""
    caplog.set_level(logging.DEBUG, "splashdam")
    await talk.send(produce_request(HOSTILE, batch(b"a"), acks=0), 9, answered=False)
    await trio.sleep(1)
    assert any(r"'evil\n1999" in line for line in check(caplog.records))


async def test_a_client_id(
    talk: Talk, broker: Broker, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is in the header of every request, and in lines about telemetry."""
    caplog.set_level(logging.DEBUG, "splashdam")
    push = PushTelemetryRequest(client_instance_id=b"i" * 16, subscription_id=1, metrics=b"")
    for number, request in enumerate([GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16)), push]):
        frame = encode_request(request, version=0, correlation_id=number, client_id=HOSTILE)
        await talk.stream.send_all(b"".join(frame))
    await trio.sleep(1)
    assert any(r"'evil\n1999" in line for line in check(caplog.records))


async def test_names_before_authentication(
    network: MemoryNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A mechanism that nobody has heard of."""
    caplog.set_level(logging.DEBUG, "splashdam")
    async with open_broker(
        "/data",
        listen=network.listen,
        clock=VirtualClock(autojump_clock),
        files=MemoryFiles(),
        listeners="SASL_PLAINTEXT://broker:9092",
        listener_security_protocol_map="SASL_PLAINTEXT:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="SCRAM-SHA-256",
    ):
        talk = Talk(await network.connect("broker", 9092))
        await talk.send(SaslHandshakeRequest(mechanism=HOSTILE), 1)
        await trio.sleep(10)
    assert any(r"'evil\n1999" in line for line in check(caplog.records))


FOREIGN = re.compile(
    r"\{[\w.]*(?:group_id|member_id|instance_id|transactional_id|client_id|principal|mechanism|topic|name)!r\}"
)


@pytest.mark.parametrize("room", ["groups", "transactions", "handlers", "authorization"])
def test_names_from_clients_are_quoted_in_one_way(room: str) -> None:
    """``!r`` escapes a name and does not shorten it."""
    folder = Path(splashdam.embedded_broker.__path__[0]) / room
    sources = {path.name: path.read_text() for path in folder.rglob("*.py")}
    assert sources
    found = {name: FOREIGN.findall(text) for name, text in sources.items() if FOREIGN.search(text)}
    found.pop("refusals.py", None)  # a class of ours
    assert not found
    logged = [name for name, text in sources.items() if re.search(r'_log\.\w+\(\s*"[^"]*%r', text)]
    assert not logged
