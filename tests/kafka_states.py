"""Makes a broker write what ``__transaction_state`` holds, and reads what Kafka's own tool says of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_jars import dump_log

COMMITTED, ABORTED, OPEN, FRESH, REPLACED = "committed", "aborted", "open", "fresh", "replaced"
_WAIT_SECONDS = 30
_LINE = re.compile(r"offset: \d+.* key: (\{.*\}) payload: (\{.*\}|null)")

States: TypeAlias = dict[str, list[dict[str, Any]]]
"""Transactional id → its states from first to last, by Kafka's names of their fields."""


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
    """What kafka-dump-log reads in the logs of the topic."""
    text = dump_log(version, *logs, options=("--transaction-log-decoder", "--print-data-log"))
    states: States = {}
    for key, payload in _LINE.findall(text):
        transactional_id = json.loads(key)["data"]["transactionalId"]
        states.setdefault(transactional_id, []).append(json.loads(payload)["data"])
    return states


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
