"""Every option of a topic, and how those of a topic are laid over the broker's.

Kafka's documentation ("topic configs") says what each means; ``table.py`` lists them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import attrs

from splashdam.model.broker_errors import ErrorCode, error_for
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import MAX_INT, from_properties, one_of, whole_number
from splashdam.storage.settings import LogSettings, topic_option

if TYPE_CHECKING:
    from splashdam.storage.log import Log

_NOT_THROTTLED = "replication is as fast as it can be"
_THROTTLED = re.compile(r"\*|(\d+:\d+(,\d+:\d+)*)?")


def _throttled(value: Any) -> str | None:
    is_legal = isinstance(value, str) and _THROTTLED.fullmatch(value.replace(" ", ""))
    return None if is_legal else "must be '*' or partition:broker,partition:broker,…"


def _level(lowest: int, highest: int, *more: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if is_number and (value in more or lowest <= value <= highest):
            return None
        return f"must be {lowest} to {highest}" + "".join(f" or {each}" for each in more)

    return check


@attrs.frozen
class TopicSettings(LogSettings):
    """The options of one topic."""

    compression_type: str = topic_option(
        "producer",
        "compression.type",
        check=one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        doc="Codec of stored batches; 'producer' keeps what the producer sent",
    )
    compression_gzip_level: int = topic_option(
        -1,
        "compression.gzip.level",
        check=_level(1, 9, -1),
        doc="Level for gzip, 1 to 9, -1 for its default",
    )
    compression_lz4_level: int = topic_option(
        9, "compression.lz4.level", check=_level(1, 17), doc="Level for lz4, 1 to 17"
    )
    compression_zstd_level: int = topic_option(
        3, "compression.zstd.level", check=_level(-131072, 22), doc="Level for zstd, up to 22"
    )
    min_insync_replicas: int = topic_option(
        1,
        "min.insync.replicas",
        check=whole_number(1, MAX_INT),
        doc="Replicas that must have a write before acks=all is answered; not more than there are",
    )
    preallocate: bool = topic_option(
        False,
        "log.preallocate",
        doc="Whether segment files are allocated in full",
        without_effect="files grow as they are written",
    )
    unclean_leader_election_enable: bool = topic_option(
        False,
        "unclean.leader.election.enable",
        doc="Whether a replica out of sync may lead",
    )
    remote_storage_enable: bool = topic_option(
        False,
        check=one_of(False),
        doc="Tiered storage, which is not offered",
        without_effect="there is no tiered storage",
    )
    leader_replication_throttled_replicas: str = topic_option(
        "",
        check=_throttled,
        kind="list",
        doc="Replicas whose leader side is throttled, as partition:broker separated by commas, * for all",
        without_effect=_NOT_THROTTLED,
    )
    follower_replication_throttled_replicas: str = topic_option(
        "",
        check=_throttled,
        kind="list",
        doc="Replicas whose follower side is throttled, as partition:broker separated by commas, * for all",
        without_effect=_NOT_THROTTLED,
    )


def topic_settings(defaults: TopicSettings, configs: Mapping[str, str]) -> TopicSettings:
    """A topic's options: its own ``configs``, by Kafka's dotted names, over the broker's
    ``topic_defaults``.

    Raises:
        BrokerResponseError: INVALID_CONFIG (40): a name is unknown, with the nearest right one, or a value
            illegal.
    """
    if not configs:
        return defaults
    try:
        return attrs.evolve(defaults, **from_properties(TopicSettings, configs, what="topic"))
    except KafkaConfigurationError as error:
        raise error_for(ErrorCode.INVALID_CONFIG, str(error)) from error


def new_topic_settings(defaults: TopicSettings, configs: Mapping[str, str]) -> TopicSettings:
    """As ``topic_settings``, for options that somebody sets now: they must fit each other, too.

    Raises:
        BrokerResponseError: INVALID_CONFIG (40).
    """
    settings = topic_settings(defaults, configs)
    shortest, longest = settings.min_compaction_lag_ms, settings.max_compaction_lag_ms
    if shortest > longest:
        raise error_for(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms={shortest} must not be above max.compaction.lag.ms={longest}",
        )
    return settings


def allows_unclean_election(defaults: TopicSettings, configs: Mapping[str, str]) -> bool:
    """Whether a replica that is not in sync may lead a topic with these options, which have been checked."""
    return topic_settings(defaults, configs).unclean_leader_election_enable


def options_of(log: Log) -> TopicSettings:
    """The options of a log's topic: the broker opens every log with ``topic_settings``."""
    return cast("TopicSettings", log.settings)
