"""What an operator can set on the broker: Kafka's ``server.properties`` names, types and defaults.

The Python name is Kafka's with underscores: ``num_partitions`` is ``num.partitions``. Settings that stand in
where a topic sets nothing (most of ``log.*``) are declared beside the topic's option in ``LogSettings``;
``table.py`` lists all names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Self

import attrs

from splashdam.embedded_broker.configs.groups import GroupSettings
from splashdam.embedded_broker.configs.limits import LimitSettings
from splashdam.embedded_broker.configs.replication import ReplicationSettings
from splashdam.embedded_broker.configs.security import SecuritySettings
from splashdam.embedded_broker.configs.transactions import TransactionSettings
from splashdam.embedded_broker.configs.without_effect import WITHOUT_EFFECT
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import MAX_INT, kafka_name, nearest_name, option, parse_value, whole_number
from splashdam.storage.settings import DirectorySettings, LogSettings, Synonym


@attrs.frozen(kw_only=True)
class BrokerSettings:
    """The broker's settings; every default is Kafka's. Made by ``from_options`` or ``from_properties``.

    Raises:
        KafkaConfigurationError: a value is illegal.
    """

    node_id: int = option(
        1,
        doc="The id of this broker in metadata answers.",
        check=whole_number(0, MAX_INT),
        notes={"broker": (Synonym("broker.id"),)},
    )
    broker_rack: str = option(
        "",
        check=lambda value: None if isinstance(value, str) else "must be a text",
        notes={"kind": "name"},
        doc="Where this broker stands: answers tell clients, and the replicas of a new partition are spread "
        "over as many racks as there are.",
    )
    num_partitions: int = option(
        1, doc="Partitions of a topic that is created without a number.", check=whole_number(1, MAX_INT)
    )
    default_replication_factor: int = option(
        1,
        doc="Replicas of each partition of a topic that is created without a number.",
        check=whole_number(1, MAX_INT),
    )
    auto_create_topics_enable: bool = option(
        True, doc="Whether asking for the metadata of a missing topic creates it."
    )
    delete_topic_enable: bool = option(True, doc="Whether topics can be deleted.")
    log_dirs: str = option(
        "",
        check=lambda value: None if isinstance(value, str) else "must be paths, separated by commas",
        notes={"kind": "list"},
        doc="Directories that partitions are put into, separated by commas; by default the broker's own, "
        "which keeps topics and users in any case (Kafka's metadata.log.dir). Relative ones lie in that.",
    )
    directories: DirectorySettings = attrs.field(factory=DirectorySettings)
    """How data directories are kept: checkpoints, retention, cleaner."""
    replication: ReplicationSettings = attrs.field(factory=ReplicationSettings)
    groups: GroupSettings = attrs.field(factory=GroupSettings)
    transactions: TransactionSettings = attrs.field(factory=TransactionSettings)
    security: SecuritySettings = attrs.field(factory=SecuritySettings)
    limits: LimitSettings = attrs.field(factory=LimitSettings)
    topic_defaults: LogSettings = attrs.field(factory=LogSettings)
    """The options of a topic that sets none itself."""
    given: Mapping[str, Any] = attrs.field(factory=dict, eq=False, repr=False)
    """What was set, be it to its default, by Kafka's names."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> Self:
        """Settings from keyword options by Python name, and others by Kafka's dotted names.

        Args:
            options: values by Python name.
            config: values or texts by Kafka's names, as in ``server.properties``.

        Raises:
            KafkaConfigurationError: a name is unknown (the nearest right one is named) or given twice, or a
                value is illegal.
        """
        given: dict[str, Any] = {}
        known = broker_names()
        for name, value in options.items():
            dotted = name.replace("_", ".")
            if dotted not in known or "." in name:
                nearest = nearest_name(name, (each.replace(".", "_") for each in known))
                raise KafkaConfigurationError(f"unknown broker option {name!r}.{nearest}")
            given[dotted] = value
        texts = {name.strip(): value for name, value in (config or {}).items()}
        for name in texts.keys() & given.keys():
            raise KafkaConfigurationError(
                f"{name} is given twice, by this name and as {name.replace('.', '_')!r}"
            )
        return cls._of({**given, **texts}, texts)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Settings from Kafka's dotted names and text values, as in ``server.properties``.

        Raises:
            KafkaConfigurationError: a name is unknown or a value does not parse.
        """
        return cls.from_options({}, properties)

    def overlaid(self, configs: Mapping[str, str]) -> Self:
        """These settings with others laid over them, by Kafka's names; names that nobody knows are left out.

        Raises:
            KafkaConfigurationError: a value is illegal.
        """
        known = {name: text for name, text in configs.items() if name in broker_names()}
        return self._of({**self.given, **known}, known) if known else self

    @classmethod
    def _of(cls, given: Mapping[str, Any], texts: Iterable[str]) -> Self:
        for name in given:
            if name not in broker_names():
                raise KafkaConfigurationError(f"unknown broker property {name!r}.{_hint(name)}")
        parts: dict[str, Any] = {}
        for name, part in _PARTS.items():
            chosen: dict[str, Any] = {}
            for field in attrs.fields(part):
                names = (Synonym(kafka_name(field)), *synonyms_of(field))
                chosen.update(_chosen(part, field, names, given, texts))
            parts[name] = part(**chosen)
        topic: dict[str, Any] = {}
        for field in attrs.fields(LogSettings):
            topic.update(_chosen(LogSettings, field, synonyms_of(field), given, texts))
        for field in _fields_of_the_whole():
            names = (Synonym(kafka_name(field)), *synonyms_of(field))
            parts.update(_chosen(cls, field, names, given, texts))
        return cls(**parts, topic_defaults=LogSettings(**topic), given=_parsed(given, texts))

    def without_effect(self) -> dict[str, str]:
        """What was set and changes nothing in this broker: Kafka's name → why."""
        return {
            name: reason
            for name in sorted(self.given)
            if (reason := WITHOUT_EFFECT.get(name) or _declared_without_effect(name))
        }


@cache
def broker_names() -> dict[str, str]:
    """Every name a broker can be given, with the topic's option that it stands in for, or an empty text."""
    names = dict.fromkeys(WITHOUT_EFFECT, "")
    for field in attrs.fields(LogSettings):
        names.update((each.name, kafka_name(field)) for each in synonyms_of(field))
    for field in own_fields():
        names.update((name, "") for name in (kafka_name(field), *(each.name for each in synonyms_of(field))))
    return names


_PARTS: Mapping[str, type[Any]] = {
    "directories": DirectorySettings,
    "replication": ReplicationSettings,
    "groups": GroupSettings,
    "transactions": TransactionSettings,
    "security": SecuritySettings,
    "limits": LimitSettings,
}


def own_fields() -> list[attrs.Attribute[Any]]:
    """The broker's own options, those of its parts too, without those that stand in for topics."""
    return [*_fields_of_the_whole(), *(field for part in _PARTS.values() for field in attrs.fields(part))]


def _fields_of_the_whole() -> list[attrs.Attribute[Any]]:
    return [field for field in attrs.fields(BrokerSettings) if "doc" in field.metadata]


def synonyms_of(field: attrs.Attribute[Any]) -> tuple[Synonym, ...]:
    """What a broker can be set to in an option's stead, the one that counts first."""
    synonyms: tuple[Synonym, ...] = field.metadata.get("broker", ())
    return synonyms


def _chosen(
    cls: type[Any],
    field: attrs.Attribute[Any],
    names: Iterable[Synonym],
    given: Mapping[str, Any],
    texts: Iterable[str],
) -> dict[str, Any]:
    """The value of the first name that is given, if one is; those of the others must be legal, too."""
    values = []
    for each in names:
        if each.name not in given:
            continue
        value, name = given[each.name], each.name.replace(".", "_")
        if each.name in texts:
            value, name = parse_value(field, each.name, value), each.name
        values.append(each.value(value))
        try:
            cls(**{field.name: values[-1]})
        except KafkaConfigurationError as error:
            raise KafkaConfigurationError(f"broker option {name!r}: {error}") from error
    return {field.name: values[0]} if values else {}


def _parsed(given: Mapping[str, Any], texts: Iterable[str]) -> dict[str, Any]:
    """Values instead of the texts that stood for them, so that they can be laid under others later."""
    fields = {kafka_name(field): field for field in own_fields()}
    for field in (*own_fields(), *attrs.fields(LogSettings)):
        fields.update((each.name, field) for each in synonyms_of(field))
    return {
        name: parse_value(fields[name], name, value) if name in texts and name in fields else value
        for name, value in given.items()
    }


def _declared_without_effect(name: str) -> str:
    for field in (*own_fields(), *attrs.fields(LogSettings)):
        if name == kafka_name(field) or name in (each.name for each in synonyms_of(field)):
            return str(field.metadata.get("without_effect", ""))
    return ""


def _hint(name: str) -> str:
    for dotted, topic_option in broker_names().items():
        if name == topic_option:
            return f" It is an option of topics; their default is set by {dotted!r}"
    return nearest_name(name, broker_names())
