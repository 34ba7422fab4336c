"""Resources with dynamic configs: topics, brokers, groups, client metrics; and the levels of loggers.

Error codes are those of Kafka's ``ConfigurationControlManager`` and ``ControllerConfigurationValidator``.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Protocol

from splashdam.embedded_broker.configs.described import (
    BrokerLayers,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    all_brokers_entries,
    broker_entries,
    broker_synonyms,
    known,
    topic_entries,
)
from splashdam.embedded_broker.configs.groups import check_group_configs
from splashdam.embedded_broker.configs.table import Scope, check_dynamic
from splashdam.embedded_broker.configs.topics import new_topic_settings
from splashdam.embedded_broker.dynamic_configs.stored import (
    ALL_BROKERS,
    BROKER,
    CLIENT_METRICS,
    GROUP,
    subscription_of,
)
from splashdam.embedded_broker.telemetry.client_metrics import (
    DEFAULT_INTERVAL_MS,
    INTERVALS_MS,
    checked_subscription,
)
from splashdam.model.broker_errors import (
    ErrorCode,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
    error_for,
)
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.log_text import quoted
from splashdam.storage.topic_names import check_topic_name

if TYPE_CHECKING:
    from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
    from splashdam.embedded_broker.controller.controller import Controller
    from splashdam.embedded_broker.dynamic_configs.stored import DynamicConfigs
    from splashdam.embedded_broker.topics.topics import Topics


_MOST_DIGITS = 10
"""Digits of a broker id; ``int()`` refuses texts of thousands of digits."""


class ResourceType(IntEnum):
    """Kafka's ``ConfigResource.Type`` numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class HasConfigs(Protocol):
    """The parts of a broker that resources need; the attributes are those of `Broker`."""

    settings: BrokerSettings
    topics: Topics
    configs: DynamicConfigs
    controller: Controller

    @property
    def node_id(self) -> int: ...


class ConfigResource(ABC):
    """One resource of a broker; made for one request.

    Raises:
        BrokerResponseError: the name is unknown or illegal.
    """

    def __init__(self, broker: HasConfigs, name: str) -> None:
        self.broker = broker
        self.name = name

    @property
    @abstractmethod
    def present(self) -> Mapping[str, str]:
        """The configs that are set for it now."""

    @abstractmethod
    def entries(self) -> list[ConfigEntry]:
        """Return all its configurations."""

    @abstractmethod
    def check(self, configs: Mapping[str, str], changed: Collection[str]) -> None:
        """Refuse configs that cannot be set for it.

        Args:
            configs: all that would be set.
            changed: the names whose values would change.

        Raises:
            BrokerResponseError: names the config and the reason.
        """

    @abstractmethod
    def put(self, configs: Mapping[str, str]) -> None:
        """Replace its configs.

        Raises:
            KafkaStorageError: the disk failed; nothing has changed.
        """

    def list_of(self, name: str) -> str | None:
        """Return the default of a list; None if the config is not a list."""
        return None


class TopicResource(ConfigResource):
    """A topic."""

    @property
    def present(self) -> Mapping[str, str]:
        if not self.name:
            raise InvalidRequestError("the topic has no name; set defaults of all topics on the brokers")
        topic = self.broker.topics.get(self.name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"there is no topic {quoted(self.name)}")
        return topic.configs

    def entries(self) -> list[ConfigEntry]:
        check_topic_name(self.name)
        return topic_entries(self.broker.configs.layers, self.present)

    def check(self, configs: Mapping[str, str], changed: Collection[str]) -> None:
        new_topic_settings(self.broker.settings.topic_defaults, configs)

    def put(self, configs: Mapping[str, str]) -> None:
        self.broker.controller.configure_topic(self.name, configs)

    def list_of(self, name: str) -> str | None:
        row = known(Scope.TOPIC).get(name)
        return None if row is None or row.kind is not ConfigType.LIST else row.default_text or ""


class BrokerResource(ConfigResource):
    """This broker, or with an empty name all of them."""

    def __init__(self, broker: HasConfigs, name: str) -> None:
        super().__init__(broker, name)
        check_is_broker(broker, name)

    @property
    def present(self) -> Mapping[str, str]:
        return self.broker.configs.of(BROKER, self.name)

    @property
    def _layers(self) -> BrokerLayers:
        return self.broker.configs.layers

    def entries(self) -> list[ConfigEntry]:
        return all_brokers_entries(self._layers) if self.name == ALL_BROKERS else broker_entries(self._layers)

    def check(self, configs: Mapping[str, str], changed: Collection[str]) -> None:
        check_dynamic(changed, all_brokers=self.name == ALL_BROKERS)
        try:
            self.broker.configs.settings_with(self.name, configs)
        except KafkaConfigurationError as error:
            raise InvalidRequestError(str(error)) from error

    def put(self, configs: Mapping[str, str]) -> None:
        self.broker.configs.put(BROKER, self.name, configs)

    def list_of(self, name: str) -> str | None:
        row = known(Scope.BROKER).get(name)
        return None if row is None or row.kind is not ConfigType.LIST else row.default_text or ""


class _Simple(ConfigResource):
    """A resource with few configurations: types, defaults and meanings by name."""

    kind: str
    source: ConfigSource
    defaults: ClassVar[Mapping[str, tuple[ConfigType, str, str]]]

    @property
    def present(self) -> Mapping[str, str]:
        return self.broker.configs.of(self.kind, self.name)

    def entries(self) -> list[ConfigEntry]:
        if not self.name:
            raise InvalidRequestError(f"the name of a {self.kind} resource must not be empty")
        return [self._entry(name) for name in sorted(self.defaults)]

    def _entry(self, name: str) -> ConfigEntry:
        kind, default, doc = self.defaults[name]
        found = self._inherited(name)
        if name in self.present:
            found = [ConfigSynonym(name, self.present[name], self.source), *found]
        value = found[0].value if found else default
        source = found[0].source if found else ConfigSource.DEFAULT
        return ConfigEntry(name=name, value=value, source=source, synonyms=tuple(found), kind=kind, doc=doc)

    def _inherited(self, name: str) -> list[ConfigSynonym]:
        return []

    def check(self, configs: Mapping[str, str], changed: Collection[str]) -> None:
        if not self.name:
            raise InvalidRequestError(f"the name of a {self.kind} resource must not be empty")
        self._check(configs)

    @abstractmethod
    def _check(self, configs: Mapping[str, str]) -> None: ...

    def put(self, configs: Mapping[str, str]) -> None:
        self.broker.configs.put(self.kind, self.name, configs)


class ClientMetricsResource(_Simple):
    """A subscription to the metrics of clients (KIP-714)."""

    kind = CLIENT_METRICS
    source = ConfigSource.CLIENT_METRICS
    defaults: ClassVar = {
        "interval.ms": (
            ConfigType.INT,
            str(DEFAULT_INTERVAL_MS),
            "Milliseconds between two pushes of a client, 100 to 3600000.",
        ),
        "match": (
            ConfigType.LIST,
            "",
            "Clients that push: NAME=EXPRESSION separated by commas; all must match. Empty: all clients.",
        ),
        "metrics": (
            ConfigType.LIST,
            "",
            "Prefixes of the names of the metrics that clients push, separated by commas; * for all.",
        ),
    }

    def _check(self, configs: Mapping[str, str]) -> None:
        unknown = configs.keys() - self.defaults.keys()
        if unknown:
            raise InvalidRequestError(f"unknown client metrics configuration {quoted(min(unknown))}")
        try:
            metrics, interval_ms, match = subscription_of(configs)
            if interval_ms not in INTERVALS_MS:
                raise InvalidRequestError(f"interval.ms={interval_ms}: must be 100 to 3600000 (1 hour)")
            checked_subscription(metrics, interval_ms, match)
        except KafkaConfigurationError as error:
            raise error_for(ErrorCode.INVALID_CONFIG, str(error)) from error


class GroupResource(_Simple):
    """A group."""

    kind = GROUP
    source = ConfigSource.GROUP
    defaults: ClassVar = {
        "consumer.heartbeat.interval.ms": (
            ConfigType.INT,
            "",
            "Milliseconds between two heartbeats of a member.",
        ),
        "consumer.session.timeout.ms": (
            ConfigType.INT,
            "",
            "Milliseconds without a heartbeat after which a member is removed from the group.",
        ),
    }

    def _inherited(self, name: str) -> list[ConfigSynonym]:
        return broker_synonyms(self.broker.configs.layers, f"group.{name}")

    def _check(self, configs: Mapping[str, str]) -> None:
        try:
            check_group_configs(self.broker.settings.groups, configs)
        except KafkaConfigurationError as error:
            raise error_for(ErrorCode.INVALID_CONFIG, str(error)) from error


def check_is_broker(broker: HasConfigs, name: str, *, may_be_all: bool = True) -> None:
    """Refuse the name of a broker resource that is not this broker's.

    Raises:
        InvalidRequestError: the name is another broker's, or not a number.
    """
    if may_be_all and name == ALL_BROKERS:
        return
    if not (name.isdecimal() and len(name) <= _MOST_DIGITS):
        raise InvalidRequestError(
            f"the name of a broker resource is its id, a whole number, not {quoted(name)}"
        )
    if int(name) != broker.node_id:
        raise InvalidRequestError(f"this is broker {broker.node_id}; ask broker {name} itself")


RESOURCES: Mapping[int, type[ConfigResource]] = {
    ResourceType.TOPIC: TopicResource,
    ResourceType.BROKER: BrokerResource,
    ResourceType.CLIENT_METRICS: ClientMetricsResource,
    ResourceType.GROUP: GroupResource,
}
"""All but loggers, whose levels are not stored."""


# --- the broker's loggers: Kafka's BROKER_LOGGER -----------------------------------------------------------

# Levels last no longer than the process. ``root`` is this package's logger: what else the program logs is not
# the broker's business.

ROOT = "root"
_PACKAGE = "splashdam"
_LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}


def logger_entries() -> list[ConfigEntry]:
    """Return every logger with its effective level."""
    return [
        ConfigEntry(name=name, value=_level_name(logger), source=ConfigSource.DYNAMIC_BROKER_LOGGER, doc="")
        for name, logger in sorted(_loggers().items())
    ]


def check_levels(levels: Mapping[str, str | None]) -> None:
    """Refuse levels that cannot be set; None removes the level of a logger.

    Raises:
        BrokerResponseError: INVALID_CONFIG (40): no such logger or level; INVALID_REQUEST (42): the root
            logger must have a level.
    """
    known = _loggers()
    for name, level in levels.items():
        if name not in known:
            raise error_for(ErrorCode.INVALID_CONFIG, f"logger {quoted(name)} does not exist")
        if level is None and name == ROOT:
            raise InvalidRequestError("the root logger needs a level")
        if level is not None and level not in _LEVELS:
            raise error_for(
                ErrorCode.INVALID_CONFIG, f"{quoted(level)} is not one of {', '.join(sorted(_LEVELS))}"
            )


def set_levels(levels: Mapping[str, str | None]) -> None:
    """Set levels that have been checked."""
    known = _loggers()
    for name, level in levels.items():
        known[name].setLevel(logging.NOTSET if level is None else _LEVELS[level])


def _loggers() -> dict[str, logging.Logger]:
    """Return the broker's loggers by name."""
    found = {ROOT: logging.getLogger(_PACKAGE)}
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(f"{_PACKAGE}.embedded_broker"):
            found[name] = logging.getLogger(name)
    return found


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((name for name, number in reversed(_LEVELS.items()) if number <= level), "TRACE")
