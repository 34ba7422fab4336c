"""A topic's options: its own values laid over the broker's, and how the protocol describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

import attrs

from splashdam.embedded_broker.settings import BrokerSettings
from splashdam.embedded_broker.topic_settings import TopicSettings
from splashdam.model.broker_errors import error_for
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import from_properties, kafka_name

if TYPE_CHECKING:
    from splashdam.embedded_broker.storage.log import Log

__all__ = ["ConfigEntry", "TopicSettings", "config_entries", "options_of", "topic_settings"]

_SET_ON_TOPIC, _SET_ON_BROKER, _DEFAULT = 1, 4, 5
"""Kafka's ``ConfigSource`` numbers."""


class ConfigEntry(NamedTuple):
    """One option of a topic as Kafka describes it; ``source`` is its ``ConfigSource``."""

    name: str
    value: str
    source: int


def topic_settings(broker: BrokerSettings, configs: Mapping[str, str]) -> TopicSettings:
    """A topic's options: its own ``configs``, by Kafka's dotted names, over the broker's.

    Raises:
        BrokerResponseError: INVALID_CONFIG (40): a name is unknown, with the nearest right one, or a value
            illegal.
    """
    try:
        return attrs.evolve(broker.topic_defaults, **from_properties(TopicSettings, configs, what="topic"))
    except KafkaConfigurationError as error:
        raise error_for(ErrorCode.INVALID_CONFIG, str(error)) from error


def allows_unclean_election(broker: BrokerSettings, configs: Mapping[str, str]) -> bool:
    """Whether a replica that is not in sync may lead a topic with these options, which have been checked."""
    return topic_settings(broker, configs).unclean_leader_election_enable


def options_of(log: Log) -> TopicSettings:
    """The options of a log's topic: the broker opens every log with ``topic_settings``."""
    return cast("TopicSettings", log.settings)


def config_entries(broker: BrokerSettings, configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Every option of a topic with its value and where that comes from, by name.

    Raises:
        BrokerResponseError: as ``topic_settings``.
    """
    settings = topic_settings(broker, configs)
    entries = []
    for field in attrs.fields(TopicSettings):
        name = kafka_name(field)
        source = _DEFAULT
        if name in configs:
            source = _SET_ON_TOPIC
        elif any(each.name in broker.given for each in field.metadata["broker"]):
            source = _SET_ON_BROKER
        entries.append(ConfigEntry(name, _text(getattr(settings, field.name)), source))
    return sorted(entries)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
