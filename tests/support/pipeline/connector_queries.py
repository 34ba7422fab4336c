"""Queries as data: the options of a Kafka source, and which of the records in the books it must yield."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from support.pipeline.connector_topics import FIRST_MS, PARTITIONS, Record


@attrs.frozen
class Query:
    """One reading of the topics.

    Attributes:
        name: of the case.
        options: of the source, besides the cluster's address.
        wanted: whether a record is in the answer.
    """

    name: str
    options: Mapping[str, str]
    wanted: Callable[[Record], bool]

    def __str__(self) -> str:
        return self.name


@attrs.frozen
class Refusal:
    """Options that a source must not take; ``says`` is in the message, in any case of its letters."""

    name: str
    options: Mapping[str, str]
    says: str

    def __str__(self) -> str:
        return self.name


def at(number: int) -> int:
    """The timestamp of a record."""
    return FIRST_MS + 1000 * number


def every(value: Any, topic: str = "plain") -> str:
    """One value for every partition of a topic, as the options have it."""
    return json.dumps({topic: {str(each): value for each in range(PARTITIONS[topic])}})


def _plain(wanted: Callable[[Record], bool] = lambda _: True) -> Callable[[Record], bool]:
    return lambda record: record.topic == "plain" and wanted(record)


def _in(*topics: str) -> Callable[[Record], bool]:
    return lambda record: record.topic in topics


def _committed(record: Record) -> bool:
    return record.topic == "transactions" and record.committed


PLAIN = {"subscribe": "plain"}
FAR_MS = str(at(10_000_000))

EITHER = (
    Query("one topic", PLAIN, _plain()),
    Query("two topics", {"subscribe": "plain, other"}, _in("plain", "other")),
    Query("topics by pattern", {"subscribePattern": "p(lain|acked)"}, _in("plain", "packed")),
    Query("partitions", {"assign": '{"plain":[0,2]}'}, _plain(lambda record: record.partition != 1)),
    Query("names in capitals", {"SUBSCRIBE": "plain", "INCLUDEHEADERS": "true"}, _plain()),
    Query("headers", {**PLAIN, "includeHeaders": "true"}, _plain()),
    Query("every codec", {"subscribe": "packed", "includeHeaders": "true"}, _in("packed")),
    Query("deleted head", {"subscribe": "trimmed"}, _in("trimmed")),
    Query("no records", {"subscribe": "vacant"}, lambda _: False),
    Query(
        "from offsets",
        {**PLAIN, "startingOffsets": '{"plain":{"0":4,"1":-2,"2":10}}'},
        _plain(lambda record: record.offset >= (4, 0, 10)[record.partition]),
    ),
    Query(
        "from a time",
        {**PLAIN, "startingTimestamp": str(at(12) - 1)},
        _plain(lambda record: record.timestamp_ms >= at(12) - 1),
    ),
    Query(
        "from times",
        {**PLAIN, "startingOffsetsByTimestamp": every(at(12))},
        _plain(lambda record: record.timestamp_ms >= at(12)),
    ),
    Query(
        "the time for all wins",
        {
            **PLAIN,
            "startingTimestamp": str(at(20)),
            "startingOffsetsByTimestamp": every(at(3)),
            "startingOffsets": "earliest",
        },
        _plain(lambda record: record.timestamp_ms >= at(20)),
    ),
    Query(
        "times win over offsets",
        {**PLAIN, "startingOffsetsByTimestamp": every(at(20)), "startingOffsets": "earliest"},
        _plain(lambda record: record.timestamp_ms >= at(20)),
    ),
    Query(
        "after the last",
        {**PLAIN, "startingTimestamp": FAR_MS, "startingOffsetsByTimestampStrategy": "latest"},
        lambda _: False,
    ),
    Query("split by a minimum", {**PLAIN, "minPartitions": "6"}, _plain()),
    Query("split by a maximum", {**PLAIN, "maxRecordsPerPartition": "4"}, _plain()),
    Query("uncommitted", {"subscribe": "transactions"}, _in("transactions")),
    Query("committed", {"subscribe": "transactions", "kafka.isolation.level": "read_committed"}, _committed),
    Query(
        "committed, split",
        {"subscribe": "transactions", "kafka.isolation.level": "read_committed", "minPartitions": "5"},
        _committed,
    ),
    Query("a group by name", {**PLAIN, "kafka.group.id": "readers"}, _plain()),
    Query("a prefix of groups", {**PLAIN, "groupIdPrefix": "readers"}, _plain()),
    Query(
        "patience",
        {
            **PLAIN,
            "kafkaConsumer.pollTimeoutMs": "5000",
            "fetchOffset.numRetries": "2",
            "fetchOffset.retryIntervalMs": "5",
            "failOnDataLoss": "false",
        },
        _plain(),
    ),
)
"""Read alike by a batch and by a stream that begins at the earliest offsets."""

BATCH = (
    *EITHER,
    Query(
        "up to offsets",
        {**PLAIN, "endingOffsets": '{"plain":{"0":4,"1":-1,"2":0}}'},
        _plain(lambda record: record.offset < (4, 99, 0)[record.partition]),
    ),
    Query(
        "up to a time",
        {**PLAIN, "endingTimestamp": str(at(12))},
        _plain(lambda record: record.timestamp_ms < at(12)),
    ),
    Query(
        "up to times",
        {**PLAIN, "endingOffsetsByTimestamp": every(at(12) + 1)},
        _plain(lambda record: record.timestamp_ms <= at(12)),
    ),
    Query("up to after the last", {**PLAIN, "endingTimestamp": FAR_MS}, _plain()),
    Query(
        "between times",
        {**PLAIN, "startingTimestamp": str(at(5)), "endingTimestamp": str(at(9))},
        _plain(lambda record: at(5) <= record.timestamp_ms < at(9)),
    ),
)

BATCH_REFUSALS = (
    Refusal("no topics", {}, "subscribe"),
    Refusal("two ways to name topics", {**PLAIN, "assign": '{"plain":[0]}'}, "assign"),
    Refusal("a batch from latest", {**PLAIN, "startingOffsets": "latest"}, "latest"),
    Refusal("a batch up to earliest", {**PLAIN, "endingOffsets": "earliest"}, "earliest"),
    Refusal("from -1", {**PLAIN, "startingOffsets": every(-1)}, "latest|-1"),
    Refusal("up to -2", {**PLAIN, "endingOffsets": every(-2)}, "earliest|-2"),
    Refusal("a partition forgotten", {**PLAIN, "startingOffsets": '{"plain":{"0":4}}'}, "plain"),
    Refusal("after the last", {**PLAIN, "startingTimestamp": FAR_MS}, "imestamp"),
    Refusal("a reset of offsets", {**PLAIN, "kafka.auto.offset.reset": "latest"}, "startingOffsets"),
    Refusal("a deserializer", {**PLAIN, "kafka.key.deserializer": "x"}, "key.deserializer"),
    Refusal("commits by itself", {**PLAIN, "kafka.enable.auto.commit": "true"}, "enable.auto.commit"),
    Refusal("no partitions", {**PLAIN, "minPartitions": "0"}, "minPartitions"),
    Refusal("no records", {**PLAIN, "maxRecordsPerPartition": "0"}, "maxRecordsPerPartition"),
)

STREAM_REFUSALS = (
    Refusal("an end", {**PLAIN, "endingOffsets": every(4)}, "ending"),
    Refusal("an end by times", {**PLAIN, "endingOffsetsByTimestamp": every(4)}, "ending"),
    Refusal(
        "least above most",
        {**PLAIN, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"},
        "minOffsets?PerTrigger",
    ),
)
