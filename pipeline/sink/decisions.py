"""Decisions: for each query its last batch, with the transactions that hold its rows.

A decision is one record in partition 0 of a compacted topic, with the query as its key, written in a
transaction of the query's own transactional id: of two drivers the newer fences the older, so that no batch
is decided twice. The same transaction commits a group offset that points at the record, so that finding it
takes no scan. A second record says that all transactions of the batch have ended.
"""

from __future__ import annotations

import json
from urllib.parse import quote

import attrs

from splashdam.client.producer import KafkaProducer
from splashdam.model.broker_errors import (
    InvalidProducerEpochError,
    ProducerFencedError,
    TopicAlreadyExistsError,
)
from splashdam.model.errors import KafkaError
from splashdam.model.transactions import PreparedTransaction
from splashdam.model.values import TopicPartition
from splashdam.net.admin.groups import committed_offsets
from splashdam.net.admin.topics import create_topic, list_offsets
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.clusters import Clients
from splashdam.pipeline.sink.options import SinkOptions

PREFIX = "splashdam-spark"

PARTITION = 0

TIMEOUT_MS = 20_000
"""Time-out of the decision's own transaction. While it is open, later decisions of other queries cannot be
read, so a driver that died must not block them for long."""

_VERSION = 1
_CONFIGS = {
    "cleanup.policy": "compact",
    # A query writes some records per second, and only the last one is needed: compact soon, in small
    # segments.
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}


@attrs.frozen
class Decision:
    """A batch whose transactions will be committed, whatever happens from now on.

    Attributes:
        batch: number of the batch; earlier ones are decided as well.
        transactions: to be committed.
        is_ended: whether all of them are committed.
    """

    batch: int
    transactions: tuple[PreparedTransaction, ...]
    is_ended: bool = False

    def encode(self) -> bytes:
        found = [[each.transactional_id, each.producer_id, each.producer_epoch] for each in self.transactions]
        value = {"version": _VERSION, "batch": self.batch, "ended": self.is_ended, "transactions": found}
        return json.dumps(value).encode()


def decode(value: bytes, where: str) -> Decision:
    """Return the decision in a record's value.

    Raises:
        KafkaError: the value has another form, or a later version.
    """
    try:
        found = json.loads(value)
        if found["version"] > _VERSION:
            raise KafkaError(f"{where}: written by a newer splashdam; use that one for this query")
        transactions = tuple(
            PreparedTransaction(str(name), int(i), int(e)) for name, i, e in found["transactions"]
        )
        return Decision(int(found["batch"]), transactions, bool(found["ended"]))
    except (ValueError, KeyError, TypeError) as error:
        raise KafkaError(f"{where}: the record is not a decision of a query: {error!r}") from error


def transactions_prefix(query: str) -> str:
    """Return the prefix of the transactional ids of a query's tasks, which no other query has."""
    return f"{PREFIX}/{quote(query, safe='')}/"


def _decider(query: str) -> str:
    return f"{PREFIX}-decision/{quote(query, safe='')}"


async def last_decision(
    clients: Clients, topic: str, query: str, *, is_certain: bool = False
) -> Decision | None:
    """Return the last decision of a query, None before the first.

    Args:
        clients: of the cluster.
        topic: of decisions.
        query: whose decision.
        is_certain: wait for open transactions of other queries, which may hide a decision, and raise if the
            group offset points at a record that is gone.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
        KafkaError: the cluster did not answer, or the record is invalid or gone.
    """
    where = TopicPartition(topic, PARTITION)
    first = (await clients.fetch.offsets(topic, [PARTITION], EARLIEST))[PARTITION]
    if is_certain:
        # The high watermark, not the last stable offset: so the loop below waits for open transactions. The
        # caller limits the wait.
        end = (await list_offsets(clients.cluster, [where], LATEST))[where]
    else:
        end = (await clients.fetch.offsets(topic, [PARTITION], LATEST))[PARTITION]
    remembered = (await committed_offsets(clients.cluster, _decider(query))).get(where)
    position = first if remembered is None else max(first, remembered.offset)
    found: Decision | None = None
    has_found = False
    key = query.encode()
    while position < end:
        for part in await clients.fetch.fetch(topic, {PARTITION: position}):
            for record in part.records:
                if record.key == key:
                    has_found = True
                    named = f"{where}, offset {record.offset}"
                    found = None if record.value is None else decode(bytes(record.value), named)
            position = part.next_offset
    if is_certain and remembered is not None and not has_found:
        raise KafkaError(
            f"the decision of query {query!r} at {where}, offset {remembered.offset}, is gone: the topic was"
            " emptied, or is not compacted. Set the option markerTopic to a new name; the batch that is"
            " written next may be in the topic already"
        )
    return found


async def ensure_topic(clients: Clients, topic: str) -> None:
    """Create the topic of decisions unless it exists.

    Raises:
        BrokerResponseError: the cluster refuses.
    """
    try:
        await create_topic(clients.cluster, topic, partitions=1, configs=_CONFIGS)
    except TopicAlreadyExistsError:
        return


class Decider:
    """Writes the decisions of a query. Creating one fences the deciders of older drivers.

    Args:
        options: of the sink.
        query: whose batches.

    Raises:
        KafkaError: the coordinator did not answer, or refuses.
    """

    def __init__(self, options: SinkOptions, query: str) -> None:
        self._topic, self._query = options.marker_topic, query
        self._producer = KafkaProducer(
            **options.producer_options(
                transactional_id=_decider(query),
                transaction_timeout_ms=TIMEOUT_MS,
                linger_ms=0,
                enable_metrics_push=False,
            )
        )
        try:
            self._producer.init_transactions()
        except BaseException:
            self.close()
            raise

    def decide(self, decision: Decision) -> None:
        """Write a decision.

        Raises:
            ProducerFencedError: a newer driver of this query decides now.
            KafkaError: it is unknown whether the decision is written; the next driver of the query will find
                out.
        """
        try:
            self._write(decision)
        except (InvalidProducerEpochError, ProducerFencedError) as error:
            raise ProducerFencedError(
                f"query {self._query!r} runs twice, and another driver decides now: stop one of them. Or a"
                f" decision has taken more than {TIMEOUT_MS} ms: start the query again"
            ) from error

    def _write(self, decision: Decision) -> None:
        with self._producer.transaction():
            written = self._producer.send(
                self._topic, decision.encode(), key=self._query.encode(), partition=PARTITION
            )
            where = TopicPartition(self._topic, PARTITION)
            # The offset must be known before the commit, because the group offset that points at the record
            # belongs to the same transaction.
            self._producer.send_offsets_to_transaction({where: written.get().offset}, _decider(self._query))

    def close(self) -> None:
        self._producer.close()

    def __enter__(self) -> Decider:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
