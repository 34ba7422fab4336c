"""Where clients differ from each other by themselves, whatever the cluster: known, looked into, and named."""

from __future__ import annotations

from collections.abc import Mapping

DIFFERENCES: Mapping[tuple[str, str], str] = {
    ("a_compacted_topic_wants_keys", "aiokafka"): (
        "aiokafka does not know error code 87 and calls it UNKNOWN_SERVER_ERROR"
    ),
    ("offsets_are_kept_with_their_metadata", "confluent-kafka"): (
        "confluent-kafka commits the metadata of a TopicPartition with a zero byte behind it"
    ),
    ("offsets_are_kept_with_their_metadata", "kafkajs"): "kafkajs's setOffsets commits no metadata",
}
"""By a behaviour's and a client's name."""
