"""``delivery=exactly_once`` in a task: its rows are written in a transaction that is prepared, not
committed."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import attrs

from splashdam.client.producer import KafkaProducer
from splashdam.model.broker_errors import UnknownTopicOrPartitionError
from splashdam.model.transactions import PreparedTransaction
from splashdam.pipeline.sink.decisions import Decision, last_decision, transactions_prefix
from splashdam.pipeline.sink.options import SinkOptions
from splashdam.pipeline.sink.rows import RowReader
from splashdam.pipeline.sink.sending import GIVE_UP_SECONDS, send_rows
from splashdam.pipeline.sink.tasks import TaskIdentity

if TYPE_CHECKING:
    import pyarrow as pa


@attrs.frozen
class TaskOutcome:
    """What a task reports to the driver.

    Attributes:
        task: its identity.
        records: how many rows it wrote.
        prepared: the transaction that holds them; None if no transaction was needed.
        was_decided: the batch was decided already, so the task wrote nothing.
    """

    task: TaskIdentity
    records: int
    prepared: PreparedTransaction | None = None
    was_decided: bool = False


def write_prepared(
    options: SinkOptions, task: TaskIdentity, reader: RowReader, batches: Iterable[pa.RecordBatch]
) -> TaskOutcome:
    """Write the rows of a task; they become visible when the driver commits.

    Raises:
        KafkaError: a row was not written. The transaction is aborted.
    """
    last = _last(options, task)
    if last is not None and last.batch >= task.batch:  # only saves work: the driver checks again
        for _ in batches:  # Spark's worker fails if its input is not consumed
            pass
        return TaskOutcome(task, 0, was_decided=True)
    rows = _with_rows(batches)
    first = next(rows, None)
    if first is None:
        return TaskOutcome(task, 0)
    # Until the last batch has ended, its transactions may be open under ids of this process.
    has_ended = last is not None and last.is_ended
    producer = KafkaProducer(**options.transactional(IDS.take(task, again=has_ended)))
    try:
        producer.init_transactions()
        producer.begin_transaction()
        records = send_rows(producer, reader, chain([first], rows))
        prepared = producer.prepare_transaction()
    except BaseException:
        producer.close(GIVE_UP_SECONDS)  # aborts the transaction
        raise
    producer.close()
    return TaskOutcome(task, records, prepared)


def _last(options: SinkOptions, task: TaskIdentity) -> Decision | None:
    try:
        return options.cluster().ask(lambda clients: last_decision(clients, options.marker_topic, task.query))
    except UnknownTopicOrPartitionError:
        return None


def _with_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch for batch in batches if batch.num_rows)


class TransactionalIds:
    """The transactional ids of this process.

    Each contains the process's name, so that no other process fences a prepared transaction. Coordinators
    keep ids for days, so ids are reused, but only in a later batch of the same query: Spark begins a batch
    after the previous one is committed.
    """

    def __init__(self) -> None:
        self._pid = -1
        self._process = ""
        self._used: dict[str, dict[str, int]] = {}
        self._numbers = itertools.count()  # shared by all queries: a query that was forgotten may come back

    def take(self, task: TaskIdentity, *, again: bool) -> str:
        """Return an id for one attempt of a task.

        Args:
            task: its identity.
            again: whether ids of earlier batches may be reused, because their transactions have ended.
        """
        if self._pid != os.getpid():
            self._pid, self._process, self._used = os.getpid(), uuid.uuid4().hex, {}
        used = self._used.pop(task.query, {})
        self._used = {task.query: used, **dict(list(self._used.items())[:_MOST_QUERIES])}
        free = (name for name, batch in used.items() if again and batch < task.batch)
        name = next(free, "") or f"{transactions_prefix(task.query)}{self._process}/{next(self._numbers)}"
        used[name] = task.batch
        return name


_MOST_QUERIES = 16
"""Queries whose ids are remembered; a forgotten query gets new ids."""

IDS = TransactionalIds()
