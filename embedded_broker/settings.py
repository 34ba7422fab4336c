"""What an operator can set on the broker: Kafka's ``server.properties`` names, types and defaults.

The Python name is Kafka's with underscores: ``num_partitions`` is ``num.partitions``. Settings that start
with ``log_`` (and ``message_max_bytes``, ``compression_type``) are the defaults of topics that set nothing
themselves; ``topic_configs.py`` says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from splashdam.model.options import from_options, from_properties, one_of, option, whole_number

_MAX_INT64 = 2**63 - 1


@attrs.frozen(kw_only=True)
class BrokerSettings:
    """The broker's settings; every default is Kafka's.

    Raises:
        KafkaConfigurationError: a value is illegal.
    """

    node_id: int = option(1, doc="The id of this broker in metadata answers.", check=whole_number(0))
    num_partitions: int = option(
        1, doc="Partitions of a topic that is created without a number.", check=whole_number(1)
    )
    auto_create_topics_enable: bool = option(
        True, doc="Whether asking for the metadata of a missing topic creates it."
    )
    delete_topic_enable: bool = option(True, doc="Whether topics can be deleted.")
    message_max_bytes: int = option(
        1_048_588, doc="Largest record batch, after compression, in bytes.", check=whole_number(0)
    )
    compression_type: str = option(
        "producer",
        doc="Codec of stored batches; 'producer' keeps what the producer sent.",
        check=one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    )
    min_insync_replicas: int = option(
        1, doc="Replicas that must have a write before acks=all is answered.", check=whole_number(1)
    )
    log_segment_bytes: int = option(
        1 << 30, doc="Size at which a segment file is closed, in bytes.", check=whole_number(14)
    )
    log_roll_ms: int = option(
        604_800_000, doc="Age at which a segment is closed, in milliseconds.", check=whole_number(1)
    )
    log_index_interval_bytes: int = option(
        4096, doc="Bytes of log between two entries of an index.", check=whole_number(0)
    )
    log_index_size_max_bytes: int = option(
        10 << 20, doc="Largest index file, in bytes.", check=whole_number(4)
    )
    log_cleanup_policy: str = option("delete", doc="'delete', 'compact' or both, with a comma between them.")
    log_retention_ms: int = option(
        604_800_000,
        doc="Age at which closed segments may go, in milliseconds; -1 keeps them.",
        check=whole_number(-1),
    )
    log_retention_bytes: int = option(
        -1, doc="Size of a partition above which old segments may go; -1 is no limit.", check=whole_number(-1)
    )
    log_message_timestamp_type: str = option(
        "CreateTime",
        doc="Whose clock stamps records: the producer's or the broker's.",
        check=one_of("CreateTime", "LogAppendTime"),
    )
    log_message_timestamp_before_max_ms: int = option(
        _MAX_INT64,
        doc="How far in the past a record's timestamp may lie, in milliseconds.",
        check=whole_number(0),
    )
    log_message_timestamp_after_max_ms: int = option(
        _MAX_INT64,
        doc="How far in the future a record's timestamp may lie, in milliseconds.",
        check=whole_number(0),
    )
    log_flush_interval_messages: int = option(
        _MAX_INT64, doc="Records after which a partition is synced to disk.", check=whole_number(1)
    )
    producer_id_expiration_ms: int = option(
        86_400_000, doc="Idle time after which a producer's sequences are forgotten.", check=whole_number(1)
    )
    socket_request_max_bytes: int = option(
        104_857_600,
        doc="Largest request in bytes; a larger one closes its connection.",
        check=whole_number(1),
    )
    connections_max_idle_ms: int = option(
        600_000,
        doc="A connection that neither sends nor takes a byte for this long is closed.",
        check=whole_number(1),
    )
    fetch_max_bytes: int = option(
        57_671_680, doc="Most bytes one fetch answers with, whatever it asks for.", check=whole_number(1024)
    )

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> BrokerSettings:
        """Settings from keyword options by Python name.

        Raises:
            KafkaConfigurationError: a name is unknown (the nearest right one is named) or a value is illegal.
        """
        return from_options(cls, options, what="broker")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerSettings:
        """Settings from Kafka's dotted names and text values, as in ``server.properties``.

        Raises:
            KafkaConfigurationError: a name is unknown or a value does not parse.
        """
        return cls(**from_properties(cls, properties, what="broker"))
