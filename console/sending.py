"""Send one record: what the form on the page asks for."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from splashdam.model.broker_errors import error_for
from splashdam.model.values import TopicPartition
from splashdam.model.views.cluster import TopicView
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.net.connection.connection import Connection
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.json_lines import Line
from splashdam.record.kernel import BatchBuffer, murmur2, record_size_upper_bound
from splashdam.record.sealing import seal
from splashdam.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_ALL_IN_SYNC = -1
_TIMEOUT_MS = 5_000


def line_of(form: Mapping[str, str]) -> Line:
    """Return the record that a form describes.

    Headers are lines of ``name: value``. An empty key is no key; a value is null if its box says so.

    Raises:
        ValueError: a field has no meaning; the text says which.
    """
    headers = []
    for line in form.get("headers", "").splitlines():
        if line.strip():
            name, colon, value = line.partition(":")
            if not colon:
                raise ValueError(f"headers: {line.strip()!r} is not name: value")
            headers.append((name.strip(), value.strip().encode()))
    partition = form.get("partition", "").strip()
    if partition and not (partition.isascii() and partition.isdigit() and len(partition) < 10):
        raise ValueError(f"partition: {partition!r} is no number")
    key = form.get("key", "")
    return Line(
        value=None if "null" in form else form.get("value", "").encode(),
        key=key.encode() if key else None,
        headers=tuple(headers),
        partition=int(partition) if partition else None,
    )


def partition_for(topic: TopicView, line: Line) -> int:
    """Return the partition: the one that was named, or that of the key as Kafka's producers choose it.

    Raises:
        ValueError: the topic has no such partition.
    """
    count = len(topic.partitions)
    if line.partition is not None:
        if line.partition >= count:
            raise ValueError(f"partition: {topic.name} has {count}, from 0 to {count - 1}")
        return line.partition
    if line.key is not None:
        return (murmur2(line.key) & 0x7FFFFFFF) % count
    return secrets.randbelow(count)


async def send_record(
    client: ClusterClient, topic_partition: TopicPartition, line: Line, timestamp_ms: int
) -> int:
    """Send a record; return its offset.

    Raises:
        BrokerResponseError: the leader refuses it.
        KafkaTimeoutError: the cluster does not answer.
    """
    buffer = BatchBuffer(HEADER_BYTES + record_size_upper_bound(line.key, line.value, line.headers))
    buffer.try_append(timestamp_ms, line.key, line.value, line.headers)
    batch = bytes(seal(buffer))

    def request(_connection: Connection) -> ProduceRequest:
        data = PartitionProduceData(index=topic_partition.partition, records=batch)
        topics = [TopicProduceData(name=topic_partition.topic, topic_id=topic_id, partition_data=[data])]
        return ProduceRequest(acks=_ALL_IN_SYNC, timeout_ms=_TIMEOUT_MS, topic_data=topics)

    def offset(answer: ProduceResponse) -> int:
        found = answer.responses[0].partition_responses[0]
        if found.error_code:
            raise error_for(found.error_code, found.error_message or str(topic_partition))
        return found.base_offset

    topic_id = (await client.cluster([topic_partition.topic])).topics[topic_partition.topic].topic_id
    return await client.leader(topic_partition, request, offset)
