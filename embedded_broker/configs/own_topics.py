"""The broker's own topics: their names, and how they are made."""

from __future__ import annotations

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.storage.manager.topic_registry import NewTopic

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"

INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state"})
"""Names that Metadata marks as internal, and that clients may not produce to."""

_COMPACTED = {"cleanup.policy": "compact", "compression.type": "producer"}


def new_internal_topic(name: str, settings: BrokerSettings) -> NewTopic | None:
    """How Kafka makes its own topic of this name; None for a name that is not the broker's."""
    if name == CONSUMER_OFFSETS:
        configs = {"segment.bytes": str(settings.groups.offsets_topic_segment_bytes)}
        return NewTopic(
            name,
            settings.groups.offsets_topic_num_partitions,
            {**_COMPACTED, **configs},
            replication_factor=settings.groups.offsets_topic_replication_factor,
        )
    if name == TRANSACTION_STATE:
        configs = {
            "compression.type": "uncompressed",
            "segment.bytes": str(settings.transactions.transaction_state_log_segment_bytes),
            "min.insync.replicas": str(settings.transactions.transaction_state_log_min_isr),
        }
        return NewTopic(
            name,
            settings.transactions.transaction_state_log_num_partitions,
            {**_COMPACTED, **configs},
            replication_factor=settings.transactions.transaction_state_log_replication_factor,
        )
    return None
