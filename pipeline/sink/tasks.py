"""The identity of a task that writes: its query, batch and partition."""

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
    """What is the same for all attempts of a task.

    Attributes:
        query: the stream's id, or the name of a batch job.
        batch: number of the batch.
        partition: number of the partition of the batch.
    """

    query: str
    batch: int
    partition: int


def batch_task(query: str, batch: int) -> TaskIdentity:
    """Return the identity of the current task of a batch job.

    Raises:
        IllegalStateError: no task runs here.
    """
    return TaskIdentity(query, batch, _context().partitionId())


def stream_task() -> TaskIdentity:
    """Return the identity of the current task of a stream's micro-batch.

    Raises:
        IllegalStateError: no task runs here, or it does not belong to a stream.
    """
    context = _context()
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if query is None or batch is None:
        raise IllegalStateError("Spark does not say to which query and batch this task belongs")
    return TaskIdentity(query, int(batch), context.partitionId())


def _context() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise IllegalStateError("rows are written by Spark's tasks, and none runs here")
    return context
