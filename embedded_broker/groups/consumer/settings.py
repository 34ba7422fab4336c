"""Kafka's names for groups of the consumer protocol: on the broker, and on one group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import attrs

from splashdam.embedded_broker.security.settings import SecuritySettings
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import MAX_INT, one_of, option, whole_number
from splashdam.model.quoting import quoted

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


@attrs.frozen(kw_only=True, init=False, repr=False, eq=False)  # ``BrokerSettings`` has them
class ConsumerGroupSettings(SecuritySettings):
    """The part of ``BrokerSettings`` about groups of the consumer protocol (KIP-848)."""

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


def group_times(settings: ConsumerGroupSettings, configs: Mapping[str, str]) -> GroupTimes:
    """The times of a group: its own configs, as far as it has them, within the broker's present limits."""
    session_ms = _own(configs, SESSION_TIMEOUT, settings.group_consumer_session_timeout_ms)
    interval_ms = _own(configs, HEARTBEAT_INTERVAL, settings.group_consumer_heartbeat_interval_ms)
    return GroupTimes(session_ms, interval_ms)


def _own(configs: Mapping[str, str], name: str, default: int) -> int:
    return int(configs.get(name, default))


def check_group_configs(settings: ConsumerGroupSettings, configs: Mapping[str, str]) -> None:
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
