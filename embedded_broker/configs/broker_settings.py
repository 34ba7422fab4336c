"""What an operator can set on the broker: Kafka's ``server.properties`` names, types and defaults.

The Python name is Kafka's with underscores: ``num_partitions`` is ``num.partitions``. Settings that are
defaults of topic options (most of ``log.*``) are declared beside the topic's option in ``LogSettings``.
``table.py`` lists all names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Self

import attrs

from splashdam.embedded_broker.configs.groups import GroupSettings
from splashdam.embedded_broker.configs.security import SecuritySettings
from splashdam.embedded_broker.configs.without_effect import WITHOUT_EFFECT
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import (
    MAX_INT,
    MAX_LONG,
    kafka_name,
    nearest_name,
    one_of,
    option,
    parse_value,
    whole_number,
)
from splashdam.storage.settings import DAY_MS, HOUR_MS, MINUTE_MS, DirectorySettings, LogSettings, Synonym

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
_OWN_REQUEST_BYTES = 256 * 1024 * 1024


@attrs.frozen(kw_only=True)
class ReplicationSettings:
    """How followers fetch from leaders, and how leaders are chosen."""

    replica_lag_time_max_ms: int = option(
        30_000,
        check=whole_number(1),
        doc="Milliseconds that a follower may lag behind before it leaves the ISR",
    )
    replica_fetch_wait_max_ms: int = option(
        500,
        check=whole_number(0, MAX_INT),
        doc="Milliseconds a leader may let a follower's fetch wait for data",
    )
    replica_fetch_min_bytes: int = option(
        1, check=whole_number(0, MAX_INT), doc="Bytes that a leader waits for before it answers a follower"
    )
    replica_fetch_max_bytes: int = option(
        1_048_576,
        check=whole_number(0, MAX_INT),
        doc="Most bytes of one partition in one answer to a follower; a larger batch comes whole",
    )
    replica_fetch_response_max_bytes: int = option(
        10_485_760,
        check=whole_number(0, MAX_INT),
        doc="Most bytes of one answer to a follower; a larger first batch comes whole",
    )
    replica_fetch_backoff_ms: int = option(
        1_000, check=whole_number(0, MAX_INT), doc="Milliseconds a follower rests after a failure"
    )
    replica_socket_timeout_ms: int = option(
        30_000, check=whole_number(1, MAX_INT), doc="Milliseconds a leader may take to answer a follower"
    )
    replica_selector_class: str = option(
        "",
        check=one_of("", _LEADER_SELECTOR, RACK_AWARE_SELECTOR),
        notes={"kind": "name"},
        doc="Who tells consumers which replica to read from: empty or LeaderSelector, the leader; "
        f"{RACK_AWARE_SELECTOR}: one in sync in the rack that the consumer names as its own (client.rack)",
    )
    auto_leader_rebalance_enable: bool = option(
        True, doc="Whether leadership returns to preferred leaders that are in sync again"
    )
    leader_imbalance_check_interval_seconds: int = option(
        300, check=whole_number(1, MAX_INT), doc="Seconds between two checks of auto.leader.rebalance.enable"
    )


@attrs.frozen(kw_only=True)
class TransactionSettings:
    """Transactions, and the topic with their state."""

    transaction_state_log_num_partitions: int = option(
        50, doc="Partitions of __transaction_state when it is created.", check=whole_number(1, MAX_INT)
    )
    transaction_state_log_replication_factor: int = option(
        3,
        check=whole_number(1, 32_767),
        doc="Replicas of each partition of __transaction_state, or as many as there are brokers",
    )
    transaction_state_log_min_isr: int = option(
        2,
        check=whole_number(1, MAX_INT),
        doc="min.insync.replicas of __transaction_state when it is created, at most its number of replicas",
    )
    transaction_state_log_segment_bytes: int = option(
        104_857_600,
        doc="segment.bytes of __transaction_state when it is created.",
        check=whole_number(14, MAX_INT),
    )
    transaction_max_timeout_ms: int = option(
        15 * MINUTE_MS,
        doc="Largest transaction timeout in milliseconds that a producer may ask for.",
        check=whole_number(1, MAX_INT),
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = option(
        10_000,
        doc="Milliseconds between two checks for transactions that have exceeded their timeout.",
        check=whole_number(1, MAX_INT),
    )
    transactional_id_expiration_ms: int = option(
        7 * DAY_MS,
        doc="Milliseconds without use after which a transactional id expires.",
        check=whole_number(1, MAX_INT),
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = option(
        HOUR_MS,
        doc="Milliseconds between two checks for expired transactional ids.",
        check=whole_number(1, MAX_INT),
    )
    transaction_partition_verification_enable: bool = option(
        True,
        doc="Whether a transactional batch is refused where its partition was not added to the transaction.",
    )
    transaction_version: int = option(
        2,
        doc="Level of the feature transaction.version: 0 none, 1 tagged fields in __transaction_state, 2 a "
        "producer epoch for each transaction (KIP-890). In Kafka, kafka-features sets it.",
        check=whole_number(0, 2),
    )


def _overrides(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"must be a text, not {type(value).__name__}"
    try:
        parse_overrides(value)
    except ValueError:
        return "must be ADDRESS:COUNT, separated by commas"
    return None


@attrs.frozen(kw_only=True)
class LimitSettings:
    """Limits for single clients and for all of them together."""

    quota_window_num: int = option(
        11, check=whole_number(1, MAX_INT), doc="Number of windows that quota rates are measured over."
    )
    quota_window_size_seconds: int = option(
        1, check=whole_number(1, MAX_INT), doc="Length of one window in seconds."
    )
    max_connections: int = option(
        MAX_INT,
        check=whole_number(0, MAX_INT),
        doc="Maximum number of connections. It is never above half of the files that the process may open:"
        " the log needs the others.",
    )
    max_connections_per_ip: int = option(
        MAX_INT, check=whole_number(0, MAX_INT), doc="Maximum number of connections from one address."
    )
    max_connections_per_ip_overrides: str = option(
        "",
        check=_overrides,
        notes={"kind": "list"},
        doc="max.connections.per.ip for single addresses, as ADDRESS:COUNT separated by commas.",
    )
    max_connection_creation_rate: int = option(
        MAX_INT,
        check=whole_number(0, MAX_INT),
        doc="Maximum number of new connections per second; further ones wait.",
    )
    queued_max_request_bytes: int = option(
        -1,
        check=whole_number(-1, MAX_LONG),
        doc="Maximum bytes of requests that are received and not answered yet, of all clients together; one"
        " request may exceed it, further ones wait. While some wait, the smallest gets memory first, each"
        " principal in each network has an equal share, and connections that send less than 16 KiB/s are"
        " closed. -1: 256 MiB (Kafka: no limit).",
    )
    socket_request_max_bytes: int = option(
        104_857_600,
        doc="Largest request in bytes; a larger one closes its connection.",
        check=whole_number(1, MAX_INT),
    )
    connections_max_idle_ms: int = option(
        600_000,
        doc="Milliseconds without a byte in either direction after which a connection is closed.",
        check=whole_number(1),
    )
    fetch_max_bytes: int = option(
        57_671_680,
        doc="Maximum bytes of a fetch response, whatever the request allows.",
        check=whole_number(1024, MAX_INT),
    )
    max_incremental_fetch_session_cache_slots: int = option(
        1000,
        doc="Maximum number of fetch sessions (KIP-227); other clients name all partitions in each fetch.",
        check=whole_number(0, MAX_INT),
    )
    telemetry_max_bytes: int = option(
        1_048_576,
        doc="Maximum bytes of metrics in one push of a client.",
        check=whole_number(1, MAX_INT),
    )

    @property
    def request_bytes(self) -> int:
        """``queued_max_request_bytes``, or 256 MiB where it is -1."""
        return _OWN_REQUEST_BYTES if self.queued_max_request_bytes < 1 else self.queued_max_request_bytes


def parse_overrides(text: str) -> dict[str, int]:
    """Parse ``ADDRESS:COUNT,…`` (``max.connections.per.ip.overrides``).

    Raises:
        ValueError: the text has another form.
    """
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        address, _, count = part.rpartition(":")
        found[address.strip().strip("[]")] = int(count)
        if not address or int(count) < 0:
            raise ValueError(part)
    return found


@attrs.frozen(kw_only=True)
class BrokerSettings:
    """The broker's settings; every default is Kafka's. Made by ``from_options`` or ``from_properties``.

    Raises:
        KafkaConfigurationError: a value is illegal.
    """

    node_id: int = option(
        1,
        doc="Id of this broker in metadata responses.",
        check=whole_number(0, MAX_INT),
        notes={"broker": (Synonym("broker.id"),)},
    )
    broker_rack: str = option(
        "",
        check=lambda value: None if isinstance(value, str) else "must be a text",
        notes={"kind": "name"},
        doc="Rack of this broker. Metadata responses name it, and the replicas of a new partition are spread "
        "over the racks.",
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
        doc="Directories for partitions, separated by commas; by default the data directory of the broker. "
        "That one holds topics and users in any case (Kafka's metadata.log.dir). Relative paths start there.",
    )
    directories: DirectorySettings = attrs.field(factory=DirectorySettings)
    """Checkpoints, retention and cleaner of the data directories."""
    replication: ReplicationSettings = attrs.field(factory=ReplicationSettings)
    groups: GroupSettings = attrs.field(factory=GroupSettings)
    transactions: TransactionSettings = attrs.field(factory=TransactionSettings)
    security: SecuritySettings = attrs.field(factory=SecuritySettings)
    limits: LimitSettings = attrs.field(factory=LimitSettings)
    topic_defaults: LogSettings = attrs.field(factory=LogSettings)
    """Defaults of topic options."""
    given: Mapping[str, Any] = attrs.field(factory=dict, eq=False, repr=False)
    """Values that were set, even to their defaults, by Kafka's names."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> Self:
        """Make settings from keyword options by Python name and others by Kafka's dotted names.

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
        """Make settings from Kafka's dotted names and text values, as in ``server.properties``.

        Raises:
            KafkaConfigurationError: a name is unknown or a value does not parse.
        """
        return cls.from_options({}, properties)

    def overlaid(self, configs: Mapping[str, str]) -> Self:
        """Return a copy in which other values replace some of these; unknown names are left out.

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
        """Return the names that were set and have no effect in this broker, each with the reason."""
        return {
            name: reason
            for name in sorted(self.given)
            if (reason := WITHOUT_EFFECT.get(name) or _declared_without_effect(name))
        }


@cache
def broker_names() -> dict[str, str]:
    """Return the names of all broker settings, each with the topic option whose default it is, or ""."""
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
    """Return the fields of all groups of settings; defaults of topic options are not among them."""
    return [*_fields_of_the_whole(), *(field for part in _PARTS.values() for field in attrs.fields(part))]


def _fields_of_the_whole() -> list[attrs.Attribute[Any]]:
    return [field for field in attrs.fields(BrokerSettings) if "doc" in field.metadata]


def synonyms_of(field: attrs.Attribute[Any]) -> tuple[Synonym, ...]:
    """Return the broker settings that an option falls back to, in the order of precedence."""
    synonyms: tuple[Synonym, ...] = field.metadata.get("broker", ())
    return synonyms


def _chosen(
    cls: type[Any],
    field: attrs.Attribute[Any],
    names: Iterable[Synonym],
    given: Mapping[str, Any],
    texts: Iterable[str],
) -> dict[str, Any]:
    """Return the value of the first name that is given, if any; the others must be legal, too."""
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
    """Parse text values, so that ``overlaid`` can replace some of them later."""
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
