"""The ``kafka.*`` options: what a consumer's properties mean to a source that is none."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import IsolationLevel

logger = logging.getLogger("splashdam.pipeline")

_REFUSED: Mapping[str, str] = {
    "auto.offset.reset": "set the option startingOffsets; a stream that is restarted goes on where it was",
    "key.deserializer": "keys come as bytes; cast or decode the column",
    "value.deserializer": "values come as bytes; cast or decode the column",
    "enable.auto.commit": "the checkpoint of the query keeps its offsets",
    "interceptor.classes": "interceptors could change what was written",
}
"""Why, and what to do; Spark's connector refuses the same."""

_WITHOUT_EFFECT = frozenset(
    {
        "auto.commit.interval.ms",
        "check.crcs",
        "client.rack",
        "exclude.internal.topics",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "heartbeat.interval.ms",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)
"""Of consumers alone; none of them changes which rows come."""

_ISOLATION_LEVELS = {level.name.lower(): level for level in IsolationLevel}


def client_properties(kafka: Mapping[str, str]) -> tuple[IsolationLevel, dict[str, str]]:
    """What is read of transactions, and the properties that are left for the client.

    Args:
        kafka: the properties by Kafka's names.

    Raises:
        KafkaConfigurationError: a property cannot be set, ``isolation.level`` is neither of its two, or
            ``bootstrap.servers`` is missing.
    """
    for name, reason in _REFUSED.items():
        if name in kafka:
            raise KafkaConfigurationError(f"kafka.{name} cannot be set: {reason}")
    if not kafka.get("bootstrap.servers", "").strip():
        raise KafkaConfigurationError(
            "option kafka.bootstrap.servers must be given: host:port, with commas between several"
        )
    ignored = sorted(_WITHOUT_EFFECT & kafka.keys())
    if ignored:
        names = ", ".join(f"kafka.{name}" for name in ignored)
        logger.warning("no effect on kafka-local, which reads without a consumer: %s", names)
    text = kafka.get("isolation.level", "read_uncommitted").strip().lower()
    if text not in _ISOLATION_LEVELS:
        raise KafkaConfigurationError(
            f"kafka.isolation.level={text!r} must be {' or '.join(sorted(_ISOLATION_LEVELS))}"
        )
    left = kafka.keys() - _WITHOUT_EFFECT - {"isolation.level"}
    return _ISOLATION_LEVELS[text], {name: kafka[name] for name in sorted(left)}
