"""``delivery=exactly_once``, the part of the driver: a batch is decided once, then its transactions end.

Nothing is remembered from call to call: Spark makes a new writer for each. What holds is in the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import trio

from splashdam.model.broker_errors import (
    InvalidTxnStateError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from splashdam.model.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from splashdam.model.prepared import PreparedTransaction
from splashdam.net.admin.transactions import (
    describe_transaction,
    end_transaction,
    fence_transactional_id,
    open_transactions,
)
from splashdam.pipeline.sink.cluster import Clients, ask
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

PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.1


class LostTransactionsError(KafkaError):
    """A batch is decided, and some of its transactions are gone: their rows are missing in the topic."""

    remedy = (
        "write the rows again by other means, then run the query once with failOnDataLoss=false, which"
        " accepts the loss; and set kafka.transaction.timeout.ms, and transaction.max.timeout.ms of the"
        " brokers, well above the time that a batch and a restart of the query take"
    )


def commit_batch(options: SinkOptions, outcomes: Iterable[TaskOutcome | None]) -> None:
    """Makes all rows of a batch visible, or finishes that where it was begun. Repeating it does nothing.

    Args:
        options: of the sink.
        outcomes: of its tasks.

    Raises:
        LostTransactionsError: it is decided, and a transaction was aborted before it could be committed.
        ProducerFencedError: another driver runs this query.
        KafkaError: the cluster did not answer, or a transaction is gone before anything was decided.
    """
    told = [each for each in outcomes if each is not None]
    prepared = [each.prepared for each in told if each.prepared is not None]
    if not prepared and not any(each.was_decided for each in told):
        return
    query, batch = told[0].task.query, told[0].task.batch
    with Decider(options, query) as decider:
        found = ask(options, lambda clients: _last(clients, options, query))
        if found is None or found.batch < batch:
            if not prepared:
                raise IllegalStateError(
                    f"query {query!r}: a task found batch {batch} decided in {options.marker_topic!r}, where"
                    " it is not now: was the topic emptied?"
                )
            ask(options, lambda clients: _check_open(clients, prepared))
            found = Decision(batch, tuple(prepared))
            decider.decide(found)
        if found.batch == batch and not found.is_ended:
            ask(options, lambda clients: _commit_all(clients, options, found))
            decider.decide(Decision(batch, (), is_ended=True))
        ask(options, lambda clients: _clear(clients, query))


def abort_batch(options: SinkOptions, outcomes: Iterable[TaskOutcome | None]) -> None:
    """Gives up what the tasks have prepared, unless the batch is decided: what counts is not undone.

    Args:
        options: of the sink.
        outcomes: of its tasks, None for those that have failed. What these leave is given up by the next
            commit, or when its time is up.

    Raises:
        KafkaError: the cluster did not answer. Then time gives it up.
    """
    told = [each for each in outcomes if each is not None]
    if not told:
        return
    query, batch = told[0].task.query, told[0].task.batch
    with Decider(options, query):  # from now on no older driver decides
        found = ask(options, lambda clients: _last(clients, options, query))
        if found is None or found.batch < batch:
            ask(options, lambda clients: _clear(clients, query))


async def _last(clients: Clients, options: SinkOptions, query: str) -> Decision | None:
    """A topic that exists, but not yet or not now to the broker that is asked, is waited for: that there is
    no decision is never concluded from that."""
    topic = options.marker_topic
    await ensure_topic(clients, topic)
    with trio.move_on_after(PATIENCE_SECONDS):
        while True:
            try:
                return await last_decision(clients, topic, query)
            except UnknownTopicOrPartitionError:
                await trio.sleep(_PAUSE_SECONDS)
    raise KafkaTimeoutError(f"topic {topic!r} exists, but its brokers do not know it: try again")


async def _check_open(clients: Clients, prepared: Sequence[PreparedTransaction]) -> None:
    """Nothing is decided that cannot be carried out."""
    try:
        found = [await describe_transaction(clients.cluster, each.transactional_id) for each in prepared]
    except UnsupportedVersionError:
        return  # before Kafka 3.0 nobody can say
    pairs = zip(found, prepared, strict=True)
    gone = [each.transactional_id for each, wanted in pairs if not each.is_open(wanted)]
    if gone:
        raise KafkaError(
            f"the batch is not committed: the transactions of {', '.join(gone)} are not open any more."
            " Batches take longer than kafka.transaction.timeout.ms, or the query runs twice;"
            " Spark writes it again"
        )


async def _commit_all(clients: Clients, options: SinkOptions, decision: Decision) -> None:
    lost: list[str] = []
    for each in decision.transactions:
        try:
            await end_transaction(clients.cluster, each, committed=True)
        except (ProducerFencedError, InvalidTxnStateError) as error:
            text = f"{each.transactional_id}: {error}"
            logger.warning("batch %d is decided, and incomplete: %s", decision.batch, text)
            lost.append(each.transactional_id)
    if lost and options.fail_on_data_loss:
        raise LostTransactionsError(
            f"batch {decision.batch} is decided, but {len(lost)} of its {len(decision.transactions)}"
            f" transactions were aborted before they were committed: {', '.join(lost)}. The rows of these"
            " tasks are missing in the topic, the others are there"
        )


async def _clear(clients: Clients, query: str) -> None:
    """Aborts what attempts that do not count have left open, so that no reader has to wait for it."""
    try:
        left = await open_transactions(clients.cluster, transactions_prefix(query))
    except UnsupportedVersionError:
        return  # before Kafka 3.0 it takes until their time is up
    for transactional_id in left:
        await fence_transactional_id(clients.cluster, transactional_id)
