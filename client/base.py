"""What the blocking and the trio producer have in common."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, overload

import attrs

from splashdam.client.future import RecordFuture
from splashdam.client.running.core import ProducerCore
from splashdam.client.running.process import refuse_inside_a_send
from splashdam.client.sending.lookup import TopicLookup
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.settings.rules import options_from_properties
from splashdam.model.errors import IllegalStateError, KafkaTimeoutError
from splashdam.model.options import default_options
from splashdam.record.kernel import NowaitSends

if TYPE_CHECKING:
    from uuid import UUID

    from splashdam.client.local import Lease
    from splashdam.client.observing.metrics import KafkaMetric, MetricName, Metrics
    from splashdam.client.transactions.transactions import Transactions
    from splashdam.embedded_broker.embedded import EmbeddedBroker


class ProducerBase(NowaitSends[RecordFuture]):
    """Not for use by itself."""

    DEFAULT_CONFIG: ClassVar[Mapping[str, Any]] = default_options(ProducerSettings)
    """All options with their defaults."""

    _core: ProducerCore
    _settings: ProducerSettings
    _lease: Lease | None

    @classmethod
    def max_usable_produce_magic(cls, api_version: tuple[int, ...]) -> int:
        """The newest format of record batches that a broker of this version takes; this producer writes 2,
        which is that of Kafka 0.11 and later."""
        if api_version >= (0, 11):
            return 2
        return 1 if api_version >= (0, 10, 0) else 0

    @classmethod
    def from_properties(cls, source: Mapping[str, str] | str | os.PathLike[str], /, **options: Any) -> Self:
        """Makes a producer from Kafka's dotted names.

        Args:
            source: a mapping, or the path of a ``.properties`` file as Kafka's own tools read it.
            options: further options by their Python names; they win over the properties.

        Raises:
            KafkaConfigurationError: the file cannot be read, or a property is unknown (the nearest right name
                is given), not supported, or does not parse.
        """
        from splashdam.client.settings.properties import load_properties

        return cls(**{**options_from_properties(load_properties(source)), **options})

    @property
    def config(self) -> dict[str, Any]:
        """All options with their values, as the constructor takes them. A copy; it can be pickled."""
        return attrs.asdict(self._settings, recurse=False)

    @property
    def embedded_broker(self) -> EmbeddedBroker | None:
        """The broker inside this process, where ``bootstrap_servers="embedded:…"`` asked for one, else None.

        Its ``bootstrap_servers`` is the address for other clients, if it was started with ``?port=…``.
        The trio producer has it inside its ``async with`` block.
        """
        return None if self._lease is None else self._lease.broker

    @overload
    def metrics(self, raw: Literal[False] = False) -> Metrics: ...

    @overload
    def metrics(self, raw: Literal[True]) -> dict[MetricName, KafkaMetric]: ...

    def metrics(self, raw: bool = False) -> Any:
        """Figures as kafka-python's: ``metrics()["producer-metrics"]["record-send-total"]``.

        ``docs/metrics.md`` lists them. Rates and averages look back on the last
        ``metrics_num_samples`` windows of ``metrics_sample_window_ms``.

        Args:
            raw: True: objects by ``MetricName``, which can be read again and again.

        Returns:
            group -> name -> value; None with ``metrics_enabled=False``.

        Raises:
            IllegalStateError: this is a forked child.
        """
        from splashdam.client.observing.metrics import ProducerMetrics

        self._core.refuse_if_foreign()
        if not self._settings.metrics_enabled:
            return None
        metrics = ProducerMetrics(self._core)
        return metrics.objects() if raw else metrics.as_dict()

    def purge(self, queued: bool = True, in_flight: bool = False) -> int:
        """Gives up records that are not acknowledged yet. Never waits; semantics are librdkafka's.

        They fail with ``PurgedError``, whose text says whether they were sent; callbacks run soon after, on
        the sender's thread. The producer goes on as before, records sent afterwards included.

        Args:
            queued: those in batches that wait to be sent, be it again.
            in_flight: those in batches that were sent and have no answer; an answer is ignored then, so that
                nobody knows whether they were written, and sending them again may duplicate them.

        Returns:
            how many records were given up.

        Raises:
            IllegalStateError: called in a signal handler or ``__del__`` that has interrupted a ``send``; or
                this is a forked child.
        """
        return self._core.purge(queued=queued, in_flight=in_flight)

    def _ask_identity(self) -> None:
        """Sees to it that a broker gives us an instance id, if any does.

        Raises:
            IllegalStateError: no metrics are pushed, or the producer is closed.
        """
        core = self._core
        core.refuse_if_foreign()
        if core.identified.opened:
            return
        if not self._settings.enable_metrics_push:
            raise IllegalStateError("there is no client instance id with enable_metrics_push=False")
        if core.finished.opened:
            raise IllegalStateError("the producer is closed")
        core.sender.telemetry.connect_soon()

    def _identity(self, timeout: float | None) -> UUID:
        if not self._core.identified.opened:
            raise KafkaTimeoutError(
                f"no broker gave a client instance id within {timeout} s;"
                " brokers that ask for no metrics give none"
            )
        from uuid import UUID

        return UUID(bytes=self._core.instance_id)

    def bootstrap_connected(self) -> bool:
        """Whether a connection to any broker is open. Connections are made when they are first needed.

        Raises:
            IllegalStateError: this is a forked child.
        """
        self._core.refuse_if_foreign()
        return not self._core.finished.opened and self._core.sender.statistics().connections > 0

    @property
    def last_failure(self) -> str:
        """What stands between this producer and the cluster, as far as it is known; for people to read."""
        return self._core.intake.last_failure()

    def _transactions(self) -> Transactions:
        transactions = self._core.transactions
        if transactions is None:
            raise IllegalStateError("transactions need a producer with the option transactional_id")
        return transactions

    def _lookup(self, topic: str) -> TopicLookup:
        refuse_inside_a_send("partitions_for()")
        core = self._core
        deadline_ms = core.clock.now_ms() + self._settings.max_block_ms
        return TopicLookup(core.intake, topic, None, deadline_ms)

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled:"
            " create the producer in the worker, from `producer.config`"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._settings.client_id} {self._core.state.name.lower()}>"
