"""Quotas over the wire: what is set holds at once, answers tell the time, and the connection is not heard."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from support.broker.broker_talk import (
    Talk,
    batch,
    create_request,
    fetch_request,
    fetched,
    produce,
    produce_request,
)
from support.broker.quota_talk import alter
from support.running.patches import perhaps
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.quotas.client_quotas import ClientQuotas
from splashdam.embedded_broker.quotas.store import QuotaStore
from splashdam.embedded_broker.serving import client_connection
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock
from splashdam.wire.message import Response
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.delete_topics import DeleteTopicsRequest
from splashdam.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from splashdam.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from splashdam.wire.primitives import Part


async def described(talk: Talk, *components: ComponentData, strict: bool = False) -> list[object]:
    """Entities and their quotas."""
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    answer = await talk.ask(request, 1)
    assert answer.entries is not None, answer.error_message
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]


@pytest.fixture
async def admin(broker: Broker, network: MemoryNetwork) -> AsyncIterator[Talk]:
    """Another connection."""
    async with await network.connect("broker", 9092) as stream:
        yield Talk(stream)


async def test_a_producer_is_slowed_down(
    talk: Talk, admin: Talk, broker: Broker, autojump_clock: MockClock
) -> None:
    """KIP-219: the answer comes at once and says how long; further requests are heard after that."""
    broker.topics.create("t")
    await produce(talk, "t", batch(bytes(100)))  # its form is known from here on
    assert await alter(admin, {"client-id": "talk"}, producer_byte_rate=1000) == 0
    answer = await talk.ask(produce_request("t", batch(bytes(20_000))), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert 9_000 < answer.throttle_time_ms < 11_000  # (2000 - 1000) / 1000 · 10 s
    start = trio.current_time()
    await talk.ask(ApiVersionsRequest(), 0)
    assert trio.current_time() - start == pytest.approx(answer.throttle_time_ms / 1000, abs=0.01)
    assert (await admin.ask(ApiVersionsRequest(), 1)).throttle_time_ms == 0


@pytest.mark.parametrize("throttle_time_ms", [0, 500])
async def test_a_large_answer_is_encoded_beside_the_loop_under_quotas(
    talk: Talk,
    admin: Talk,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    throttle_time_ms: int,
) -> None:
    """The loop encoded it, and once more with the throttle time: 0.1 s of its time for 40,000 partitions."""
    await alter(admin, {"client-id": "talk"}, request_percentage=1.0)
    monkeypatch.setattr(ClientQuotas, "worked", lambda *_: throttle_time_ms)
    encode_answer = client_connection.encode_answer

    def refuse_large(answer: Response, **options: int) -> list[Part]:
        assert not isinstance(answer, DescribeProducersResponse)
        return encode_answer(answer, **options)

    monkeypatch.setattr(client_connection, "encode_answer", perhaps(refuse_large, because="small ones"))
    asked = TopicRequest(name="t", partition_indexes=list(range(5_000)))
    answer = await talk.ask(DescribeProducersRequest(topics=[asked]), 0)
    assert len(answer.topics[0].partitions) == 5_000
    assert answer.throttle_time_ms == throttle_time_ms


async def test_no_quota_any_more(talk: Talk, admin: Talk, broker: Broker, autojump_clock: MockClock) -> None:
    """The last one removed, everything is as before, and the connection learns again."""
    broker.topics.create("t")
    await alter(admin, {"client-id": "talk"}, producer_byte_rate=1)
    await alter(admin, {"client-id": "talk"}, producer_byte_rate=None)
    assert await described(admin) == []
    start = trio.current_time()
    for _ in range(3):
        assert (await talk.ask(produce_request("t", batch(bytes(20_000))), 9)).throttle_time_ms == 0
    assert trio.current_time() == start


async def test_acks_0_is_slowed_down_without_an_answer(
    talk: Talk, admin: Talk, broker: Broker, autojump_clock: MockClock
) -> None:
    """There is nobody to tell, but the next request is heard late."""
    broker.topics.create("t")
    await alter(admin, {"user": None}, producer_byte_rate=1000)
    await talk.send(produce_request("t", batch(bytes(20_000)), acks=0), 9, answered=False)
    start = trio.current_time()
    await talk.ask(ApiVersionsRequest(), 0)
    assert trio.current_time() - start > 9


async def test_a_fetch_that_comes_too_early_is_answered_empty(
    talk: Talk, admin: Talk, broker: Broker, autojump_clock: MockClock
) -> None:
    """The answer says when to fetch again; unsent bytes are not counted, so the next fetch gets records."""
    broker.topics.create("t")
    for _ in range(12):
        await produce(talk, "t", batch(bytes(1000)))
    await alter(admin, {"user": "ANONYMOUS"}, consumer_byte_rate=1000)
    first = await talk.ask(fetch_request("t", 0, partition_max_bytes=9_000), 11)
    assert len(bytes(fetched(first)[0].records)) > 5000
    assert first.throttle_time_ms == 0
    early = await talk.ask(fetch_request("t", 0, partition_max_bytes=9_000), 11)
    assert early.responses == []
    assert early.throttle_time_ms > 0
    late = await talk.ask(fetch_request("t", 0, partition_max_bytes=9_000), 11)
    start = trio.current_time()
    while not late.responses:
        late = await talk.ask(fetch_request("t", 0, partition_max_bytes=9_000), 11)
        assert trio.current_time() - start < 60
    assert len(bytes(fetched(late)[0].records)) > 5000


async def test_a_session_does_not_lose_the_news_of_an_answer_that_is_not_sent(
    talk: Talk, admin: Talk, broker: Broker, autojump_clock: MockClock
) -> None:
    """A partition without records is told of once: not in the answer that was withheld, but in the next."""
    broker.topics.create("t", 2)
    for _ in range(12):
        await produce(talk, "t", batch(bytes(1000)))
    await alter(admin, {"user": "ANONYMOUS"}, consumer_byte_rate=1000)
    first = fetch_request("t", 0, partitions=[0], partition_max_bytes=9_000, session_epoch=0)
    session_id = (await talk.ask(first, 11)).session_id
    assert session_id > 0
    withheld = await talk.ask(first, 11)
    assert (withheld.session_id, withheld.responses, len(broker.fetch_sessions)) == (0, [], 1)
    asked = {"partitions": [0, 1], "partition_max_bytes": 9_000, "session_id": session_id}
    early = await talk.ask(fetch_request("t", 0, **asked, session_epoch=1), 11)
    assert (early.session_id, early.responses) == (session_id, [])
    epoch = 2
    late = early
    while not late.responses:
        late = await talk.ask(fetch_request("t", 0, **asked, session_epoch=epoch), 11)
        epoch += 1
    assert sorted(each.partition_index for each in fetched(late)) == [0, 1]


async def test_mutations_are_refused_while_some_are_owed(
    talk: Talk, admin: Talk, autojump_clock: MockClock
) -> None:
    """KIP-599: what exceeds is made still, the next is 89 with the time; old versions are slowed down."""
    await alter(admin, {"client-id": "talk"}, controller_mutation_rate=1)
    made = await talk.ask(create_request("a", partitions=20, replication_factor=1), 6)
    assert (made.topics[0].error_code, made.throttle_time_ms) == (0, 0)  # 11 were there, 9 are owed
    refused = await talk.ask(create_request("b", partitions=1, replication_factor=1), 6)
    assert refused.topics[0].error_code == 89
    assert refused.throttle_time_ms == pytest.approx(9000, abs=10)
    start = trio.current_time()
    made = await talk.ask(create_request("b", partitions=5, replication_factor=1), 6)
    assert made.topics[0].error_code == 0
    assert trio.current_time() - start == pytest.approx(9, abs=0.1)
    slowed = await talk.ask(DeleteTopicsRequest(topic_names=["b"], timeout_ms=1000), 4)
    assert slowed.responses[0].error_code == 0
    assert slowed.throttle_time_ms > 9000


async def test_describe(talk: Talk, autojump_clock: MockClock) -> None:
    """By name, default, any of a type, strict or not; and what is refused."""
    assert await alter(talk, {"user": "anna"}, producer_byte_rate=10, request_percentage=1.5) == 0
    assert await alter(talk, {"user": "anna", "client-id": None}, consumer_byte_rate=20) == 0
    assert await alter(talk, {"ip": None}, connection_creation_rate=5) == 0
    anna = ({"user": "anna"}, {"producer_byte_rate": 10, "request_percentage": 1.5})
    both = ({"user": "anna", "client-id": None}, {"consumer_byte_rate": 20})
    exact = ComponentData(entity_type="user", match_type=0, match="anna")
    default = ComponentData(entity_type="client-id", match_type=1, match=None)
    assert await described(talk, exact, strict=True) == [anna]
    assert await described(talk, exact) == [anna, both]
    assert await described(talk, exact, default, strict=True) == [both]
    any_ip = ComponentData(entity_type="ip", match_type=2, match=None)
    assert await described(talk, any_ip) == [({"ip": None}, {"connection_creation_rate": 5})]
    for wrong in (
        [any_ip, exact],
        [exact, exact],
        [ComponentData(entity_type="user", match_type=0, match=None)],
    ):
        answer = await talk.ask(DescribeClientQuotasRequest(components=wrong), 0)
        assert (answer.error_code, answer.entries) == (42, None)
    unknown = ComponentData(entity_type="group", match_type=2, match=None)
    assert (await talk.ask(DescribeClientQuotasRequest(components=[unknown]), 0)).error_code == 35


async def test_a_refused_change_changes_nothing(talk: Talk, autojump_clock: MockClock) -> None:
    """One wrong value, and the entity stays as it was; validate_only likewise."""
    assert await alter(talk, {"user": "u"}, producer_byte_rate=10, consumer_byte_rate=-1) == 42
    assert await alter(talk, {"user": "u"}, connection_creation_rate=1) == 42
    assert await alter(talk, {"user": "u", "ip": "::1"}, producer_byte_rate=1) == 42
    assert await alter(talk, {"user": "u"}, validate_only=True, producer_byte_rate=1) == 0
    assert await described(talk) == []


async def test_quotas_survive(files: MemoryFiles, network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """The next broker of the directory holds its clients to them from the first request on."""
    clock = VirtualClock(autojump_clock)
    for throttled in (False, True):
        async with open_broker(
            "/data", host="b", port=1, listen=network.listen, clock=clock, files=files
        ) as broker:
            talk = Talk(await network.connect("b", 1))
            if not throttled:
                broker.topics.create("t")
            answer = await talk.ask(produce_request("t", batch(bytes(20_000))), 9)
            assert (answer.throttle_time_ms > 0) is throttled
            if not throttled:
                await alter(talk, {"client-id": None}, producer_byte_rate=1000)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"version": 1, "quotas": [{"entity": {"user": "u"}, "values": {"producer_byte_rate": 1%s}}]}'
        % (b"0" * 400),
    ],
)
def test_a_file_that_holds_no_quotas(files: MemoryFiles, data: bytes) -> None:
    """It is named, whatever is in it."""
    files.make_directory("/data")
    files.write_atomic("/data/splashdam-quotas.json", data)
    with pytest.raises(KafkaStorageError, match=r"splashdam-quotas\.json does not hold quotas"):
        QuotaStore(files, "/data", lambda _: None)


async def test_a_client_that_leaves_while_muted_is_forgotten(
    talk: Talk, admin: Talk, broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """A connection in its waiting time ends with its stream, however long that time is."""
    broker.topics.create("t")
    await alter(admin, {"client-id": "talk"}, producer_byte_rate=1)
    async with await network.connect("broker", 9092) as stream:
        assert (
            await Talk(stream).ask(produce_request("t", batch(bytes(900_000))), 9)
        ).throttle_time_ms > 10**6
