"""ProduceRequests: batches of one node into one request, and its answer back to the batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from splashdam.accumulator.batch import ProducerBatch
from splashdam.accumulator.compressions import BatchCompressions
from splashdam.model.broker_errors import UnsupportedCompressionTypeError
from splashdam.model.cluster import Node
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError, KafkaError, message_of
from splashdam.model.values import TopicPartition
from splashdam.record.batch import Codec
from splashdam.record.compression import Compression
from splashdam.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

FIRST_WITH_ZSTD = 7

LAST_WITH_NAMES = 12
"""Newer versions of Produce name topics by their ids; with names, a topic that was created anew gets the
records, too."""

LAST_WITHOUT_V2 = 11
"""In newer versions of Produce a transactional batch adds its partition to the transaction (KIP-890)."""


def build_request(
    batches: Iterable[ProducerBatch],
    *,
    acks: int,
    timeout_ms: float,
    compressions: BatchCompressions,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Seals the batches and groups them by topic; records go into the request by reference."""
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        topic, partition = batch.topic_partition
        data = topics.get(topic)
        if data is None:
            data = topics[topic] = TopicProduceData(name=topic)
        records = batch.seal(compressions.of(topic))
        data.partition_data.append(PartitionProduceData(index=partition, records=records))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=int(timeout_ms),
        topic_data=[*topics.values()],
    )


def check_codec(compression: Compression, version: int) -> None:
    """Refuses what this version of Produce cannot carry.

    Raises:
        UnsupportedCompressionTypeError: zstd, below version 7 (brokers before 2.1).
    """
    if compression.codec is Codec.ZSTD and version < FIRST_WITH_ZSTD:
        raise UnsupportedCompressionTypeError(
            f"the broker speaks Produce v{version} at most; zstd needs v{FIRST_WITH_ZSTD} (Kafka 2.1)"
        )


def answers_by_partition(response: ProduceResponse) -> dict[TopicPartition, PartitionProduceResponse]:
    """The answer for each partition that the response names."""
    answers = {}
    for topic in response.responses:
        for each in topic.partition_responses:
            answers[TopicPartition(topic.name, each.index)] = each
    return answers


def answer_of_silence(batch: ProducerBatch) -> PartitionProduceResponse:
    """What ``acks=0`` is answered with: nothing is known but that it was written to the socket."""
    return PartitionProduceResponse(index=batch.topic_partition.partition, base_offset=-1)


def answer_of_failure(batch: ProducerBatch, error: KafkaError) -> PartitionProduceResponse:
    """A failed request as if the broker had answered; a lost connection or illegal answer is code 13."""
    code, text = int(ErrorCode.NETWORK_EXCEPTION), message_of(error)
    if isinstance(error, BrokerResponseError):
        code, text = error.code, error.message  # the class puts "[code name] " in front again
    return PartitionProduceResponse(
        index=batch.topic_partition.partition, error_code=code, base_offset=-1, error_message=text
    )


def new_leader(
    answer: PartitionProduceResponse, response: ProduceResponse, known: Mapping[int, Node]
) -> Node | None:
    """The leader that the broker named instead of itself (KIP-951): with its address, or as ``known``."""
    leader_id = answer.current_leader.leader_id
    for endpoint in response.node_endpoints:
        if endpoint.node_id == leader_id >= 0:
            return Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
    return known.get(leader_id)
