"""Dynamic configs of brokers, groups and client metrics, as the controller keeps them.

Configs of this broker override those of all brokers; both override the settings that it was started with.
Changes take effect at once: ``Broker.settings`` is replaced, so no part of the broker may keep a copy.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.described import BrokerLayers
from splashdam.embedded_broker.configs.topics import topic_settings
from splashdam.embedded_broker.controller.state import Resource
from splashdam.embedded_broker.telemetry.client_metrics import DEFAULT_INTERVAL_MS
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.log_text import quoted

if TYPE_CHECKING:
    from splashdam.embedded_broker.controller.controller import Controller
    from splashdam.embedded_broker.telemetry.client_metrics import ClientTelemetry
    from splashdam.storage.manager.log_manager import LogManager


BROKER, GROUP, CLIENT_METRICS = "broker", "group", "client-metrics"
"""Kinds of resources in the controller's state."""

ALL_BROKERS = ""
"""Name of the resource with the configs of all brokers."""

_MOST_DIGITS = 10
"""Digits of a whole number of 32 bits; ``int()`` refuses texts of thousands of digits."""

_log = logging.getLogger(__name__)


class ConfiguredBroker(Protocol):
    """The parts of a broker that dynamic configs change; the attributes are those of `Broker`."""

    settings: BrokerSettings
    logs: LogManager
    controller: Controller
    telemetry: ClientTelemetry

    @property
    def node_id(self) -> int: ...


class DynamicConfigs:
    """Dynamic configs of one broker, its groups and its clients.

    Args:
        broker: with the settings that it was started with.

    Attributes:
        static: those settings.
    """

    def __init__(self, broker: ConfiguredBroker) -> None:
        self.static: BrokerSettings = broker.settings
        self._broker = broker
        self._kept: dict[Resource, Mapping[str, str]] = {}

    def of(self, kind: str, name: str) -> Mapping[str, str]:
        """Return the configs of one resource, by Kafka's dotted names."""
        return self._kept.get(Resource(kind, name), {})

    def of_group(self, group_id: str) -> Mapping[str, str]:
        """Return the configs of a group: ``consumer.session.timeout.ms`` and the heartbeat interval."""
        return self.of(GROUP, group_id)

    def names(self, kind: str) -> list[str]:
        """Return the names of all resources of a kind that have configs."""
        return sorted(each.name for each in self._kept if each.kind == kind)

    @property
    def layers(self) -> BrokerLayers:
        """The sources of this broker's settings."""
        return BrokerLayers(self.static, self.of(BROKER, ALL_BROKERS), self.of(BROKER, self._own_name))

    @property
    def _own_name(self) -> str:
        return str(self._broker.node_id)

    def settings_with(self, name: str, configs: Mapping[str, str]) -> BrokerSettings:
        """Return this broker's settings as they would be with these configs of it, or of all brokers.

        Raises:
            KafkaConfigurationError: a value is illegal.
        """
        present = self.layers
        if name == ALL_BROKERS:
            return present._replace(all_brokers=configs).settings
        return present._replace(own=configs).settings

    def put(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        """Replace the configs of a resource in the whole cluster; the caller has checked them.

        Raises:
            KafkaStorageError: the disk failed; nothing has changed.
        """
        self._broker.controller.put_resources({Resource(kind, name): dict(configs)})

    def apply(self, resources: Mapping[Resource, Mapping[str, str]]) -> None:
        """Apply configs that the controller has changed."""
        for resource, configs in resources.items():
            if resource.kind not in (BROKER, GROUP, CLIENT_METRICS):
                continue
            if configs:
                self._kept[resource] = configs
            else:
                self._kept.pop(resource, None)
            if resource.kind == CLIENT_METRICS:
                self._subscribe(resource.name)
        if any(each.kind == BROKER and each.name in (ALL_BROKERS, self._own_name) for each in resources):
            self._reconfigure()

    def _reconfigure(self) -> None:
        try:
            settings = self.layers.settings
        except KafkaConfigurationError as error:
            # They were checked, but with the settings that the broker was started with then.
            _log.error("dynamic configs of this broker are ignored: %s", error)
            settings = self.static
        self._broker.settings = settings
        self._broker.logs.reconfigure(settings.directories, partial(topic_settings, settings.topic_defaults))

    def _subscribe(self, name: str) -> None:
        telemetry, configs = self._broker.telemetry, self.of(CLIENT_METRICS, name)
        if configs:
            metrics, interval_ms, match = subscription_of(configs)
            telemetry.subscribe(name, metrics=metrics, interval_ms=interval_ms, match=match)
        else:
            telemetry.unsubscribe(name)


def subscription_of(configs: Mapping[str, str]) -> tuple[list[str], int, dict[str, str]]:
    """Parse metrics, interval and matches of a client-metrics subscription.

    Raises:
        KafkaConfigurationError: a value does not parse.
    """
    metrics = [name for name in map(str.strip, configs.get("metrics", "").split(",")) if name]
    interval = configs.get("interval.ms", str(DEFAULT_INTERVAL_MS)).strip()
    if not (interval.isdecimal() and len(interval) <= _MOST_DIGITS):
        raise KafkaConfigurationError(f"interval.ms={quoted(interval)}: must be a number of milliseconds")
    match = {}
    for pair in filter(None, map(str.strip, configs.get("match", "").split(","))):
        name, separator, expression = pair.partition("=")
        if not separator:
            raise KafkaConfigurationError(f"match: {quoted(pair)} is not name=expression")
        match[name.strip()] = expression.strip()
    return metrics, int(interval), match
