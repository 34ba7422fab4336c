"""A topic's options: its own values laid over the broker's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import attrs

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.topic_settings import TopicSettings
from splashdam.model.broker_errors import error_for
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import from_properties

if TYPE_CHECKING:
    from splashdam.storage.log import Log

__all__ = ["TopicSettings", "new_topic_settings", "options_of", "topic_settings"]


def topic_settings(broker: BrokerSettings, configs: Mapping[str, str]) -> TopicSettings:
    """A topic's options: its own ``configs``, by Kafka's dotted names, over the broker's.

    Raises:
        BrokerResponseError: INVALID_CONFIG (40): a name is unknown, with the nearest right one, or a value
            illegal.
    """
    if not configs:
        return broker.topic_defaults
    try:
        return attrs.evolve(broker.topic_defaults, **from_properties(TopicSettings, configs, what="topic"))
    except KafkaConfigurationError as error:
        raise error_for(ErrorCode.INVALID_CONFIG, str(error)) from error


def new_topic_settings(broker: BrokerSettings, configs: Mapping[str, str]) -> TopicSettings:
    """As ``topic_settings``, for options that somebody sets now: they must fit each other, too.

    Raises:
        BrokerResponseError: INVALID_CONFIG (40).
    """
    settings = topic_settings(broker, configs)
    shortest, longest = settings.min_compaction_lag_ms, settings.max_compaction_lag_ms
    if shortest > longest:
        raise error_for(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms={shortest} must not be above max.compaction.lag.ms={longest}",
        )
    return settings


def allows_unclean_election(broker: BrokerSettings, configs: Mapping[str, str]) -> bool:
    """Whether a replica that is not in sync may lead a topic with these options, which have been checked."""
    return topic_settings(broker, configs).unclean_leader_election_enable


def options_of(log: Log) -> TopicSettings:
    """The options of a log's topic: the broker opens every log with ``topic_settings``."""
    return cast("TopicSettings", log.settings)
