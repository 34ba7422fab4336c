"""What a task does: fetch a range of offsets, decode it, and report records that are gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import attrs

from splashdam.model.broker_errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from splashdam.model.errors import message_of
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.clusters import ClusterConfig, ClusterReader, reader_for
from splashdam.pipeline.local_source.options import SourceOptions
from splashdam.pipeline.local_source.planning import DataLoss, OffsetRange
from splashdam.pipeline.schema import Columns

if TYPE_CHECKING:
    import pyarrow as pa

    from splashdam.pipeline.decoding import RecordDecoder


@attrs.frozen
class Reading:
    """How every task of a query reads. It travels to the workers, which open their own connections.

    Attributes:
        config: the cluster, and the isolation level.
        columns: of the Arrow batches.
        loss: what to do when records are gone.
    """

    config: ClusterConfig
    columns: Columns
    loss: DataLoss

    @classmethod
    def of(cls, options: SourceOptions, columns: Columns) -> Reading:
        return cls(options.config, columns, DataLoss(options.selection.fail_on_data_loss))

    def cluster(self) -> ClusterReader:
        return reader_for(self.config, self.config.isolation_level)

    def read(self, whole: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range.

        Raises:
            DataLossError: some of them are gone, and ``loss`` fails the query.
            CorruptMessageError: a batch has a wrong checksum.
        """
        cluster = self.cluster()
        first = whole.first
        while first < whole.end:
            decoder = self._decoder(whole, first)
            try:
                chunks = cluster.read(whole.where, first, whole.end, topic_id=whole.topic_id)
                with closing(chunks):  # with a LIMIT, Spark stops before the end of the range
                    for fetched in chunks:
                        yield from decoder.feed(fetched.batches, fetched.aborted)
                if decoder.position < whole.end:  # the log ends earlier, or a transaction is open
                    self.loss.report(f"{whole.where} cannot be read from {decoder.position} to {whole.end}")
                first = whole.end
            except (OffsetOutOfRangeError, UnknownTopicOrPartitionError) as error:
                first = self._after_loss(cluster, whole, decoder.position, error)
            yield from decoder.finish()

    def _decoder(self, whole: OffsetRange, first: int) -> RecordDecoder:
        from splashdam.pipeline.decoding import RecordDecoder

        return RecordDecoder(
            whole.where,
            self.columns,
            first_offset=first,
            end_offset=whole.end,
            read_committed=self.config.isolation_level is IsolationLevel.READ_COMMITTED,
        )

    def _after_loss(
        self, cluster: ClusterReader, whole: OffsetRange, position: int, failure: Exception
    ) -> int:
        """Return the offset at which to continue."""
        where = whole.where
        try:
            if isinstance(failure, UnknownTopicOrPartitionError):
                raise failure
            first, end = (_edge(cluster, where, edge) for edge in (EARLIEST, LATEST))
        except UnknownTopicOrPartitionError as gone:
            self.loss.report(
                f"{where} is no longer there; offsets {position} to {whole.end - 1} were not read"
                f" ({message_of(gone)})"
            )
            return whole.end
        if position < first:
            read_on = min(first, whole.end)
            self.loss.report(f"{where} starts at {first}; offsets {position} to {read_on - 1} were not read")
            return read_on
        if position >= end:
            self.loss.report(f"{where} ends at {end}; offsets {position} to {whole.end - 1} were not read")
            return whole.end
        raise failure  # the position is within the log: the broker contradicts itself


def _edge(cluster: ClusterReader, where: TopicPartition, edge: int) -> int:
    return cluster.offsets(where.topic, [where.partition], edge)[where.partition]
