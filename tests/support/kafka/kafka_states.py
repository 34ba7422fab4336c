"""Makes a broker write what ``__transaction_state`` holds, and reads what Kafka's own tool says of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from splashdam.embedded_broker.transactions.metadata import TransactionMetadata, TransactionState
from splashdam.embedded_broker.transactions.records import decode_key, decode_value
from splashdam.record.batch import parse_header
from splashdam.record.reader import Record, read_records
from support.kafka.kafka_jars import dump_log

COMMITTED, ABORTED, OPEN, FRESH, REPLACED = "committed", "aborted", "open", "fresh", "replaced"
_WAIT_SECONDS = 30
_LINE = re.compile(r"offset: \d+.* key: (\{.*\}) payload: (\{.*\}|null)")

_OLD_LINE = re.compile(
    r"transactionalId=(\S+) payload: producerId:(\d+),producerEpoch:(\d+),state=(\w+),partitions=\[(.*?)\],"
)

States: TypeAlias = dict[str, list[dict[str, Any]]]
"""Transactional id → its states from first to last, by Kafka's names of their fields."""

ShortStates: TypeAlias = dict[str, list[tuple[int, int, int, list[str]]]]
"""Transactional id → producer id, epoch, state and partitions, from first to last."""


def write_states(servers: str) -> list[Producer]:
    """A transactional id for each thing that may become of one; over three partitions of two topics.

    Returns:
        The producers with what is open: the caller keeps them until the broker has stopped.
    """
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for topic, partitions in (("inputs", 2), ("others", 1)):
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(_WAIT_SECONDS)
    committed, aborted, left_open = (_begun(servers, name) for name in (COMMITTED, ABORTED, OPEN))
    committed.commit_transaction(_WAIT_SECONDS)
    aborted.abort_transaction(_WAIT_SECONDS)
    replaced = _begun(servers, REPLACED)
    return [left_open, replaced, initialized(servers, REPLACED), initialized(servers, FRESH)]


def dumped(version: str, logs: Iterable[Path]) -> States:
    """What kafka-dump-log of version 4 reads in the logs of the topic."""
    states: States = {}
    for key, payload in _LINE.findall(_text(version, logs)):
        transactional_id = json.loads(key)["data"]["transactionalId"]
        state = json.loads(payload)["data"]
        if isinstance(name := state["transactionStatus"], str):  # 4.4 prints names
            state["transactionStatus"] = _number_of(name)
        states.setdefault(transactional_id, []).append(state)
    return states


def dumped_in_short(version: str, logs: Iterable[Path]) -> ShortStates:
    """The same of every version: Kafka 3.9 prints fewer fields, and in another way."""
    if not version.startswith("3."):
        return in_short(dumped(version, logs))
    states: ShortStates = {}
    for transactional_id, producer_id, epoch, state, partitions in _OLD_LINE.findall(_text(version, logs)):
        short = (int(producer_id), int(epoch), _number_of(state), sorted(filter(None, partitions.split(","))))
        states.setdefault(transactional_id, []).append(short)
    return states


def _number_of(name: str) -> int:
    """A state's number by the name that Kafka's tools print."""
    return next(state.value for state in TransactionState if state.kafka_name == name)


def read_by_us(directory: Path) -> States:
    """What our own code reads in the topic's only log."""
    states: States = {}
    for record in stored(directory):
        name = decode_key(record.key or b"")
        assert name is not None
        states.setdefault(name, []).append(_as_kafka_says(decode_value(name, record.value or b"")))
    return states


def stored(directory: Path) -> list[Record]:
    """Every record of the topic's only log."""
    data = (directory / "__transaction_state-0" / f"{0:020d}.log").read_bytes()
    records, position = [], 0
    while position < len(data):
        records += read_records(data, position)
        position += parse_header(data, position).size_bytes
    return records


def in_short(states: States) -> ShortStates:
    """Without times and timeouts."""
    return {
        name: [
            (
                each["producerId"],
                each["producerEpoch"],
                each["transactionStatus"],
                [
                    f"{topic['topic']}-{number}"
                    for topic in each["transactionPartitions"] or ()
                    for number in topic["partitionIds"]
                ],
            )
            for each in history
        ]
        for name, history in states.items()
    }


def _as_kafka_says(metadata: TransactionMetadata) -> dict[str, Any]:
    """By the names of kafka-dump-log, which leaves out tagged fields that have their default."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        by_topic.setdefault(topic, []).append(partition)
    partitions = [{"topic": topic, "partitionIds": numbers} for topic, numbers in by_topic.items()]
    tagged = {
        "previousProducerId": (metadata.previous_producer_id, -1),
        "nextProducerId": (metadata.next_producer_id, -1),
        "clientTransactionVersion": (metadata.client_version, 0),
    }
    return {
        "producerId": metadata.producer_id,
        "producerEpoch": metadata.producer_epoch,
        "transactionTimeoutMs": metadata.timeout_ms,
        "transactionStatus": metadata.state.value,
        "transactionPartitions": None if metadata.state is TransactionState.EMPTY else partitions,
        "transactionLastUpdateTimestampMs": metadata.last_update_ms,
        "transactionStartTimestampMs": metadata.start_ms,
        **{name: value for name, (value, default) in tagged.items() if value != default},
    }


def _text(version: str, logs: Iterable[Path]) -> str:
    return dump_log(version, *logs, options=("--transaction-log-decoder", "--print-data-log"))


def initialized(servers: str, transactional_id: str) -> Producer:
    """A producer that may begin transactions."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(_WAIT_SECONDS)
    return producer


def _begun(servers: str, transactional_id: str) -> Producer:
    producer = initialized(servers, transactional_id)
    producer.begin_transaction()
    for topic, partition in (("inputs", 0), ("inputs", 1), ("others", 0)):
        producer.produce(topic, transactional_id, partition=partition)
    producer.flush(_WAIT_SECONDS)
    return producer
