"""Whose rows a task writes: of which query and batch, which partition, which attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from splashdam.model.errors import IllegalStateError

if TYPE_CHECKING:
    from pyspark import TaskContext

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


@attrs.frozen
class TaskIdentity:
    """A task, by what is the same for all its attempts.

    Attributes:
        query: the stream's id, or the name of a batch job.
        batch: of the query.
        partition: of the batch.
    """

    query: str
    batch: int
    partition: int


def batch_task(query: str, batch: int) -> TaskIdentity:
    """The task that runs here, of a batch job.

    Raises:
        IllegalStateError: none does.
    """
    return TaskIdentity(query, batch, _context().partitionId())


def stream_task() -> TaskIdentity:
    """The task that runs here, of a stream's micro-batch.

    Raises:
        IllegalStateError: none does, or it is no stream's.
    """
    context = _context()
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if query is None or batch is None:
        raise IllegalStateError("Spark does not say which query and batch this task is of")
    return TaskIdentity(query, int(batch), context.partitionId())


def _context() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise IllegalStateError("rows are written by Spark's tasks, and none runs here")
    return context
