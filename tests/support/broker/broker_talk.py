"""Talks to a broker request by request, over any stream: what clients do, without a client's cleverness."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import trio

from splashdam.record.batch import iter_headers
from splashdam.record.reader import Record, read_records
from splashdam.record.sealing import build_batch
from splashdam.wire.framing import FrameDecoder
from splashdam.wire.header import decode_response, encode_request
from splashdam.wire.message import Request, Response
from splashdam.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from splashdam.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from splashdam.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from splashdam.wire.registry import API_KEYS

R = TypeVar("R", bound=Response)

MIB = 1 << 20
NOW_MS = 1_767_225_600_000  # the first record of a batch is of this time


class Talk:
    """One connection. Requests may be sent ahead; answers are read in order."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._decoder = FrameDecoder(100 * MIB)
        self._frames: list[memoryview] = []
        self._sent: list[tuple[int, type[Response], int]] = []
        self._next_id = 0

    async def send(self, request: Request[Any], version: int, *, answered: bool = True) -> None:
        """Sends one request."""
        await self.stream.send_all(self._frame_of(request, version, answered))

    async def send_together(self, *requests: Request[Any], version: int) -> None:
        """Sends requests that arrive at once."""
        await self.stream.send_all(b"".join(self._frame_of(each, version, True) for each in requests))

    def _frame_of(self, request: Request[Any], version: int, answered: bool) -> bytes:
        self._next_id += 1
        frame = encode_request(request, version=version, correlation_id=self._next_id, client_id="talk")
        if answered:
            self._sent.append((self._next_id, API_KEYS[request.API_KEY].response, version))
        return b"".join(frame)

    async def frame(self) -> bytes:
        """The next whole frame; EOFError at the end of the stream."""
        while not self._frames:
            data = await self.stream.receive_some(MIB)
            if not data:
                raise EOFError
            self._frames += self._decoder.feed(data)
        return bytes(self._frames.pop(0))

    async def answer(self) -> Any:
        """The next answer, which must belong to the oldest unanswered request."""
        correlation_id, kind, version = self._sent.pop(0)
        found_id, message = decode_response(await self.frame(), kind, version)
        assert found_id == correlation_id
        return message

    async def ask(self, request: Request[R], version: int) -> R:
        """Sends a request and waits for its answer."""
        await self.send(request, version)
        answer: R = await self.answer()
        return answer

    async def is_closed(self) -> bool:
        """Whether the broker closes the connection instead of answering."""
        try:
            await self.frame()
        except (EOFError, trio.BrokenResourceError):
            return True
        return False


def batch(*values: bytes, **fields: Any) -> bytes:
    """A record batch of values with null keys; ``fields`` as for ``build_batch``."""
    return build_batch([(NOW_MS + i, None, value, None) for i, value in enumerate(values)], **fields)


def produce_request(
    topic: str,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
    topic_id: bytes = bytes(16),
) -> ProduceRequest:
    """A Produce request with one batch; from version 13 on it names the topic by its id."""
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=partition, records=records)],
            )
        ],
    )


async def produce(
    talk: Talk, topic: str, records: bytes | None, *, version: int = 9, **fields: Any
) -> PartitionProduceResponse:
    """Produces one batch and returns the partition's answer."""
    answer = await talk.ask(produce_request(topic, records, **fields), version)
    return answer.responses[0].partition_responses[0]


def fetch_request(
    topic: str,
    offset: int,
    *,
    partitions: Iterable[int] = (0,),
    max_bytes: int = MIB,
    partition_max_bytes: int = MIB,
    topic_id: bytes = bytes(16),
    current_leader_epoch: int = -1,
    **fields: Any,
) -> FetchRequest:
    """A Fetch request for partitions of one topic."""
    return FetchRequest(
        max_bytes=max_bytes,
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=current_leader_epoch,
                    )
                    for partition in partitions
                ],
            )
        ],
        **fields,
    )


def fetched(answer: FetchResponse) -> list[PartitionData]:
    """The partitions of an answer about one topic."""
    return answer.responses[0].partitions


def records_of(data: Any) -> list[Record]:
    """The records of all whole batches."""
    return [record for position, _ in iter_headers(data) for record in read_records(data, position)]


def create_request(
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: dict[str, str | None] | None = None,
    validate_only: bool = False,
    **fields: Any,
) -> CreateTopicsRequest:
    """A CreateTopics request for one topic."""
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                configs=[
                    CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
                ],
                **fields,
            )
        ],
        validate_only=validate_only,
    )
