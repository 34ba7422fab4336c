"""DescribeConfigs without I/O: every configuration of a topic or broker with value, source and type.

The order of sources is that of Kafka's ``ConfigHelper``: set for the topic, for this broker, for all brokers,
in the broker's configuration file, and last the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

import attrs

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.table import KnownConfig, Scope, is_custom, is_dynamic, known_configs
from splashdam.embedded_broker.configs.topics import topic_settings
from splashdam.embedded_broker.configs.without_effect import IDLE_CONFIGS
from splashdam.model.options import kafka_name
from splashdam.model.secrets import Secret
from splashdam.storage.settings import LogSettings


class ConfigSource(IntEnum):
    """Kafka's numbers of sources."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(IntEnum):
    """Kafka's numbers of types."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSynonym(NamedTuple):
    """A name that is set, or has a default, and its source."""

    name: str
    value: str | None
    source: ConfigSource


@attrs.frozen(kw_only=True)
class ConfigEntry:
    """One configuration as Kafka describes it.

    Attributes:
        name: of the configuration.
        value: as text; None if the configuration is unset or secret.
        source: of the value.
        read_only: whether it cannot be changed while the broker runs.
        is_sensitive: whether the value is secret.
        synonyms: where it is set, in the order of precedence.
        kind: its type.
        doc: meaning and unit; None for an unknown name.
    """

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    kind: ConfigType = ConfigType.UNKNOWN
    doc: str | None = None


class BrokerLayers(NamedTuple):
    """The sources of a broker's settings.

    Attributes:
        static: the settings that it was started with.
        all_brokers: set for all brokers of the cluster, by name.
        own: set for this broker, by name.
    """

    static: BrokerSettings
    all_brokers: Mapping[str, str]
    own: Mapping[str, str]

    @property
    def settings(self) -> BrokerSettings:
        """The settings that result.

        Raises:
            KafkaConfigurationError: a value is illegal.
        """
        return self.static.overlaid({**self.all_brokers, **self.own})

    def named(self, name: str) -> Iterator[ConfigSynonym]:
        """Yield the places where a name is set; its default is not among them."""
        if name in self.own:
            yield ConfigSynonym(name, self.own[name], ConfigSource.DYNAMIC_BROKER)
        if name in self.all_brokers:
            yield ConfigSynonym(name, self.all_brokers[name], ConfigSource.DYNAMIC_DEFAULT_BROKER)
        if name in self.static.given:
            yield ConfigSynonym(name, as_text(self.static.given[name]), ConfigSource.STATIC_BROKER)


def topic_entries(layers: BrokerLayers, configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every option of a topic that sets ``configs`` itself, sorted by name.

    Raises:
        BrokerResponseError: as ``topic_settings``.
    """
    settings = topic_settings(layers.settings.topic_defaults, configs)
    entries = []
    for field in attrs.fields(LogSettings):
        name = kafka_name(field)
        row = known(Scope.TOPIC)[name]
        value = as_text(getattr(settings, field.name))
        found = [ConfigSynonym(name, value, ConfigSource.DYNAMIC_TOPIC)] if name in configs else []
        found += _synonyms(layers, row.synonyms)
        entries.append(_entry(row, value, found, read_only=False))
    return sorted(entries, key=lambda entry: entry.name)


def broker_entries(layers: BrokerLayers) -> list[ConfigEntry]:
    """Return every setting of a broker, sorted by name; values of unknown names are hidden."""
    entries = []
    for name, row in known(Scope.BROKER).items():
        if name in _OF_THE_AUTHORIZER and not any(layers.named(name)):
            continue
        found = broker_synonyms(layers, name)
        value = found[0].value if found and found[0].name == name else row.default_text
        entries.append(_entry(row, value, found, read_only=not _may_change(name)))
    custom = {name for name in (*layers.own, *layers.all_brokers) if is_custom(name)}
    entries += [_hidden(name, layers.named(name)) for name in custom]
    return sorted(entries, key=lambda entry: entry.name)


def _may_change(name: str) -> bool:
    """Return whether Kafka calls it dynamic: TLS settings, too, which change for single listeners only."""
    return is_dynamic(name) or name.startswith("ssl.")


def broker_synonyms(layers: BrokerLayers, name: str) -> list[ConfigSynonym]:
    """Return where a setting of a broker is set, in the order of precedence, and its default."""
    return _synonyms(layers, (name, *known(Scope.BROKER)[name].synonyms))


def all_brokers_entries(layers: BrokerLayers) -> list[ConfigEntry]:
    """Return the settings that are set for all brokers, sorted by name."""
    entries = []
    for name, text in sorted(layers.all_brokers.items()):
        found = [ConfigSynonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER)]
        row = known(Scope.BROKER).get(name)
        entries.append(_hidden(name, found) if row is None else _entry(row, text, found, read_only=False))
    return entries


def _synonyms(layers: BrokerLayers, names: tuple[str, ...]) -> list[ConfigSynonym]:
    """Return where any of the names is set, then their defaults.

    As in Kafka, there are none if nothing is set and the first name has no default.
    """
    found = [each for name in names for each in layers.named(name)]
    found.sort(key=lambda each: each.source)
    if not found and names and not _defaults(names[:1]):
        return []
    return [*found, *_defaults(names)]


@cache
def _defaults(names: tuple[str, ...]) -> tuple[ConfigSynonym, ...]:
    texts = {name: known(Scope.BROKER)[name].default_text for name in names}
    return tuple(
        ConfigSynonym(name, text, ConfigSource.DEFAULT) for name, text in texts.items() if text is not None
    )


def _entry(
    row: DescribedConfig, value: str | None, found: list[ConfigSynonym], *, read_only: bool
) -> ConfigEntry:
    if row.kind is ConfigType.PASSWORD:
        value, found = None, [each._replace(value=None) for each in found]
    return ConfigEntry(
        name=row.name,
        value=value,
        source=found[0].source if found else ConfigSource.DEFAULT,
        read_only=read_only,
        is_sensitive=row.kind is ConfigType.PASSWORD,
        synonyms=tuple(found),
        kind=row.kind,
        doc=row.doc,
    )


def _hidden(name: str, found: Iterable[ConfigSynonym]) -> ConfigEntry:
    synonyms = tuple(each._replace(value=None) for each in found)
    return ConfigEntry(
        name=name,
        value=None,
        source=synonyms[0].source,
        read_only=True,
        is_sensitive=True,
        synonyms=synonyms,
    )


# --- the table ----------------------------------------------------------------------------------------------


class DescribedConfig(NamedTuple):
    """A row of the configuration table in the protocol's terms; ``default_text`` may be None."""

    name: str
    kind: ConfigType
    default_text: str | None
    synonyms: tuple[str, ...]
    doc: str


_OF_THE_AUTHORIZER = frozenset(["super.users", "allow.everyone.if.no.acl.found"])
"""Settings of the authorizer, which Kafka's broker describes only where they are set."""

_NEVER_SET = {
    "ssl.keystore.password": "No password: a key store is a PEM file, whose key ssl.key.password opens.",
    "ssl.truststore.password": "No password: a trust store is a PEM file.",
}
"""Secrets that Kafka describes and this broker refuses → their documentation."""


@cache
def known(scope: Scope) -> Mapping[str, DescribedConfig]:
    """Return every name of a scope, without those that Kafka has removed."""
    rows = (row for row in known_configs() if row.scope is scope)
    found = {row.name: _described(row) for row in rows if row.doc or row.name in IDLE_CONFIGS}
    if scope is Scope.BROKER:
        for name, doc in _NEVER_SET.items():
            found[name] = DescribedConfig(name, ConfigType.PASSWORD, None, (), doc)
    return found


def _described(row: KnownConfig) -> DescribedConfig:
    idle = IDLE_CONFIGS.get(row.name)
    if idle is not None and not row.doc:
        kind, default = idle
        doc = f"No effect: {row.without_effect}"
        return DescribedConfig(row.name, ConfigType(kind), default, row.synonyms, doc)
    is_open = row.default_value is None or (row.default_value == "" and row.kind in _NULL_IF_EMPTY)
    default = None if is_open else as_text(row.default_value)
    return DescribedConfig(row.name, _kind(row), default, row.synonyms, row.doc)


_KINDS = {
    "boolean": ConfigType.BOOLEAN,
    "number": ConfigType.DOUBLE,
    "text": ConfigType.STRING,
    "path": ConfigType.STRING,
    "name": ConfigType.STRING,
    "list": ConfigType.LIST,
    "class": ConfigType.CLASS,
    "PEM": ConfigType.PASSWORD,
    "password": ConfigType.PASSWORD,
}
_NULL_IF_EMPTY = ("path", "name", "PEM", "password")


def _kind(row: KnownConfig) -> ConfigType:
    if row.kind == "integer":
        return ConfigType.LONG if row.takes_long else ConfigType.INT
    return _KINDS[row.kind]


def as_text(value: Any) -> str | None:
    """Return a value as Kafka writes it; None for a secret."""
    if value is None or isinstance(value, Secret):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).replace("e+", "E").replace("e", "E")
    return str(value)
