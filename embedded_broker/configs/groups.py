"""Kafka's names for groups: on the broker, and on one group of the consumer protocol."""

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
    """The names of a list of assignors; Kafka's own classes are known by theirs."""
    simple = (name.strip().rpartition(".")[2] for name in value.split(","))
    return [name.removesuffix("Assignor").lower() if name[:1].isupper() else name for name in simple if name]


@attrs.frozen(kw_only=True)
class GroupSettings:
    """Groups of both protocols, and their offsets. What begins with ``group_consumer`` is KIP-848's."""

    offsets_topic_num_partitions: int = option(
        50, doc="Partitions of __consumer_offsets when it is made.", check=whole_number(1, MAX_INT)
    )
    offsets_topic_segment_bytes: int = option(
        104_857_600,
        doc="segment.bytes of __consumer_offsets when it is made.",
        check=whole_number(14, MAX_INT),
    )
    offsets_retention_minutes: int = option(
        10_080,
        doc="Minutes that offsets are kept after the last member left the group, or, where it never had "
        "any, after the commit.",
        check=whole_number(1, MAX_INT),
    )
    offsets_retention_check_interval_ms: int = option(
        600_000, doc="How often offsets are looked for that are past it.", check=whole_number(1)
    )
    offset_metadata_max_bytes: int = option(
        4096,
        doc="Most metadata, in UTF-16 units as Kafka counts, beside one committed offset.",
        check=whole_number(0, MAX_INT),
    )
    offsets_topic_replication_factor: int = option(
        3,
        check=whole_number(1, 32_767),
        doc="Brokers that keep each partition of __consumer_offsets, or as many as there are",
    )
    group_initial_rebalance_delay_ms: int = option(
        3000,
        doc="Milliseconds that the first rebalance of an empty group waits for more members; 0 suits tests.",
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
        MAX_INT, doc="Most members of a classic group.", check=whole_number(1, MAX_INT)
    )
    group_consumer_session_timeout_ms: int = option(
        45_000,
        doc="Milliseconds without a heartbeat after which a member of a consumer group is out of it.",
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
        doc="Milliseconds between two heartbeats that members of consumer groups are told; less suits tests.",
        check=whole_number(1, MAX_INT),
    )
    group_consumer_min_heartbeat_interval_ms: int = option(
        5_000, doc="Shortest consumer.heartbeat.interval.ms of a group.", check=whole_number(1, MAX_INT)
    )
    group_consumer_max_heartbeat_interval_ms: int = option(
        15_000, doc="Longest consumer.heartbeat.interval.ms of a group.", check=whole_number(1, MAX_INT)
    )
    group_consumer_max_size: int = option(
        MAX_INT, doc="Most members of a consumer group.", check=whole_number(1, MAX_INT)
    )
    group_consumer_assignors: str = option(
        "uniform,range",
        doc="Server-side assignors that members may ask for, the default one first: uniform and range.",
        check=_assignors,
        notes={"kind": "list"},
    )
    group_consumer_migration_policy: str = option(
        "bidirectional",
        doc="Whether a group with members goes on with the other protocol when members of it come or the "
        "last one of its own leaves: upgrade (classic to consumer), downgrade, bidirectional or disabled.",
        check=one_of("upgrade", "downgrade", "bidirectional", "disabled"),
        convert=lambda value: value.lower() if isinstance(value, str) else value,
    )
    group_version: int = option(
        1,
        doc="Level of the feature group.version: 0 classic groups alone, 1 the consumer protocol as well. "
        "Kafka sets it with kafka-features.",
        check=whole_number(0, 1),
    )


class GroupTimes(NamedTuple):
    """What members of one group are told, and held to.

    Attributes:
        session_timeout_ms: how long one may be silent.
        heartbeat_interval_ms: how often it should not be.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int


def group_times(settings: GroupSettings, configs: Mapping[str, str]) -> GroupTimes:
    """The times of a group: its own configs, as far as it has them, within the broker's present limits."""
    session_ms = _own(configs, SESSION_TIMEOUT, settings.group_consumer_session_timeout_ms)
    interval_ms = _own(configs, HEARTBEAT_INTERVAL, settings.group_consumer_heartbeat_interval_ms)
    return GroupTimes(session_ms, interval_ms)


def _own(configs: Mapping[str, str], name: str, default: int) -> int:
    return int(configs.get(name, default))


def check_group_configs(settings: GroupSettings, configs: Mapping[str, str]) -> None:
    """Refuses configs of a group that are unknown, no numbers, or outside the broker's limits.

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
