"""The rows of one task, sent: all are acknowledged, or the task fails."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from splashdam.client.producer import KafkaProducer
from splashdam.pipeline.sink.rows import RowReader

if TYPE_CHECKING:
    import pyarrow as pa

    from splashdam.client.reports import BulkDelivery


def send_rows(producer: KafkaProducer, reader: RowReader, batches: Iterable[pa.RecordBatch]) -> int:
    """Sends all rows and waits until the cluster has acknowledged them.

    Args:
        producer: who sends.
        reader: says what the columns mean.
        batches: of the task.

    Returns:
        how many they were.

    Raises:
        KafkaError: a row was not written; what the first such one has failed with.
        BulkSendError: a row cannot be sent.
    """
    sent = 0
    under_way: deque[BulkDelivery] = deque()
    for batch in batches:
        for mine in reader.read(batch):
            under_way.append(producer.send_arrow(mine.topic, mine.rows, may_be_empty=True, **mine.arguments))
            sent += mine.rows.num_rows
        while under_way and under_way[0].done():
            under_way.popleft().get()
    producer.flush()
    for delivery in under_way:
        delivery.get()
    return sent
