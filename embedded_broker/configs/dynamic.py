"""Which of a broker's settings can be changed while it runs, and how Kafka refuses the others.

The lists are those of Kafka's ``DynamicBrokerConfig``, as far as this broker can follow: what says who may
connect, and how, is taken at its start only.
"""

from __future__ import annotations

from collections.abc import Collection

from splashdam.embedded_broker.configs.broker_settings import broker_names
from splashdam.model.broker_errors import InvalidRequestError

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
"""Never the same for all brokers."""

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
    """Whether a setting that this broker knows can be changed while it runs."""
    return name in _DYNAMIC


def is_custom(name: str) -> bool:
    """Whether nobody here knows the name: Kafka keeps such settings for plug-ins, and shows none of them."""
    return name not in broker_names() and name not in _DYNAMIC and name not in PER_BROKER


def check_dynamic(names: Collection[str], *, all_brokers: bool) -> None:
    """Refuses what cannot be changed while brokers run.

    Raises:
        InvalidRequestError: naming them.
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
