"""Every configuration name of broker and topics, with type, default and meaning; and which ones are dynamic.

``tools/configuration_page.py`` writes ``as_markdown`` into ``docs/reference/configuration.md``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum
from typing import Any, NamedTuple

import attrs

from splashdam.embedded_broker.configs.broker_settings import broker_names, own_fields, synonyms_of
from splashdam.embedded_broker.configs.without_effect import WITHOUT_EFFECT
from splashdam.model.broker_errors import InvalidRequestError
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import MAX_INT, MAX_LONG, kafka_name
from splashdam.storage.settings import LogSettings, Synonym


class Scope(Enum):
    """Where a name can be set."""

    BROKER = "broker"
    TOPIC = "topic"


class KnownConfig(NamedTuple):
    """One configuration name.

    Attributes:
        name: Kafka's.
        scope: where it can be set.
        kind: type of the value: boolean, integer, number, text (one of a few), list, path, name, PEM or
            password.
        default: as text; empty if the setting has no default, or takes its default from a synonym.
        synonyms: the names to fall back to, in the order of precedence.
        doc: meaning and unit.
        without_effect: why setting it has no effect in this broker; empty where it has one.
        default_value: the default itself; None where ``default`` is empty.
        takes_long: whether a number may be above 2^31 - 1: Kafka's LONG instead of INT.
    """

    name: str
    scope: Scope
    kind: str
    default: str
    synonyms: tuple[str, ...]
    doc: str
    without_effect: str
    default_value: object = None
    takes_long: bool = False


def known_configs() -> list[KnownConfig]:
    """Return all rows: broker settings, defaults of topic options, topic options, and ignored names."""
    rows = [*_own(), *_topic_defaults(), *_topic(), *_ignored()]
    return sorted(rows, key=lambda row: (row.scope.value, row.name))


def as_markdown() -> str:
    """Return the table as Markdown, with a part for each scope."""
    parts = []
    for scope in Scope:
        parts += [f"## On a {scope.value}", "", "| name | type | default | meaning |", "|---|---|---|---|"]
        parts += [_line(row) for row in known_configs() if row.scope is scope and row.doc]
        parts.append("")
    parts += ["## Known and without any effect", "", "| why | names |", "|---|---|"]
    for reason in dict.fromkeys(WITHOUT_EFFECT.values()):
        names = " ".join(f"`{name}`" for name, why in WITHOUT_EFFECT.items() if why == reason)
        parts.append(f"| {reason} | {names} |")
    return "\n".join(parts) + "\n"


def _line(row: KnownConfig) -> str:
    meaning = meaning_of(row, quote="`", strong="**")
    return f"| `{row.name}` | {row.kind} | {row.default} | {meaning} |"


def meaning_of(row: KnownConfig, *, quote: str = "", strong: str = "") -> str:
    """Return the meaning of a name, with its synonyms and with why it has no effect.

    Args:
        row: of the table.
        quote: stands around names.
        strong: stands around words that are to be noticed.
    """
    meaning = row.doc.rstrip(".").replace("`", quote)
    if row.synonyms:
        meaning += " (unset: " + ", ".join(f"{quote}{name}{quote}" for name in row.synonyms) + ")"
    if not row.without_effect:
        return meaning
    return f"{meaning}{'. ' if meaning else ''}{strong}No effect{strong}: {row.without_effect}"


def _own() -> Iterator[KnownConfig]:
    for field in own_fields():
        synonyms = tuple(each.name for each in synonyms_of(field))
        yield _row(kafka_name(field), Scope.BROKER, field, field.default, synonyms)
        for name in synonyms:
            yield _row(name, Scope.BROKER, field, None, ())


def _topic_defaults() -> Iterator[KnownConfig]:
    own = {kafka_name(field) for field in own_fields()}
    for field in attrs.fields(LogSettings):
        synonyms = synonyms_of(field)
        for number, synonym in enumerate(synonyms):
            if synonym.name not in own:
                following = tuple(each.name for each in synonyms[number + 1 :])
                default = None if following else _in_unit(synonym, field.default)
                row = _row(synonym.name, Scope.BROKER, field, default, following)
                yield row._replace(
                    doc=f"Default of the topic option `{kafka_name(field)}`",
                    takes_long=row.takes_long and synonym.factor == 1,
                )


def _topic() -> Iterator[KnownConfig]:
    for field in attrs.fields(LogSettings):
        synonyms = tuple(each.name for each in synonyms_of(field))
        yield _row(kafka_name(field), Scope.TOPIC, field, field.default, synonyms)


def _ignored() -> Iterator[KnownConfig]:
    for name, reason in WITHOUT_EFFECT.items():
        yield KnownConfig(name, Scope.BROKER, "text", "", (), "", reason)


def _row(
    name: str, scope: Scope, field: attrs.Attribute[Any], default: object, synonyms: tuple[str, ...]
) -> KnownConfig:
    kind = {bool: "boolean", int: "integer", float: "number"}.get(type(field.default), "text")
    kind = field.metadata.get("kind", kind)
    doc, reason = str(field.metadata["doc"]), str(field.metadata.get("without_effect", ""))
    return KnownConfig(
        name,
        scope,
        kind,
        _text(default),
        synonyms,
        doc,
        reason,
        default,
        kind == "integer" and _is_long(field),
    )


def _is_long(field: attrs.Attribute[Any]) -> bool:
    try:
        if field.validator is not None:
            field.validator(None, field, MAX_INT + 1)
    except KafkaConfigurationError:
        return False
    return True


def _in_unit(synonym: Synonym, default: Any) -> Any:
    return default if synonym.factor == 1 or default < 0 else default // synonym.factor


def _text(value: object) -> str:
    if value is None:
        return ""
    if value == MAX_LONG:
        return "2^63 - 1"
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- what can be changed while the broker runs: the lists of Kafka's ``DynamicBrokerConfig`` ----------------

PER_BROKER = frozenset(
    [
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "principal.builder.class",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "ssl.client.auth",
    ]
)
"""Settings that cannot be set for all brokers together."""

_DYNAMIC = frozenset(
    [
        "background.threads",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.cleanable.ratio",
        "log.cleaner.min.compaction.lag.ms",
        "log.cleaner.threads",
        "log.cleanup.policy",
        "log.flush.interval.messages",
        "log.flush.interval.ms",
        "log.index.interval.bytes",
        "log.index.size.max.bytes",
        "log.message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.type",
        "log.preallocate",
        "log.retention.bytes",
        "log.retention.ms",
        "log.roll.jitter.ms",
        "log.roll.ms",
        "log.segment.bytes",
        "log.segment.delete.delay.ms",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "message.max.bytes",
        "metric.reporters",
        "min.insync.replicas",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "producer.id.expiration.ms",
        "transaction.partition.verification.enable",
        "unclean.leader.election.enable",
    ]
)
_SECURITY = "ssl."


def is_dynamic(name: str) -> bool:
    """Return whether a setting can be changed while the broker runs."""
    return name in _DYNAMIC


def is_custom(name: str) -> bool:
    """Return whether the name is unknown. Kafka stores such settings for plug-ins, and hides their values."""
    return name not in broker_names() and name not in _DYNAMIC and name not in PER_BROKER


def check_dynamic(names: Collection[str], *, all_brokers: bool) -> None:
    """Refuse settings that cannot be changed while brokers run.

    Raises:
        InvalidRequestError: names them.
    """
    security = [name for name in names if name.startswith(_SECURITY)]
    if security:
        raise InvalidRequestError(
            f"{_listed(security)} can be changed for single listeners only, which is not offered; set it "
            "in the broker's configuration and start it again"
        )
    own = [name for name in names if name in PER_BROKER]
    if own and all_brokers:
        raise InvalidRequestError(f"{_listed(own)} cannot be the same for all brokers: name a broker")
    fixed = [name for name in names if not is_dynamic(name) and not is_custom(name)]
    if fixed:
        raise InvalidRequestError(
            f"{_listed(fixed)} cannot be changed while the broker runs; set it in its configuration and "
            "start it again"
        )


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
