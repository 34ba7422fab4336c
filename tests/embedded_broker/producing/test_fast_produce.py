"""The fast path of Produce requests answers as the slow one, and leaves unusual requests to it."""

from __future__ import annotations

import struct

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.broker.broker_talk import Talk, batch, fetch_request, fetched, produce_request
from support.running.examples import examples

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.producing import fast_produce
from splashdam.embedded_broker.serving import client_connection
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.record.batch import INT16, stamp_crc
from splashdam.storage.files.memory import MemoryFiles
from splashdam.wire.header import encode_request
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.metadata import MetadataRequest
from splashdam.wire.messages.produce import PartitionProduceData, ProduceRequest

T0 = TopicPartition("t", 0)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The API keys of the requests that took the long way."""
    keys: list[int] = []
    dispatch = client_connection.dispatch

    def counted(frame: memoryview, *rest: object, **more: object) -> object:
        keys.append(struct.unpack_from(">h", frame)[0])
        return dispatch(frame, *rest, **more)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(client_connection, "dispatch", counted)
    return keys


def framed(request: ProduceRequest, version: int = 9, number: int = 1) -> bytes:
    return b"".join(encode_request(request, version=version, correlation_id=number, client_id="c"))


def with_attributes(bits: int) -> bytes:
    data = bytearray(batch(b"v"))
    INT16.pack_into(data, 21, bits)
    stamp_crc(data, 0, len(data))
    return bytes(data)


async def test_one_request_of_a_form_is_decoded(talk: Talk, broker: Broker, decoded: list[int]) -> None:
    """The others are known by their bytes, whatever their batches; their answers stay in order."""
    broker.topics.create("t", 2)
    sizes = [10, 200, 70_000, 1, 127, 128, 20_000]
    for version in (3, 7, 9, 11):
        for size in sizes:
            for partition in (0, 1):
                await talk.send(produce_request("t", batch(b"v" * size), partition=partition), version)
    for count in range(4 * len(sizes)):
        for partition in (0, 1):
            (answer,) = (await talk.answer()).responses[0].partition_responses
            assert (answer.index, answer.error_code, answer.base_offset) == (partition, 0, count)
    assert decoded == [0] * 8


async def test_cut_at_every_byte(talk: Talk, broker: Broker, decoded: list[int]) -> None:
    """Requests arrive in any pieces; each is answered once, in order."""
    broker.topics.create("t")
    frame = framed(produce_request("t", batch(b"v")))
    for cut in range(len(frame)):
        await talk.stream.send_all(frame[:cut])
        await talk.stream.send_all(frame[cut:])
        assert len(await talk.frame()) > 4
    assert broker.logs.logs[T0].log_end_offset == len(frame)
    assert decoded == [0]


async def test_closed_in_the_middle(talk: Talk, network: MemoryNetwork, broker: Broker) -> None:
    """Only batches that arrived whole are in the log."""
    broker.topics.create("t")
    frame = framed(produce_request("t", batch(b"v")))
    await talk.stream.send_all(frame * 3 + frame[:-1])
    for _ in range(3):
        await talk.frame()
    await talk.stream.aclose()
    other = Talk(await network.connect("broker", 9092))
    assert (await other.ask(produce_request("t", batch(b"v")), 9)).responses[0].partition_responses[
        0
    ].base_offset == 3


async def test_mixed_with_slow_requests(talk: Talk, broker: Broker, decoded: list[int]) -> None:
    """Fast and slow requests of one wake: answers keep their order, a parked fetch sees what was before."""
    broker.topics.create("t")
    for end in (1, 3):
        await talk.send_together(
            produce_request("t", batch(b"a")),
            fetch_request("t", end, min_bytes=1, max_wait_ms=500),
            produce_request("t", batch(b"b")),
            MetadataRequest(topics=[]),
            version=9,
        )
    answers = [await talk.answer() for _ in range(8)]
    offsets = [answers[at].responses[0].partition_responses[0].base_offset for at in (0, 2, 4, 6)]
    assert offsets == [0, 1, 2, 3]
    assert [fetched(answers[at])[0].high_watermark for at in (1, 5)] == [1, 3]
    assert answers[3].brokers
    assert answers[7].brokers


async def test_topic_ids(talk: Talk, broker: Broker, decoded: list[int]) -> None:
    """Produce 13: a form holds for one topic's id; for an id that nobody has any more the answer is 100."""
    for code in (0, 100):
        topic = broker.topics.create("t")
        if code == 0:
            topic_id = topic.topic_id
        for offset in range(3):
            answer = await talk.ask(produce_request("t", batch(b"v"), topic_id=topic_id), 13)
            (found,) = answer.responses
            (part,) = found.partition_responses
            assert (found.topic_id, part.error_code) == (topic_id, code)
            assert part.base_offset == (-1 if code else offset)
        topic = broker.topics.get("t")
        assert topic is not None
        broker.topics.delete(topic)
    assert decoded == [0, 0, 0, 0]
    answer = await talk.ask(produce_request("t", batch(b"v"), topic_id=topic_id), 13)
    assert answer.responses[0].partition_responses[0].error_code == 100


async def test_refusals_by_id(talk: Talk, broker: Broker, decoded: list[int]) -> None:
    """A refusal by the log names the topic by its id, too."""
    topic_id = broker.topics.create("t").topic_id
    rotten = bytearray(batch(b"v"))
    rotten[-1] ^= 1
    for records, code in ((batch(b"v"), 0), (bytes(rotten), 2)):
        (found,) = (await talk.ask(produce_request("t", records, topic_id=topic_id), 13)).responses
        assert (found.topic_id, found.partition_responses[0].error_code) == (topic_id, code)
    assert decoded == [0]


async def test_topic_that_goes_and_comes_back(talk: Talk, broker: Broker) -> None:
    """A form names a topic, not a log that may be gone."""
    codes = []
    for round_ in range(3):
        if round_ != 1:
            broker.topics.create("t")
        for _ in range(2):
            answer = await talk.ask(produce_request("t", batch(b"v")), 9)
            codes.append(answer.responses[0].partition_responses[0].error_code)
        if round_ == 0:
            topic = broker.topics.get("t")
            assert topic is not None
            broker.topics.delete(topic)
    assert codes == [0, 0, 3, 3, 0, 0]


async def test_acks_that_do_not_exist(talk: Talk, broker: Broker) -> None:
    """They are refused each time, not only when the request is new."""
    broker.topics.create("t")
    request = produce_request("t", batch(b"v"), acks=2)
    for _ in range(3):
        answer = await talk.ask(request, 9)
        assert answer.responses[0].partition_responses[0].error_code == 21
    assert broker.logs.logs[T0].log_end_offset == 0


async def test_another_api_with_the_bytes_of_a_form(talk: Talk, broker: Broker) -> None:
    """A form is one of produce requests: the same bytes under another key mean something else."""
    broker.topics.create("t")
    frame = bytearray(framed(produce_request("t", batch(b"v"))))
    await talk.stream.send_all(frame)
    await talk.frame()
    struct.pack_into(">h", frame, 4, ApiVersionsRequest.API_KEY)
    await talk.stream.send_all(frame)
    assert struct.unpack_from(">h", await talk.frame(), 4) == (35,)
    assert broker.logs.logs[T0].log_end_offset == 1


async def test_requests_without_a_form_are_not_studied_for_ever(
    talk: Talk, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that always asks for many partitions, or never wants an answer, costs a look and no more."""
    studied: list[object] = []
    monkeypatch.setattr(fast_produce, "template_of", lambda *args: studied.append(args[2]))
    broker.topics.create("t", 2)
    request = produce_request("t", batch(b"v"))
    request.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=batch(b"v")))
    for number in range(200):
        (topic,) = (await talk.ask(request, 9)).responses
        assert [each.base_offset for each in topic.partition_responses] == [number, number]
    assert 0 < len(studied) < 100


async def test_a_template_learned_from_one_client_serves_all(
    talk: Talk, network: MemoryNetwork, broker: Broker, decoded: list[int]
) -> None:
    """200 clients on 1,000 partitions in turn spent most of the time with learning, each for itself."""
    broker.topics.create("t", 3)
    frames = [produce_request("t", batch(b"v"), partition=partition) for partition in range(3)]
    for frame in frames:
        await talk.ask(frame, 9)
    for client_id in ("", "another client", None):
        other = Talk(await network.connect("broker", 9092))
        for frame in frames:
            parts = encode_request(frame, version=9, correlation_id=5, client_id=client_id)
            await other.stream.send_all(b"".join(parts))
            assert len(await other.frame()) > 4
    assert decoded == [0, 0, 0]
    assert {log.log_end_offset for log in broker.logs.logs.values()} == {4}


async def test_more_partitions_than_forms_are_kept(
    talk: Talk, broker: Broker, decoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of forms has an end; requests are answered all the same, and most are known still."""
    monkeypatch.setattr(fast_produce, "_MAX_TEMPLATES", 30)
    broker.topics.create("t", 40)
    for partition in [*range(40)] * 5:
        answer = await talk.ask(produce_request("t", batch(b"v"), partition=partition), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    assert len(broker.produce_templates.by_version[9]) == 30
    assert 40 < len(decoded) < 120
    for length in range(1, 8):
        answer = await talk.ask(produce_request("x" * length, batch(b"v")), 9)
        assert answer.responses[0].partition_responses[0].error_code == 3


BATCHES = st.one_of(
    st.sampled_from(
        [
            batch(b"v"),
            batch(b"v" * 300, b"w"),
            b"",
            b"short",
            bytes(61),
            batch(b"v") + b"more",
            batch(b"v")[:-1] + b"x",
            *(with_attributes(bits) for bits in (0x04, 0x07, 0x08, 0x10, 0x20)),
        ]
    ),
    st.builds(
        lambda producer, sequence: batch(
            b"v", producer_id=producer, producer_epoch=0, base_sequence=sequence
        ),
        st.integers(1, 2),
        st.integers(-1, 4),
    ),
)


async def _answers(frames: list[bytes]) -> list[bytes]:
    network = MemoryNetwork()
    async with open_broker("/data", host="b", port=1, listen=network.listen, files=MemoryFiles()) as broker:
        broker.topics.create("t")
        talk = Talk(await network.connect("b", 1))
        for frame in frames:
            await talk.stream.send_all(frame)
        return [await talk.frame() for _ in frames]


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    requests=st.lists(
        st.tuples(
            st.sampled_from(["t", "missing"]),
            st.sampled_from([3, 6, 7, 9, 11]),
            BATCHES,
            st.sampled_from([-1, 1, 2, -2]),
        ),
        min_size=1,
        max_size=25,
    )
)
def test_both_ways_answer_alike(
    requests: list[tuple[str, int, bytes, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Good batches, repeats, gaps, damage and what is refused: byte for byte the same answers."""
    frames = [
        framed(produce_request(topic, records, acks=acks), version, number)
        for number, (topic, version, records, acks) in enumerate(requests)
    ]
    fast = trio.run(_answers, frames)
    with monkeypatch.context() as patch:
        patch.setattr(client_connection.FastProduce, "answer", lambda *_: None)
        assert trio.run(_answers, frames) == fast
