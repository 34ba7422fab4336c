"""The sink's options, and the producers that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from splashdam.client.settings.rules import options_from_properties, producer_settings
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import IsolationLevel
from splashdam.pipeline.clusters import ClusterConfig, ClusterReader, reader_for
from splashdam.pipeline.options import Option, OptionParser, boolean, integer, one_of, text

AT_LEAST_ONCE, DEDUP, EXACTLY_ONCE = "at_least_once", "dedup", "exactly_once"

DEFAULT_MARKER_TOPIC = "__splashdam_spark_commits"

TRANSACTION_TIMEOUT_MS = 900_000
"""Of the sink's transactions where nobody says: the most that brokers accept by default. All tasks of a batch
have to be written, and the batch committed, before the first one's time is up."""

TOPIC: Option[str | None] = Option("topic", text, None)
DELIVERY = Option("delivery", one_of(AT_LEAST_ONCE, DEDUP, EXACTLY_ONCE), AT_LEAST_ONCE)
QUERY_NAME: Option[str | None] = Option("queryName", text, None)
BATCH_ID = Option("batchId", integer(0), 0)
MARKER_TOPIC = Option("markerTopic", text, DEFAULT_MARKER_TOPIC)
FAIL_ON_DATA_LOSS = Option("failOnDataLoss", boolean, True)
INCLUDE_HEADERS = Option("includeHeaders", boolean, True)
CHECKPOINT: Option[str | None] = Option("checkpointLocation", text, None)

_PARSER = OptionParser(
    "kafka-local, writing",
    [TOPIC, DELIVERY, QUERY_NAME, BATCH_ID, MARKER_TOPIC, FAIL_ON_DATA_LOSS, INCLUDE_HEADERS, CHECKPOINT],
)

_OURS = {
    "key.serializer": "the columns key and value are bytes or text already",
    "value.serializer": "the columns key and value are bytes or text already",
    "interceptor.classes": "rows are sent as Arrow data, which no interceptor sees",
    "transactional.id": "each task has one of its own; set the option delivery to exactly_once",
    "client.dns.lookup": "the client decides itself",
}
_SERVERS = "bootstrap.servers"
_ACKS = "acks"
_IDEMPOTENCE = "enable.idempotence"


@attrs.frozen
class SinkOptions:
    """What the sink is to do. It pickles, and is a key for what is kept by it.

    Attributes:
        topic: where all rows go; None: where the column ``topic`` says.
        delivery: the guarantee.
        query: who writes, for a batch job; None: somebody without a name. A stream has its query's id.
        batch: which of the query's batches a batch job is.
        marker_topic: where decisions of ``exactly_once`` are kept.
        fail_on_data_loss: whether a batch whose transactions were lost fails, again and again.
        properties: the producer's, by Kafka's names, in order; passwords too, so that no repr shows them.
    """

    topic: str | None
    delivery: str
    query: str | None
    batch: int
    marker_topic: str
    fail_on_data_loss: bool
    properties: tuple[tuple[str, str], ...] = attrs.field(repr=False)

    def producer_options(self, **more: Any) -> dict[str, Any]:
        """Keyword options of a producer.

        Raises:
            KafkaConfigurationError: a property is unknown or has no sense.
        """
        return {**options_from_properties(dict(self.properties)), **more}

    def cluster(self) -> ClusterReader:
        """This process's connections to the cluster, which read committed records alone.

        Raises:
            KafkaConfigurationError: a property is unknown or invalid.
        """
        config = ClusterConfig.from_options(dict(self.properties))
        return reader_for(config, IsolationLevel.READ_COMMITTED)

    def transactional(self, transactional_id: str) -> dict[str, Any]:
        """Keyword options of a producer with transactions."""
        timeout = {"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS}
        return {**timeout, **self.producer_options(transactional_id=transactional_id)}


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """What the options of ``df.write`` or ``df.writeStream`` say.

    Raises:
        KafkaConfigurationError: one is unknown, missing, senseless, or contradicts another one.
    """
    options = _PARSER.parse(given)
    kafka = dict(options.kafka)
    for name, why in _OURS.items():
        if name in kafka:
            raise KafkaConfigurationError(f"kafka.{name} cannot be set: {why}")
    servers = kafka.get(_SERVERS, "")
    if not servers:
        raise KafkaConfigurationError(
            "option 'kafka.bootstrap.servers' is missing: name HOST:PORT of a broker"
        )
    if servers.strip().startswith("embedded:"):
        raise KafkaConfigurationError(
            f"kafka.bootstrap.servers={servers!r}: Spark's workers are other processes; start the broker with"
            " a port, EmbeddedBroker(directory, port=0), and name its bootstrap_servers"
        )
    if options[DELIVERY] != AT_LEAST_ONCE and kafka.get(_IDEMPOTENCE, "true").lower() != "true":
        raise KafkaConfigurationError(
            f"delivery={options[DELIVERY]} needs kafka.enable.idempotence=true, which is the default"
        )
    found = SinkOptions(
        topic=options[TOPIC],
        delivery=options[DELIVERY],
        query=options[QUERY_NAME],
        batch=options[BATCH_ID],
        marker_topic=options[MARKER_TOPIC],
        fail_on_data_loss=options[FAIL_ON_DATA_LOSS],
        properties=tuple(sorted(kafka.items())),
    )
    more = found.transactional("x") if found.delivery == EXACTLY_ONCE else found.producer_options()
    producer_settings(more)
    return found
