"""Settings of groups: those of the broker, and those of a single group of the consumer protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.log_text import quoted
from splashdam.model.options import MAX_INT, one_of, option, whole_number
from splashdam.storage.settings import MINUTE_MS

_ASSIGNORS = ("uniform", "range")
SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"


def _assignors(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"must be a text, not {type(value).__name__}"
    unknown = [name for name in assignor_names(value) if name not in _ASSIGNORS]
    if unknown or not assignor_names(value):
        return f"must be some of {', '.join(_ASSIGNORS)}"
    return None


def assignor_names(value: str) -> list[str]:
    """Return the names in a list of assignors; names of Kafka's classes become short ones."""
    simple = (name.strip().rpartition(".")[2] for name in value.split(","))
    return [name.removesuffix("Assignor").lower() if name[:1].isupper() else name for name in simple if name]


@attrs.frozen(kw_only=True)
class GroupSettings:
    """Groups of both protocols, and their offsets. Names with ``group_consumer`` are those of KIP-848."""

    offsets_topic_num_partitions: int = option(
        50, doc="Partitions of __consumer_offsets when it is created.", check=whole_number(1, MAX_INT)
    )
    offsets_topic_segment_bytes: int = option(
        104_857_600,
        doc="segment.bytes of __consumer_offsets when it is created.",
        check=whole_number(14, MAX_INT),
    )
    offsets_retention_minutes: int = option(
        10_080,
        doc="Minutes that offsets are kept after the last member left the group, or after the commit if the "
        "group never had members.",
        check=whole_number(1, MAX_INT),
    )
    offsets_retention_check_interval_ms: int = option(
        600_000, doc="Milliseconds between two checks for expired offsets.", check=whole_number(1)
    )
    offset_metadata_max_bytes: int = option(
        4096,
        doc="Maximum length of the metadata of a committed offset, in UTF-16 units, as Kafka counts.",
        check=whole_number(0, MAX_INT),
    )
    offsets_topic_replication_factor: int = option(
        3,
        check=whole_number(1, 32_767),
        doc="Replicas of each partition of __consumer_offsets, or as many as there are brokers",
    )
    group_initial_rebalance_delay_ms: int = option(
        3000,
        doc="Milliseconds that the first rebalance of an empty group waits for more members; use 0 in tests.",
        check=whole_number(0, MAX_INT),
    )
    group_min_session_timeout_ms: int = option(
        6000,
        doc="Shortest session timeout in milliseconds that a member of a classic group may ask for.",
        check=whole_number(1, MAX_INT),
    )
    group_max_session_timeout_ms: int = option(
        30 * MINUTE_MS,
        doc="Longest session timeout in milliseconds that a member of a classic group may ask for.",
        check=whole_number(1, MAX_INT),
    )
    group_max_size: int = option(
        MAX_INT, doc="Maximum number of members of a classic group.", check=whole_number(1, MAX_INT)
    )
    group_consumer_session_timeout_ms: int = option(
        45_000,
        doc="Milliseconds without a heartbeat after which a member is removed from a consumer group.",
        check=whole_number(1, MAX_INT),
    )
    group_consumer_min_session_timeout_ms: int = option(
        45_000, doc="Shortest consumer.session.timeout.ms of a group.", check=whole_number(1, MAX_INT)
    )
    group_consumer_max_session_timeout_ms: int = option(
        60_000, doc="Longest consumer.session.timeout.ms of a group.", check=whole_number(1, MAX_INT)
    )
    group_consumer_heartbeat_interval_ms: int = option(
        5_000,
        doc="Heartbeat interval in milliseconds that members of consumer groups get; use less in tests.",
        check=whole_number(1, MAX_INT),
    )
    group_consumer_min_heartbeat_interval_ms: int = option(
        5_000, doc="Shortest consumer.heartbeat.interval.ms of a group.", check=whole_number(1, MAX_INT)
    )
    group_consumer_max_heartbeat_interval_ms: int = option(
        15_000, doc="Longest consumer.heartbeat.interval.ms of a group.", check=whole_number(1, MAX_INT)
    )
    group_consumer_max_size: int = option(
        MAX_INT, doc="Maximum number of members of a consumer group.", check=whole_number(1, MAX_INT)
    )
    group_consumer_assignors: str = option(
        "uniform,range",
        doc="Server-side assignors that members may choose, the default first: uniform and range.",
        check=_assignors,
        notes={"kind": "list"},
    )
    group_consumer_migration_policy: str = option(
        "bidirectional",
        doc="Whether a group with members may change its protocol when members of the other one join or the "
        "last member of its own leaves: upgrade (classic to consumer), downgrade, bidirectional or disabled.",
        check=one_of("upgrade", "downgrade", "bidirectional", "disabled"),
        convert=lambda value: value.lower() if isinstance(value, str) else value,
    )
    group_version: int = option(
        1,
        doc="Level of the feature group.version: 0 only classic groups, 1 the consumer protocol as well. "
        "In Kafka, kafka-features sets it.",
        check=whole_number(0, 1),
    )


class GroupTimes(NamedTuple):
    """The times that members of one group get.

    Attributes:
        session_timeout_ms: a member without a heartbeat for this long is removed.
        heartbeat_interval_ms: between two heartbeats.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int


def group_times(settings: GroupSettings, configs: Mapping[str, str]) -> GroupTimes:
    """Return the times of a group: its own configs, or else the broker's defaults."""
    session_ms = _own(configs, SESSION_TIMEOUT, settings.group_consumer_session_timeout_ms)
    interval_ms = _own(configs, HEARTBEAT_INTERVAL, settings.group_consumer_heartbeat_interval_ms)
    return GroupTimes(session_ms, interval_ms)


def _own(configs: Mapping[str, str], name: str, default: int) -> int:
    return int(configs.get(name, default))


def check_group_configs(settings: GroupSettings, configs: Mapping[str, str]) -> None:
    """Refuse configs of a group that are unknown, not numbers, or outside the broker's limits.

    Raises:
        KafkaConfigurationError: naming the first one.
    """
    limits = {
        SESSION_TIMEOUT: (
            settings.group_consumer_min_session_timeout_ms,
            settings.group_consumer_max_session_timeout_ms,
        ),
        HEARTBEAT_INTERVAL: (
            settings.group_consumer_min_heartbeat_interval_ms,
            settings.group_consumer_max_heartbeat_interval_ms,
        ),
    }
    for name, text in configs.items():
        if name not in limits:
            raise KafkaConfigurationError(
                f"unknown group config {quoted(name)}: known are {', '.join(limits)}"
            )
        low, high = limits[name]
        try:
            value = int(text)
        except ValueError:
            raise KafkaConfigurationError(
                f"{name}={quoted(text)}: must be a number of milliseconds"
            ) from None
        if not low <= value <= high:
            raise KafkaConfigurationError(
                f"{name}={value}: must be between group.{_limit(name, 'min')} ({low}) and "
                f"group.{_limit(name, 'max')} ({high})"
            )


def _limit(name: str, which: str) -> str:
    return name.replace("consumer.", f"consumer.{which}.")
