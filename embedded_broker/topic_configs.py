"""What can be set for a topic: Kafka's names, types and defaults, laid over the broker's own settings.

``TopicSettings`` adds to the log's settings those that retention, cleaning and replication read, so that
every legal configuration is accepted, kept and described. Kafka's documentation ("topic configs") says what
each means. Nothing is deleted or compacted by this broker yet, whatever ``cleanup.policy`` and
``retention.*`` say, and ``flush.ms`` syncs nothing yet (``flush.messages`` does); that compacted topics
demand keys holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import attrs

from splashdam.embedded_broker.settings import BrokerSettings
from splashdam.embedded_broker.storage.settings import DAY_MS, MAX_LONG, LogSettings
from splashdam.model.broker_errors import error_for
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import at_least, from_properties, one_of, option

if TYPE_CHECKING:
    from splashdam.embedded_broker.storage.log import Log

_SET_ON_TOPIC, _SET_ON_BROKER, _DEFAULT = 1, 4, 5
"""Kafka's ``ConfigSource`` numbers."""


def _ratio(value: Any) -> str | None:
    return None if isinstance(value, int | float) and 0 <= value <= 1 else "must be between 0 and 1"


def _level(lowest: int, highest: int, *more: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if value in more or (isinstance(value, int) and lowest <= value <= highest):
            return None
        return f"must be {lowest} to {highest}" + "".join(f" or {each}" for each in more)

    return check


@attrs.frozen
class TopicSettings(LogSettings):
    """Every option of a topic."""

    compression_type: str = option(
        "producer",
        check=one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        doc="Codec of stored batches; 'producer' keeps what the producer sent",
    )
    compression_gzip_level: int = option(
        -1, check=_level(1, 9, -1), doc="Level for gzip, 1 to 9, -1 for its default"
    )
    compression_lz4_level: int = option(9, check=_level(1, 17), doc="Level for lz4, 1 to 17")
    compression_zstd_level: int = option(3, check=_level(-131072, 22), doc="Level for zstd, up to 22")
    retention_ms: int = option(
        7 * DAY_MS, check=at_least(-1), doc="Age at which closed segments may go; -1 keeps"
    )
    retention_bytes: int = option(
        -1, check=at_least(-1), doc="Partition size above which old segments may go"
    )
    delete_retention_ms: int = option(
        DAY_MS, check=at_least(0), doc="Milliseconds a tombstone stays readable"
    )
    file_delete_delay_ms: int = option(60_000, check=at_least(0), doc="Milliseconds until a file is unlinked")
    flush_messages: int = option(MAX_LONG, check=at_least(1), doc="Records after which the log is synced")
    flush_ms: int = option(MAX_LONG, check=at_least(0), doc="Milliseconds after which the log is synced")
    min_compaction_lag_ms: int = option(0, check=at_least(0), doc="Milliseconds a record stays uncompacted")
    max_compaction_lag_ms: int = option(
        MAX_LONG, check=at_least(1), doc="Milliseconds until compaction is due"
    )
    min_cleanable_dirty_ratio: float = option(
        0.5, check=_ratio, doc="Share of dirty bytes that starts compaction"
    )
    min_insync_replicas: int = option(1, check=at_least(1), doc="Replicas a write with acks=all needs")
    preallocate: bool = option(False, doc="Whether segment files are allocated in full")
    segment_jitter_ms: int = option(0, check=at_least(0), doc="Random reduction of segment.ms")
    unclean_leader_election_enable: bool = option(False, doc="Whether a replica out of sync may lead")
    remote_storage_enable: bool = option(
        False, check=one_of(False), doc="Tiered storage, which is not offered"
    )
    leader_replication_throttled_replicas: str = option("", doc="Replicas whose leader side is throttled")
    follower_replication_throttled_replicas: str = option("", doc="Replicas whose follower side is throttled")


_BROKER_SETTING = {
    "segment_bytes": "log_segment_bytes",
    "segment_ms": "log_roll_ms",
    "segment_index_bytes": "log_index_size_max_bytes",
    "index_interval_bytes": "log_index_interval_bytes",
    "max_message_bytes": "message_max_bytes",
    "cleanup_policy": "log_cleanup_policy",
    "message_timestamp_type": "log_message_timestamp_type",
    "message_timestamp_before_max_ms": "log_message_timestamp_before_max_ms",
    "message_timestamp_after_max_ms": "log_message_timestamp_after_max_ms",
    "compression_type": "compression_type",
    "retention_ms": "log_retention_ms",
    "retention_bytes": "log_retention_bytes",
    "flush_messages": "log_flush_interval_messages",
    "min_insync_replicas": "min_insync_replicas",
}
"""Which broker setting is a topic option's default."""


class ConfigEntry(NamedTuple):
    """One option of a topic as Kafka describes it; ``source`` is its ``ConfigSource``."""

    name: str
    value: str
    source: int


def broker_defaults(broker: BrokerSettings) -> TopicSettings:
    """The options of a topic that sets none itself.

    Raises:
        KafkaConfigurationError: a setting of the broker is not legal for a topic.
    """
    return TopicSettings(**{name: getattr(broker, setting) for name, setting in _BROKER_SETTING.items()})


def check_topic_defaults(broker: BrokerSettings) -> None:
    """Refuses a broker whose settings no topic could have, before there is one that fails.

    Raises:
        KafkaConfigurationError: a setting is illegal; the text names it.
    """
    for name, setting in _BROKER_SETTING.items():
        try:
            TopicSettings(**{name: getattr(broker, setting)})
        except KafkaConfigurationError as error:
            raise KafkaConfigurationError(f"broker option {setting!r}: {error}") from error


def topic_settings(broker: BrokerSettings, configs: Mapping[str, str]) -> TopicSettings:
    """A topic's options: its own ``configs``, by Kafka's dotted names, over the broker's.

    Raises:
        BrokerResponseError: INVALID_CONFIG (40): a name is unknown, with the nearest right one, or a value
            illegal.
    """
    try:
        return attrs.evolve(broker_defaults(broker), **from_properties(TopicSettings, configs, what="topic"))
    except KafkaConfigurationError as error:
        raise error_for(ErrorCode.INVALID_CONFIG, str(error)) from error


def options_of(log: Log) -> TopicSettings:
    """The options of a log's topic: the broker opens every log with ``topic_settings``."""
    return cast("TopicSettings", log.settings)


def config_entries(broker: BrokerSettings, configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Every option of a topic with its value and where that comes from, by name.

    Raises:
        BrokerResponseError: as ``topic_settings``.
    """
    settings = topic_settings(broker, configs)
    kafka_defaults = BrokerSettings()
    entries = []
    for field in attrs.fields(TopicSettings):
        name = field.name.replace("_", ".")
        setting = _BROKER_SETTING.get(field.name)
        source = _DEFAULT
        if name in configs:
            source = _SET_ON_TOPIC
        elif setting is not None and getattr(broker, setting) != getattr(kafka_defaults, setting):
            source = _SET_ON_BROKER
        entries.append(ConfigEntry(name, _text(getattr(settings, field.name)), source))
    return sorted(entries)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
