"""Plays Spark for the sink: tasks with a context, a driver, and what readers see in the end."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyspark
import pytest
import trio
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from splashdam.model.values import IsolationLevel
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST, FetchSettings, open_fetch_client
from splashdam.net.connect import TcpConnect
from splashdam.pipeline.sink.writers import BatchWriter, SinkMessage, StreamWriter

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
    "headers": ArrayType(_HEADER),
}


class FakeContext:
    """What a task may ask Spark."""

    def __init__(self, partition: int, query: str | None = None, batch: int | None = None) -> None:
        self._partition = partition
        self._properties = {
            "sql.streaming.queryId": query,
            "streaming.sql.batchId": None if batch is None else str(batch),
        }

    def partitionId(self) -> int:
        """The partition of the task."""
        return self._partition

    def getLocalProperty(self, name: str) -> str | None:
        """A property of the job."""
        return self._properties[name]


class Tasks:
    """Runs tasks here, with the context that Spark would give them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def run(
        self,
        writer: BatchWriter | StreamWriter,
        batches: Iterable[pa.RecordBatch],
        partition: int = 0,
        query: str | None = None,
        batch: int | None = None,
    ) -> SinkMessage:
        """What a task of a pickled writer answers, pickled."""
        context = FakeContext(partition, query, batch)
        self._monkeypatch.setattr(pyspark.TaskContext, "get", classmethod(lambda _cls: context))
        message = pickle.loads(pickle.dumps(writer)).write(iter(batches))
        return pickle.loads(pickle.dumps(message))


def schema(ddl: str) -> StructType:
    """A DataFrame's, of a text such as `value binary, headers headers`; needs no JVM."""
    pairs = [each.split() for each in ddl.split(", ")]
    return StructType([StructField(name, _TYPES[kind]) for name, kind in pairs])


def options(servers: str, **more: str) -> dict[str, str]:
    """The sink's."""
    return {"kafka.bootstrap.servers": servers, "kafka.linger.ms": "0", **more}


def rows(values: Iterable[bytes]) -> list[pa.RecordBatch]:
    """Batches of a value column."""
    return [pa.record_batch({"value": pa.array(list(values), pa.binary())})]


def read(servers: str, topic: str, *, committed: bool = True) -> list[Any]:
    """The topic's records, partition by partition, as our own reader sees them."""
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    async def run() -> list[Any]:
        found: list[Any] = []
        async with open_fetch_client(
            parse_bootstrap_servers(servers),
            connect=TcpConnect(),
            clock=SystemClock(),
            settings=FetchSettings(isolation_level=level),
        ) as client:
            numbers = await client.partitions(topic)
            ends = await client.offsets(topic, numbers, LATEST)
            at = await client.offsets(topic, numbers, EARLIEST)
            for number in numbers:
                while at[number] < ends[number]:
                    for part in await client.fetch(topic, {number: at[number]}):
                        found += part.records
                        at[number] = part.next_offset
        return found

    return trio.run(run)
