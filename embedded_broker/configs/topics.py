"""The options of a topic: those that it sets, over the broker's defaults."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from splashdam.model.broker_errors import ErrorCode, error_for
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import from_properties
from splashdam.storage.settings import LogSettings


def topic_settings(defaults: LogSettings, configs: Mapping[str, str]) -> LogSettings:
    """Return the options of a topic that sets ``configs``, by Kafka's dotted names, itself.

    Raises:
        BrokerResponseError: INVALID_CONFIG (40): a name is unknown, with the nearest right one, or a value
            illegal.
    """
    if not configs:
        return defaults
    try:
        return attrs.evolve(defaults, **from_properties(LogSettings, configs, what="topic"))
    except KafkaConfigurationError as error:
        raise error_for(ErrorCode.INVALID_CONFIG, str(error)) from error


def new_topic_settings(defaults: LogSettings, configs: Mapping[str, str]) -> LogSettings:
    """As ``topic_settings``, for options that are being set: they must fit each other, too.

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


def allows_unclean_election(defaults: LogSettings, configs: Mapping[str, str]) -> bool:
    """Return whether a replica outside the ISR may lead a topic with these options, which must be legal."""
    return topic_settings(defaults, configs).unclean_leader_election_enable
