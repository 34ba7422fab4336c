"""``delivery=exactly_once`` in the driver: a batch is decided once, then its transactions are ended.

No state is kept between calls, because Spark makes a new writer for each: all state is in the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

import trio

from splashdam.model.broker_errors import (
    InvalidTxnStateError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from splashdam.model.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from splashdam.model.transactions import PreparedTransaction
from splashdam.net.admin.transactions import (
    ONGOING,
    DescribedTransaction,
    describe_transaction,
    end_transaction,
    fence_transactional_id,
    open_transactions,
)
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.pipeline.clusters import Clients
from splashdam.pipeline.sink.decisions import (
    Decider,
    Decision,
    ensure_topic,
    last_decision,
    transactions_prefix,
)
from splashdam.pipeline.sink.options import SinkOptions
from splashdam.pipeline.sink.transactional import TaskOutcome

logger = logging.getLogger("splashdam.pipeline")

PATIENCE_SECONDS = 60.0
"""Longer than another query's decision may stay open, plus the time until brokers abort it."""

_PAUSE_SECONDS = 0.1


class LostTransactionsError(KafkaError):
    """A batch is decided, but some of its transactions were aborted: their rows are missing in the topic."""

    remedy = (
        "write the rows again by other means, then run the query once with failOnDataLoss=false, which"
        " accepts the loss; and set kafka.transaction.timeout.ms, and transaction.max.timeout.ms of the"
        " brokers, well above the time that a batch and a restart of the query take"
    )


def commit_batch(options: SinkOptions, outcomes: Iterable[TaskOutcome | None]) -> None:
    """Make all rows of a batch visible, or finish an interrupted attempt to do so. Idempotent.

    Args:
        options: of the sink.
        outcomes: of its tasks.

    Raises:
        LostTransactionsError: the batch is decided, and a transaction was aborted before it could be
            committed.
        ProducerFencedError: another driver runs this query.
        KafkaError: the cluster did not answer, or a transaction is gone and the batch is not decided.
    """
    reported = [each for each in outcomes if each is not None]
    prepared = [each.prepared for each in reported if each.prepared is not None]
    knew = any(each.was_decided for each in reported)
    if not prepared and not knew:
        return
    query, batch = reported[0].task.query, reported[0].task.batch
    with Decider(options, query) as decider:
        # After older drivers are fenced and their open transaction has ended: what is read now is final.
        found = options.cluster().ask(lambda clients: _last(clients, options, query))
        if found is None or found.batch < batch:
            if knew:
                raise IllegalStateError(
                    f"query {query!r}: a task found batch {batch} decided in {options.marker_topic!r}, where"
                    " it is not now: was the topic emptied?"
                )
            if found is not None:
                _commit_all(options, found)  # an earlier batch whose commit was interrupted and not retried
            # Last chance to fail: until it is decided, Spark can write the batch again.
            _check_open(options, prepared)
            found = Decision(batch, tuple(prepared))
            decider.decide(found)
        elif found.batch > batch:
            # A newer driver has gone on to later batches; this attempt's rows must not join them.
            _give_up(options, prepared)
            return
        _commit_all(options, found)
        # Before the last write, not after it: as long as that succeeds, no newer driver has begun the next
        # batch, so what is open here belongs to attempts that nobody needs (docs/decisions/pipeline-sink.md).
        left = _left_open(options, query)
        # Succeeds only if no newer driver has fenced this one, so none has written the next batch yet.
        decider.decide(Decision(batch, (), is_ended=True))
        _clear(options, left)


def abort_batch(options: SinkOptions, outcomes: Iterable[TaskOutcome | None]) -> None:
    """Abort the transactions that the tasks prepared, unless the batch is decided.

    Args:
        options: of the sink.
        outcomes: of its tasks, None for failed ones. Their transactions are aborted by the next commit, or
            when they time out: another driver may be writing the batch by now.

    Raises:
        KafkaError: the cluster did not answer. Then the transactions time out.
    """
    reported = [each for each in outcomes if each is not None]
    prepared = [each.prepared for each in reported if each.prepared is not None]
    if not prepared:
        return
    query, batch = reported[0].task.query, reported[0].task.batch
    with Decider(options, query):  # fences older drivers
        found = options.cluster().ask(lambda clients: _last(clients, options, query))
        if found is None or found.batch < batch:
            _give_up(options, prepared)


async def _last(clients: Clients, options: SinkOptions, query: str) -> Decision | None:
    """Return the query's last decision; wait for the topic of decisions."""
    topic = options.marker_topic
    with trio.move_on_after(PATIENCE_SECONDS):
        while True:
            try:
                return await last_decision(clients, topic, query, is_certain=True)
            except UnknownTopicOrPartitionError:
                # Not "no decision": a broker may not know the topic yet. It is created only when it is
                # missing, because whoever may write to it need not be allowed to create it.
                await ensure_topic(clients, topic)
            await trio.sleep(_PAUSE_SECONDS)
    raise KafkaTimeoutError(
        f"query {query!r}: its last decision cannot be read within {PATIENCE_SECONDS:g} s. Brokers do not"
        f" know topic {topic!r} yet, or a transaction of another query is open there: try again"
    )


def _check_open(options: SinkOptions, prepared: Sequence[PreparedTransaction]) -> None:
    """Check that all transactions are open before the batch is decided."""
    names = [each.transactional_id for each in prepared]
    try:
        found = options.cluster().ask_for_each(names, describe_transaction)
    except UnsupportedVersionError:
        return  # brokers before Kafka 3.0 have no DescribeTransactions
    pairs = zip(found, prepared, strict=True)
    gone = [each.transactional_id for each, wanted in pairs if not each.is_open(wanted)]
    if gone:
        raise KafkaError(
            f"the batch is not committed: the transactions of {', '.join(gone)} are not open any more."
            " Either the batch took longer than kafka.transaction.timeout.ms, or the query runs twice;"
            " Spark writes the batch again"
        )


def _commit_all(options: SinkOptions, decision: Decision) -> None:
    async def commit(client: ClusterClient, each: PreparedTransaction) -> str:
        try:
            await end_transaction(client, each, committed=True)
        except (ProducerFencedError, InvalidTxnStateError) as error:
            # Not raised: it would cancel the other commits, and a decision is carried out as far as possible.
            logger.warning("batch %d is decided, but incomplete: %s", decision.batch, error)
            return each.transactional_id
        return ""

    lost = [name for name in options.cluster().ask_for_each(decision.transactions, commit) if name]
    if lost and options.fail_on_data_loss:
        raise LostTransactionsError(
            f"batch {decision.batch} is decided, but {len(lost)} of its {len(decision.transactions)}"
            f" transactions were aborted before they were committed: {', '.join(lost)}. The rows of these"
            " tasks are missing in the topic, the others are there"
        )


def _give_up(options: SinkOptions, prepared: Sequence[PreparedTransaction]) -> None:
    """Abort exactly these transactions, not later ones of the same transactional ids."""

    async def abort(client: ClusterClient, each: PreparedTransaction) -> None:
        with suppress(InvalidTxnStateError):  # it is committed already
            await end_transaction(client, each, committed=False)

    options.cluster().ask_for_each(prepared, abort)


def _left_open(options: SinkOptions, query: str) -> list[DescribedTransaction]:
    """Return the open transactions of attempts that do not belong to the decision."""
    try:
        names = options.cluster().ask(
            lambda clients: open_transactions(clients.cluster, transactions_prefix(query))
        )
        found = options.cluster().ask_for_each(names, describe_transaction)
    except UnsupportedVersionError:
        return []  # brokers before Kafka 3.0 cannot list them: they time out
    return [each for each in found if each.state == ONGOING]


def _clear(options: SinkOptions, left: Sequence[DescribedTransaction]) -> None:
    """Abort them and fence their producers, so that readers need not wait for their time-out."""

    async def abort(client: ClusterClient, each: DescribedTransaction) -> None:
        # Another description means a newer transaction of this id, which a newer driver will commit.
        if await describe_transaction(client, each.transactional_id) == each:
            await fence_transactional_id(client, each.transactional_id)

    options.cluster().ask_for_each(left, abort)
