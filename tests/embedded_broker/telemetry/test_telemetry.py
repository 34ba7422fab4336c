"""KIP-714 on the broker's side: subscriptions, clients that ask or push too often, and what is kept."""

from __future__ import annotations

import gzip
import uuid
from typing import Any

import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.steps import at_once
from support.broker.turn_count import count_turns
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.execution.answers import Account
from splashdam.embedded_broker.telemetry.client_metrics import MOST_CLIENTS, ClientTelemetry
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.errors import KafkaConfigurationError
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from splashdam.wire.messages.push_telemetry import PushTelemetryRequest

NO_ID = bytes(16)
SOME_ID = uuid.UUID(int=7).bytes


async def offered(talk: Talk) -> set[int]:
    request = ApiVersionsRequest(client_software_name="talk", client_software_version="1.0")
    return {each.api_key for each in (await talk.ask(request, 4)).api_keys}


async def ask(talk: Talk, instance_id: bytes = NO_ID) -> Any:
    return await talk.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)


async def push(talk: Talk, answer: Any, **changes: Any) -> int:
    fields = {
        "client_instance_id": answer.client_instance_id,
        "subscription_id": answer.subscription_id,
        "metrics": b"some",
        **changes,
    }
    code: int = (await talk.ask(PushTelemetryRequest(**fields), 0)).error_code
    return code


async def test_the_apis_are_offered_once_somebody_wants_metrics(broker: Broker, talk: Talk) -> None:
    assert not {71, 72} & await offered(talk)
    broker.telemetry.subscribe()
    assert {71, 72} <= await offered(talk)


async def test_a_client_without_subscription_gets_an_empty_one(talk: Talk) -> None:
    """No subscription: an id, and no metrics."""
    answer = await ask(talk)
    assert answer.error_code == 0
    assert answer.client_instance_id != NO_ID
    assert (answer.requested_metrics, answer.push_interval_ms) == ([], 300_000)


async def test_subscriptions_are_put_together(broker: Broker, talk: Talk) -> None:
    """All metrics that match, at the shortest interval; those for other clients do not count."""
    telemetry = broker.telemetry
    telemetry.subscribe("one", metrics=["b", "a"], interval_ms=5_000)
    telemetry.subscribe("two", metrics=["c"], interval_ms=2_000, match={"client_id": "ta.."})
    telemetry.subscribe("three", metrics=["d"], interval_ms=100, match={"client_id": "tal"})
    answer = await ask(talk)
    assert (answer.requested_metrics, answer.push_interval_ms) == (["a", "b", "c"], 2_000)
    assert (answer.delta_temporality, answer.telemetry_max_bytes) == (True, 1_048_576)
    assert set(answer.accepted_compression_types) == {1, 2, 3, 4}
    telemetry.subscribe("two", metrics=["*"])
    assert (await ask(talk, answer.client_instance_id)).requested_metrics == ["*"]
    telemetry.unsubscribe("one")
    telemetry.unsubscribe("two")
    assert (await ask(talk, answer.client_instance_id)).requested_metrics == []


async def test_pushed_metrics_are_kept(broker: Broker, talk: Talk, autojump_clock: MockClock) -> None:
    """Decompressed, with who pushed it; the last one ends it."""
    heard: list[Any] = []
    broker.telemetry.on_push = heard.append
    broker.telemetry.subscribe(interval_ms=1_000)
    answer = await ask(talk)
    assert await push(talk, answer) == 0
    await trio.sleep(1)
    assert await push(talk, answer, metrics=gzip.compress(b"more"), compression_type=1) == 0
    assert await push(talk, answer, metrics=b"last", terminating=True) == 0
    assert [each.metrics for each in heard] == [b"some", b"more", b"last"]
    assert list(broker.telemetry.pushes) == heard
    assert [each.terminating for each in heard] == [False, False, True]
    assert {each.client_instance_id.bytes for each in heard} == {bytes(answer.client_instance_id)}
    assert heard[0].client_id == "talk"
    await trio.sleep(1)
    assert await push(talk, answer) == ErrorCode.INVALID_REQUEST


async def test_too_often_is_refused(broker: Broker, talk: Talk, autojump_clock: MockClock) -> None:
    """One push after a question, then one per interval; and no question before its end."""
    broker.telemetry.subscribe(interval_ms=1_000)
    answer = await ask(talk)
    assert (await ask(talk, answer.client_instance_id)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert await push(talk, answer) == 0
    await trio.sleep(0.9)
    assert await push(talk, answer) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    await trio.sleep(0.1)
    assert await push(talk, answer) == 0
    await trio.sleep(1)
    assert (await ask(talk, answer.client_instance_id)).error_code == 0


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"client_instance_id": NO_ID}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(1_048_577)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"no gzip", "compression_type": 1}, ErrorCode.INVALID_RECORD),
    ],
)
async def test_a_push_that_is_wrong(broker: Broker, talk: Talk, changes: dict[str, Any], code: int) -> None:
    """Kafka's code for each; nothing is kept."""
    broker.telemetry.subscribe()
    assert await push(talk, await ask(talk), **changes) == code
    assert not broker.telemetry.pushes


@pytest.mark.parametrize("changes", [{"subscription_id": 1}, {"compression_type": 9}])
async def test_a_client_that_must_subscribe_again_is_not_throttled(
    broker: Broker, talk: Talk, changes: dict[str, Any]
) -> None:
    broker.telemetry.subscribe()
    answer = await ask(talk)
    assert await push(talk, answer, **changes)
    assert (await ask(talk, answer.client_instance_id)).error_code == 0


async def test_a_changed_subscription_has_another_id(broker: Broker, talk: Talk) -> None:
    """A push for the old one is refused with 117, and the new one can be asked for at once."""
    broker.telemetry.subscribe(metrics=["a"])
    before = await ask(talk)
    broker.telemetry.subscribe(metrics=["b"])
    assert await push(talk, before) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    after = await ask(talk, before.client_instance_id)
    assert (after.error_code, after.requested_metrics) == (0, ["b"])
    assert await push(talk, after) == 0


async def test_a_push_was_decompressed_in_the_loop(broker: Broker, talk: Talk) -> None:
    """1 KB of it may be a megabyte: that is done beside the loop."""
    broker.telemetry.subscribe()
    before = broker.turns.beside
    assert await push(talk, await ask(talk), metrics=gzip.compress(bytes(1 << 20)), compression_type=1) == 0
    assert broker.turns.beside == before + 1


async def test_all_subscriptions_were_tried_in_one_step(
    broker: Broker, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their patterns are compiled and tried for each client, in turns."""
    pattern = ".?" * 100 + "k"
    for number in range(20):
        broker.telemetry.subscribe(f"s{number}", metrics=[f"m{number}"], match={"client_id": pattern})
    await talk.ask(ApiVersionsRequest(), 0)
    turns = count_turns(broker, monkeypatch)
    assert len((await ask(talk)).requested_metrics) == 20
    assert turns


async def test_all_letters_of_a_client_id_were_tried_in_the_loop(broker: Broker, talk: Talk) -> None:
    """A class of a subscription's pattern looks at each: 10,000 took 40 ms, counted as one unit."""
    broker.telemetry.subscribe(match={"client_id": r"(?i)[a-z]\pL*"})
    before = broker.turns.beside
    letters = "".join(map(chr, range(0x4E00, 0x4E00 + 10_000)))
    asked = broker.telemetry.asked(NO_ID, letters, broker.clock.now_ms())
    _, _, wanted = await broker.turns.finish_steps(asked, Account())
    assert not wanted.metrics
    assert broker.turns.beside == before + 1
    assert (await ask(talk)).requested_metrics == ["*"]
    assert broker.turns.beside == before + 1  # a short one is not worth a thread


async def test_pushes_of_zeros_do_not_fill_the_memory(broker: Broker, talk: Talk) -> None:
    """15 KB may hold 15 MiB: at most 64 MiB are kept, of many clients together; more at once is refused."""
    broker.telemetry.subscribe()
    zeros = gzip.compress(bytes(15 << 20), 1)
    for _ in range(6):
        assert await push(talk, await ask(talk), metrics=zeros, compression_type=1) == 0
    assert sum(len(each.metrics) for each in broker.telemetry.pushes) == 60 << 20
    more = gzip.compress(bytes(17 << 20), 1)
    assert await push(talk, await ask(talk), metrics=more, compression_type=1) == ErrorCode.INVALID_RECORD


def test_clients_are_forgotten_the_oldest_first() -> None:
    telemetry = ClientTelemetry(1_000)
    telemetry.subscribe()
    for number in range(1, MOST_CLIENTS + 3):
        at_once(telemetry.asked(uuid.UUID(int=number).bytes, "", 0))
    assert len(telemetry._clients) == MOST_CLIENTS
    at_once(telemetry.asked(uuid.UUID(int=1).bytes, "", 0))  # it is new again, and not throttled


def test_a_hostile_client_id_ends_in_bounded_time() -> None:
    """It cannot make a pattern be tried for ever: letter by letter all ways are followed at once."""
    telemetry = ClientTelemetry(1_000)
    telemetry.subscribe(match={"client_id": "(a*)*b"})
    assert at_once(telemetry.asked(uuid.UUID(int=1).bytes, "a" * 5_000 + "!", 0))[2].metrics == ()
    assert at_once(telemetry.asked(uuid.UUID(int=2).bytes, "a" * 50 + "b", 0))[2].metrics == ("*",)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"interval_ms": 99}, "must be 100 to"),
        ({"match": {"client_id": "a" * 1_001}}, "it has more than 1000 letters"),
        ({"match": {"rack": "a"}}, "'rack' is not one of client_instance_id, client_id"),
        ({"match": {"client_id": "("}}, "client_id='\\('"),
    ],
)
def test_illegal_subscriptions(options: dict[str, Any], text: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=text):
        ClientTelemetry(1_000).subscribe(**options)
