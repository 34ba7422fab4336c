"""Two brokers on a network in memory, with one topic whose partitions and failures a test decides."""

from __future__ import annotations

from typing import Any

import attrs
import trio

from splashdam.model.broker_errors import ErrorCode
from splashdam.net.memory import MemoryNetwork, MemoryStream
from splashdam.wire.message import Request, Response
from splashdam.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from splashdam.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from splashdam.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from splashdam.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from splashdam.wire.registry import API_KEYS
from support.clients.scripted_broker import ScriptedBroker

TOPIC = "topic"
TOPIC_ID = bytes(range(16))
PORTS = (1, 2)
"""Brokers 1 and 2 listen on ``broker:1`` and ``broker:2``."""


@attrs.define
class FakePartition:
    """One partition: who leads it, and what every Fetch answers."""

    leader: int
    records: bytes = b""
    end_offset: int = 0
    aborted: list[AbortedTransaction] | None = None


@attrs.define
class FakeCluster:
    """Answers like a cluster.

    Attributes:
        network: where it listens.
        partitions: by number.
        topic_error: what Metadata says of the topic.
        metadata_error: top-level code of every Metadata answer.
        topic_name: what the topic is called there.
        errors: codes that the next Fetch or ListOffsets partitions answer with, by node.
        fetch_error: top-level code of every Fetch.
        topic_id: its id; zero where the cluster is too old for one.
        asked: every request, with the node and the version.
    """

    network: MemoryNetwork = attrs.field(factory=MemoryNetwork)
    partitions: dict[int, FakePartition] = attrs.field(factory=dict)
    topic_error: int = 0
    metadata_error: int = 0
    topic_name: str = TOPIC
    errors: dict[int, list[int]] = attrs.field(factory=dict)
    fetch_error: int = 0
    topic_id: bytes = TOPIC_ID
    asked: list[tuple[int, Request[Any], int]] = attrs.field(factory=list)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serves until cancelled."""
        async with trio.open_nursery() as nursery:
            for port in PORTS:
                await nursery.start(self._listen, port)
            task_status.started()

    async def _listen(self, port: int, *, task_status: trio.TaskStatus[None]) -> None:
        async def serve(stream: MemoryStream) -> None:
            await self._serve(port, stream)

        listeners = await self.network.listen("broker", port)
        await trio.serve_listeners(serve, list(listeners), task_status=task_status)

    async def _serve(self, node: int, stream: MemoryStream) -> None:
        broker = ScriptedBroker(stream)
        try:
            while True:
                header, request = await broker.receive()
                self.asked.append((node, request, header.api_version))
                await broker.answer(header, self._answer(node, request))
        except (EOFError, trio.BrokenResourceError):
            return

    def _answer(self, node: int, request: Request[Any]) -> Response:
        if isinstance(request, ApiVersionsRequest):
            offer = [
                ApiVersion(api_key=api.key, min_version=api.versions[0], max_version=api.versions[-1])
                for api in API_KEYS.values()
            ]
            return ApiVersionsResponse(api_keys=offer)
        if isinstance(request, MetadataRequest):
            return self._metadata()
        if isinstance(request, ListOffsetsRequest):
            return self._offsets(node, request)
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        assert isinstance(request, FetchRequest)
        return self._records(node, request)

    def _metadata(self) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(partition_index=number, leader_id=partition.leader)
            for number, partition in self.partitions.items()
        ]
        topic = MetadataResponseTopic(
            name=self.topic_name, topic_id=self.topic_id, error_code=self.topic_error, partitions=partitions
        )
        brokers = [MetadataResponseBroker(node_id=port, host="broker", port=port) for port in PORTS]
        return MetadataResponse(error_code=self.metadata_error, brokers=brokers, topics=[topic])

    def _error(self, node: int, number: int) -> int:
        queued = self.errors.get(node)
        if queued:
            return queued.pop(0)
        return 0 if self.partitions[number].leader == node else 6

    def _offsets(self, node: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        answers = []
        for asked in request.topics[0].partitions:
            number = asked.partition_index
            offset = self.partitions[number].end_offset if asked.timestamp == -1 else 0
            answers.append(
                ListOffsetsPartitionResponse(
                    partition_index=number, error_code=self._error(node, number), offset=offset
                )
            )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=answers)])

    def _records(self, node: int, request: FetchRequest) -> FetchResponse:
        answers = []
        for asked in request.topics[0].partitions:
            partition = self.partitions[asked.partition]
            error = self._error(node, asked.partition)
            answers.append(
                PartitionData(
                    partition_index=asked.partition,
                    error_code=error,
                    high_watermark=partition.end_offset,
                    aborted_transactions=partition.aborted,
                    records=None if error else partition.records,
                )
            )
        topic = FetchableTopicResponse(topic=TOPIC, topic_id=self.topic_id, partitions=answers)
        return FetchResponse(error_code=self.fetch_error, responses=[topic])
