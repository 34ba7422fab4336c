"""A transactional producer without a client: one call for each request, over a connection to a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.record.reader import read_records
from splashdam.storage.files.memory import Fault, MemoryFiles, PowerCutError
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from splashdam.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from splashdam.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support.broker.broker_talk import Talk, batch, produce


@attrs.define
class RawProducer:
    """Identity and sequence numbers; ``uses_v2`` for the requests of KIP-890."""

    talk: Talk
    transactional_id: str = "tx"
    uses_v2: bool = True
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[TopicPartition, int] = attrs.field(factory=dict)

    async def initialize(self, *, timeout_ms: int = 60_000, version: int = 5, keeps: bool = False) -> int:
        """InitProducerId; ``keeps`` names the identity it had (KIP-360). Returns the error code."""
        answer: InitProducerIdResponse = await self.talk.ask(
            InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=self.producer_id if keeps else -1,
                producer_epoch=self.epoch if keeps else -1,
            ),
            version,
        )
        if not answer.error_code:
            self._become(answer.producer_id, answer.producer_epoch)
        return answer.error_code

    async def add(self, *partitions: int, topic: str = "t", version: int = 3) -> list[int]:
        """AddPartitionsToTxn as clients send it; returns the codes."""
        answer = await self.talk.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
            ),
            version,
        )
        return [
            each.partition_error_code
            for results in answer.results_by_topic_v3_and_below
            for each in results.results_by_partition
        ]

    async def add_offsets(self, group_id: str, version: int = 3) -> int:
        """AddOffsetsToTxn; returns the error code."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        return (await self.talk.ask(request, version)).error_code

    async def write(
        self, *values: bytes, topic: str = "t", partition: int = 0, version: int | None = None
    ) -> int:
        """Produces one transactional batch with the next sequence numbers; returns the error code."""
        where = TopicPartition(topic, partition)
        sequence = self.sequences.get(where, 0)
        records = batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        version = (12 if self.uses_v2 else 9) if version is None else version
        fields: dict[str, Any] = {"partition": partition, "transactional_id": self.transactional_id}
        answer = await produce(self.talk, topic, records, version=version, **fields)
        if not answer.error_code:
            self.sequences[where] = sequence + len(values)
        return answer.error_code

    async def end(self, *, is_commit: bool = True, version: int | None = None) -> int:
        """EndTxn; takes over the identity that the answer names. Returns the error code."""
        version = (5 if self.uses_v2 else 3) if version is None else version
        answer: EndTxnResponse = await self.talk.ask(
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=is_commit,
            ),
            version,
        )
        if not answer.error_code and version >= 5:
            self._become(answer.producer_id, answer.producer_epoch)
        return answer.error_code

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch


def committed_values(broker: Broker, topic: str = "t", partition: int = 0) -> list[bytes]:
    """What read_committed sees of a partition."""
    log = broker.logs.logs[TopicPartition(topic, partition)]
    aborted = {
        (each.producer_id, offset)
        for each in log.aborted_transactions(0, log.log_end_offset)
        for offset in range(each.first_offset, each.last_offset)
    }
    return [
        bytes(record.value or b"")
        for header, data in log.batches()
        if not header.is_control and header.base_offset < log.last_stable_offset
        for record in read_records(data)
        if (header.producer_id, record.offset) not in aborted
    ]


@asynccontextmanager
async def opened(files: MemoryFiles, clock: MockClock, **options: Any) -> AsyncIterator[tuple[Broker, Talk]]:
    """A broker on the files, with few partitions of its own topics, and a connection to it."""
    few = {"transaction_state_log_num_partitions": 2, "offsets_topic_num_partitions": 1}
    network = MemoryNetwork()
    async with open_broker(
        "/data",
        host="b",
        port=1,
        listen=network.listen,
        clock=VirtualClock(clock),
        files=files,
        **few,
        **options,
    ) as broker:
        if broker.topics.get("t") is None:
            broker.topics.create("t", 2)
        yield broker, Talk(await network.connect("b", 1))


@asynccontextmanager
async def killed(files: MemoryFiles, clock: MockClock, **options: Any) -> AsyncIterator[tuple[Broker, Talk]]:
    """As ``opened``; at the end the process is killed: what was written stays, nothing is put in order."""
    try:
        async with opened(files, clock, **options) as pair:
            yield pair
            files.inject(Fault(None))
    except* PowerCutError:
        pass
    files.kill()
