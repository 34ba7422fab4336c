"""Defaults for a broker on a developer's machine: ``EmbeddedBroker``, ``embedded:DIR`` and ``splashdam
broker``.

They are settings like those that a user gives: DescribeConfigs names them as STATIC_BROKER_CONFIG, with
Kafka's default behind, and any value that is given replaces them. ``open_broker`` and clusters have Kafka's
defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings

DEVELOPER_DEFAULTS: Mapping[str, int] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}
"""No wait for further members of a group, and few files. A broker counts the partitions of the internal
topics when it creates them; topics of an existing directory keep theirs."""


def developer_settings(options: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> BrokerSettings:
    """Return ``BrokerSettings.from_options``, with these defaults for what is not given.

    Raises:
        KafkaConfigurationError: as ``BrokerSettings.from_options``.
    """
    given = {name.strip(): value for name, value in (config or {}).items()}
    missing = {
        name: str(value)
        for name, value in DEVELOPER_DEFAULTS.items()
        if name not in given and name.replace(".", "_") not in options
    }
    return BrokerSettings.from_options(options, {**missing, **given})
