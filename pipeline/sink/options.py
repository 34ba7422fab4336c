"""The sink's options, and the producers that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from splashdam.client.settings.rules import options_from_properties, producer_settings
from splashdam.model.errors import KafkaConfigurationError, SettingText
from splashdam.model.values import IsolationLevel
from splashdam.pipeline.clusters import ClusterConfig, ClusterReader, reader_for
from splashdam.pipeline.options import Option, OptionParser, boolean, integer, one_of, text
from splashdam.storage.topic_names import INTERNAL_TOPICS

AT_LEAST_ONCE, DEDUP, EXACTLY_ONCE = "at_least_once", "dedup", "exactly_once"

DEFAULT_MARKER_TOPIC = "__splashdam_spark_commits"

TRANSACTION_TIMEOUT_MS = 900_000
"""Default time-out of the sink's transactions: the most that brokers accept by default. All tasks of a batch
must be written, and the batch committed, before the first one times out."""

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
    "transactional.id": SettingText(
        "each task has one of its own; set the option {0} to exactly_once", "delivery"
    ),
    "client.dns.lookup": "the client decides itself",
}
_SERVERS = "bootstrap.servers"
_IDEMPOTENCE = "enable.idempotence"


@attrs.frozen
class SinkOptions:
    """The sink's options. They can be pickled.

    Attributes:
        topic: of all rows; None: the column ``topic`` names it.
        delivery: the guarantee.
        query: name of a batch job, None for an anonymous one. A stream uses its query's id.
        batch: number of the query's batch that a batch job is.
        marker_topic: where decisions of ``exactly_once`` are kept.
        fail_on_data_loss: whether a batch with lost transactions fails, at every attempt.
        properties: of the producer, by Kafka's names, sorted; not in the repr, since passwords are among
            them.
    """

    topic: str | None
    delivery: str
    query: str | None
    batch: int
    marker_topic: str
    fail_on_data_loss: bool
    properties: tuple[tuple[str, str], ...] = attrs.field(repr=False)

    def producer_options(self, **more: Any) -> dict[str, Any]:
        """Return a producer's keyword options.

        Raises:
            KafkaConfigurationError: a property is unknown or invalid.
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
        """Return the keyword options of a transactional producer."""
        timeout = {"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS}
        return {**timeout, **self.producer_options(transactional_id=transactional_id)}


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse and check the options of ``df.write`` or ``df.writeStream``.

    Raises:
        KafkaConfigurationError: an option is unknown, missing, invalid, or contradicts another one; or see
            `need_writable`.
    """
    options = _PARSER.parse(given)
    kafka = dict(options.kafka)
    for name, why in _OURS.items():
        if name in kafka:
            raise KafkaConfigurationError(SettingText("{0} cannot be set: {why}", f"kafka.{name}", why=why))
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
    if found.topic is not None:
        need_writable(found.topic, found.marker_topic)
    more = found.transactional("x") if found.delivery == EXACTLY_ONCE else found.producer_options()
    producer_settings(more)
    return found


def need_writable(topic: str, marker_topic: str = DEFAULT_MARKER_TOPIC) -> None:
    """Refuse a topic that other records than a user's are kept in.

    Args:
        topic: to be written to.
        marker_topic: of the sink.

    Raises:
        KafkaConfigurationError: it has the sink's decisions, or is one of Kafka's own.
    """
    if topic in INTERNAL_TOPICS:
        holder = "Kafka keeps its own records there"
    elif topic in (marker_topic, DEFAULT_MARKER_TOPIC):
        holder = "delivery exactly_once keeps its decisions there, and would take the records for some"
    else:
        return
    raise KafkaConfigurationError(f"topic {topic} cannot be written to: {holder}. Give another topic")
