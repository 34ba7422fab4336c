"""``ProducerBase``: the methods that all three producers share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, overload

import attrs

from splashdam.client.running.core import NO_INSTANCE_ID, ProducerCore
from splashdam.client.running.lifecycle import State
from splashdam.client.running.process import refuse_inside_a_send
from splashdam.client.sending.lookup import TopicLookup
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.settings.rules import options_from_properties
from splashdam.model.errors import IllegalStateError, KafkaTimeoutError
from splashdam.model.options import default_options
from splashdam.record.kernel import NowaitSends
from splashdam.record.kernel.outcomes.outcome import FutureT

if TYPE_CHECKING:
    from uuid import UUID

    from splashdam.client.local import Lease
    from splashdam.client.observing.metrics import KafkaMetric, MetricName, Metrics
    from splashdam.client.transactions.transactions import Transactions
    from splashdam.embedded_broker.embedded import EmbeddedBroker
    from splashdam.model.views.producer import ProducerView


class ProducerBase(NowaitSends[FutureT]):
    """The common part of ``KafkaProducer``, ``AsyncKafkaProducer`` and ``AsyncioKafkaProducer``."""

    DEFAULT_CONFIG: ClassVar[Mapping[str, Any]] = default_options(ProducerSettings)
    """All options with their defaults."""

    _core: ProducerCore[FutureT]
    _settings: ProducerSettings
    _lease: Lease | None

    @classmethod
    def max_usable_produce_magic(cls, api_version: tuple[int, ...]) -> int:
        """The newest record batch format of a broker version. This producer writes format 2 (Kafka 0.11)."""
        if api_version >= (0, 11):
            return 2
        return 1 if api_version >= (0, 10, 0) else 0

    @classmethod
    def from_properties(cls, source: Mapping[str, str] | str | os.PathLike[str], /, **options: Any) -> Self:
        """Make a producer from Kafka's dotted property names.

        Args:
            source: a mapping, or the path of a ``.properties`` file as Kafka's own tools read it.
            options: further options by their Python names; they win over the properties. ``splashdam
                options`` prints both kinds of names.

        Raises:
            KafkaConfigurationError: the file cannot be read, or a property is unknown (the message suggests
                the nearest name), not supported, or cannot be parsed.
        """
        from splashdam.client.settings.properties import load_properties

        return cls(**{**options_from_properties(load_properties(source)), **options})

    @property
    def config(self) -> dict[str, Any]:
        """All options with their values, as for the constructor. A copy that can be pickled."""
        return attrs.asdict(self._settings, recurse=False)

    @property
    def embedded_broker(self) -> EmbeddedBroker | None:
        """The embedded broker of ``bootstrap_servers="embedded:…"``, else None.

        Its ``bootstrap_servers`` is the address for other clients, if it was started with ``?port=…``.
        The trio producer has it inside its ``async with`` block.
        """
        return None if self._lease is None else self._lease.broker

    @overload
    def metrics(self, raw: Literal[False] = False) -> Metrics: ...

    @overload
    def metrics(self, raw: Literal[True]) -> dict[MetricName, KafkaMetric]: ...

    def metrics(self, raw: bool = False) -> Any:
        """Return metrics as kafka-python does: ``metrics()["producer-metrics"]["record-send-total"]``.

        ``docs/reference/metrics.md`` lists them. Rates and averages cover the last ``metrics_num_samples``
        windows of ``metrics_sample_window_ms``.

        Args:
            raw: return ``KafkaMetric`` objects by ``MetricName``, which read the current value each time.

        Returns:
            values by group and name; None with ``metrics_enabled=False``.

        Raises:
            IllegalStateError: this is a forked child.
        """
        from splashdam.client.observing.metrics import ProducerMetrics

        self._core.refuse_if_foreign()
        if not self._settings.metrics_enabled:
            return None
        metrics = ProducerMetrics(self._core)
        return metrics.objects() if raw else metrics.as_dict()

    @property
    def console_link(self) -> str:
        """The link of the page of ``console_port``; whoever opens it may also change things.

        Raises:
            IllegalStateError: there is no such page.
        """
        console = self._core.console
        if console is None:
            raise IllegalStateError("this producer has no console; give it a console_port")
        return console.link

    def inspect(self) -> ProducerView:
        """Return how the producer is now: each partition's batches and what they wait for, memory, latency.

        ``docs/how-to/console.md`` shows it as a page. It takes the producer's guard for some hundred
        microseconds, and costs nothing when it is not called.

        Raises:
            IllegalStateError: this is a forked child.
        """
        return self._core.inspect()

    def purge(self, queued: bool = True, in_flight: bool = False) -> int:
        """Fail records that are not acknowledged yet. Never waits; semantics are librdkafka's.

        They fail with ``PurgedError``, whose message says whether they were sent; callbacks run soon after,
        on the sender's thread. The producer stays usable.

        Args:
            queued: fail records in queued batches, retries included.
            in_flight: fail records in batches that are in flight. Their responses are ignored, so they may
                have been written, and sending them again may duplicate them.

        Returns:
            the number of failed records.

        Raises:
            IllegalStateError: called in a signal handler or ``__del__`` that has interrupted a ``send``; or
                this is a forked child.
        """
        return self._core.purge(queued=queued, in_flight=in_flight)

    def _ask_identity(self) -> None:
        """Connect to a broker that may assign a client instance id, unless there is one.

        Raises:
            IllegalStateError: no metrics are pushed, or the producer does not run.
        """
        core = self._core
        core.refuse_if_foreign()
        if core.instance_id != NO_INSTANCE_ID:
            return
        if not self._settings.enable_metrics_push:
            raise IllegalStateError("there is no client instance id with enable_metrics_push=False")
        if core.state is State.NEW or core.finished.opened:
            raise core.refusal()
        core.sender.telemetry.connect_soon()

    def _identity(self, timeout: float | None) -> UUID:
        core = self._core
        if core.instance_id == NO_INSTANCE_ID:
            if core.finished.opened:
                raise core.refusal()
            raise KafkaTimeoutError(
                f"no broker assigned a client instance id within {timeout} s;"
                " brokers without a metrics subscription assign none"
            )
        from uuid import UUID

        return UUID(bytes=core.instance_id)

    def bootstrap_connected(self) -> bool:
        """Whether a connection to any broker is open. Connections are opened on first use.

        Raises:
            IllegalStateError: this is a forked child.
        """
        self._core.refuse_if_foreign()
        return not self._core.finished.opened and self._core.sender.statistics().connections > 0

    @property
    def last_failure(self) -> str:
        """Why the cluster does not answer, as text for people; a ``SettingText`` where it names settings."""
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
