"""The same transactional requests, answered by a real Kafka and by our broker: the same codes and epochs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.transaction_talk import RawProducer
from support.kafka.kafka_jars import KafkaBroker, classpath
from support.kafka.kafka_reading import make_topic

from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
OFTEN = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
NOT_NOW = frozenset({14, 15, 16, 19, 51})
_TRIES, _PAUSE_SECONDS = 100, 0.05


async def settled(ask: Callable[[], Awaitable[int]]) -> int:
    """The first answer that is more than "not now"."""
    for _ in range(_TRIES):
        code = await ask()
        if code not in NOT_NOW:
            return code
        await trio.sleep(_PAUSE_SECONDS)
    return code


async def added(producer: RawProducer) -> int:
    """The code for the topic's only partition."""
    (code,) = await producer.add(0)
    return code


async def found_coordinator(talk: Talk) -> int:
    """FindCoordinator; Kafka makes ``__transaction_state`` when it is asked for the first time."""
    (found,) = (await talk.ask(FindCoordinatorRequest(coordinator_keys=["one"], key_type=1), 4)).coordinators
    return found.error_code


async def answers(servers: str, *, uses_v2: bool) -> list[object]:
    """What a broker with a topic ``t`` answers to producers that do right and wrong."""
    host, _, port = servers.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        talk = Talk(stream)
        assert await settled(lambda: found_coordinator(talk)) == 0
        return [
            *await _one_producer(RawProducer(talk, "one", uses_v2)),
            *await _two_producers(RawProducer(talk, "two", uses_v2), RawProducer(talk, "two", uses_v2)),
            *await _late_producer(RawProducer(talk, "late", uses_v2), is_commit=True),
            *await _late_producer(RawProducer(talk, "later", uses_v2), is_commit=False),
        ]


async def _begin(producer: RawProducer) -> list[object]:
    codes: list[object] = []
    if not producer.uses_v2:
        codes.append(await settled(lambda: added(producer)))
    return [*codes, await settled(lambda: producer.write(b"v"))]


async def _one_producer(producer: RawProducer) -> list[object]:
    found: list[object] = [
        await settled(producer.end),
        await settled(lambda: producer.initialize(timeout_ms=900_001)),
        await settled(producer.initialize),
        producer.epoch,
        await producer.end(),
        await producer.end(is_commit=False),
        producer.epoch,
    ]
    for is_commit in (True, False):
        found += await _begin(producer)
        before = producer.epoch
        found.append(await settled(lambda is_commit=is_commit: producer.end(is_commit=is_commit)))
        after, producer.epoch = producer.epoch, before
        found.append(await settled(lambda is_commit=is_commit: producer.end(is_commit=is_commit)))
        producer.epoch = before
        found.append(await settled(lambda is_commit=is_commit: producer.end(is_commit=not is_commit)))
        producer.epoch = after
        found.append(after)
    found += [await settled(lambda: producer.initialize(keeps=True)), producer.epoch]
    return found


async def _two_producers(old: RawProducer, new: RawProducer) -> list[object]:
    found: list[object] = [await settled(old.initialize), *await _begin(old)]
    found += [await settled(new.initialize), new.epoch]
    found += [await added(old), await old.add_offsets("g"), await old.write(b"late"), await old.end()]
    found += [await old.end(is_commit=False), await settled(lambda: old.initialize(keeps=True))]
    return [*found, *await _begin(new), await settled(new.end), new.epoch]


async def _late_producer(producer: RawProducer, *, is_commit: bool) -> list[object]:
    found: list[object] = [
        await settled(lambda: producer.initialize(timeout_ms=500)),
        *await _begin(producer),
    ]
    await trio.sleep(2.5)
    found.append(await settled(lambda: producer.write(b"late")))
    return [*found, await settled(lambda: producer.end(is_commit=is_commit)), producer.epoch]


@pytest.fixture
def broker(version: str, tmp_path: Path) -> KafkaBroker:
    """Not started; it looks often for transactions that are open for too long."""
    return KafkaBroker(version, tmp_path / "kafka", {OFTEN: "300"})


async def test_answers_are_kafkas(broker: KafkaBroker, tmp_path: Path) -> None:
    """Both protocols; before 4.0 Kafka has the older one alone."""
    classpath(broker.version)
    protocols = (False,) if broker.version.startswith("3.") else (False, True)
    broker.start()
    try:
        make_topic(broker.bootstrap_servers, "t")
        theirs = [await answers(broker.bootstrap_servers, uses_v2=uses_v2) for uses_v2 in protocols]
    finally:
        broker.stop()
    with EmbeddedBroker(tmp_path / "ours", config={OFTEN: "300"}) as ours:
        make_topic(ours.bootstrap_servers, "t")
        found = [await answers(ours.bootstrap_servers, uses_v2=uses_v2) for uses_v2 in protocols]
    assert found == theirs
