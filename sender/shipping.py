"""One ProduceRequest from its batches to their answers: a task each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from splashdam.accumulator.batch import ProducerBatch
from splashdam.model.errors import KafkaConnectionError, KafkaError, ProtocolError
from splashdam.model.values import TopicPartition
from splashdam.net.pending import PendingResponse
from splashdam.sender.completion import Completion
from splashdam.sender.context import SenderContext
from splashdam.sender.links import BrokerLink
from splashdam.sender.produce import (
    answer_of_failure,
    answer_of_silence,
    answers_by_partition,
    build_request,
    check_codec,
    new_leader,
)
from splashdam.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse

Answers = dict[TopicPartition, PartitionProduceResponse]


class Shipping:
    """Sends batches over links and settles them.

    Args:
        context: what all parts share.
        completion: settles batches.
        on_settled: called after each request, with the guard not held.
    """

    def __init__(
        self, context: SenderContext, completion: Completion, on_settled: Callable[[], None]
    ) -> None:
        self._context = context
        self._completion = completion
        self._on_settled = on_settled

    async def ship(self, link: BrokerLink, batches: Sequence[ProducerBatch]) -> None:
        """Seals and sends the batches, waits for the answer and settles each batch."""
        try:
            pending = await self._submit(link, batches)
        except ProtocolError as error:  # ours: what a broker does wrong comes with its answer
            with self._context.guard:
                for batch in batches:
                    self._completion.refuse_unsent(batch, error)
            self._tell()
        except KafkaError as error:
            self._settle(batches, _failures(batches, error))
        else:
            await self._finish(pending, batches)

    async def _submit(
        self, link: BrokerLink, batches: Sequence[ProducerBatch]
    ) -> PendingResponse[ProduceResponse]:
        context = self._context
        pending = await link.submit(
            ProduceRequest,
            lambda version: self._request(batches, version),
            expect_response=context.settings.acks != 0,
        )
        context.counters.requests_sent += 1
        context.counters.batches_sent += len(batches)
        context.counters.bytes_sent += sum(batch.size_bytes for batch in batches)
        return pending

    async def _finish(
        self, pending: PendingResponse[ProduceResponse], batches: Sequence[ProducerBatch]
    ) -> None:
        try:
            answers = await self._wait(pending, batches)
        except KafkaError as error:
            answers = _failures(batches, error)
        self._settle(batches, answers)

    async def _wait(
        self, pending: PendingResponse[ProduceResponse], batches: Sequence[ProducerBatch]
    ) -> Answers:
        context = self._context
        if context.settings.acks == 0:
            return {batch.topic_partition: answer_of_silence(batch) for batch in batches}
        response = await pending.wait()
        context.counters.answers += 1
        context.counters.latency_ms_total += context.clock.now_ms() - pending.sent_at_ms
        return self._answers(batches, response)

    def _request(self, batches: Sequence[ProducerBatch], version: int) -> ProduceRequest:
        settings = self._context.settings
        check_codec(settings.compression, version)
        return build_request(
            batches,
            acks=settings.acks,
            timeout_ms=settings.request_timeout_ms,
            compression=settings.compression,
        )

    def _answers(self, batches: Sequence[ProducerBatch], response: ProduceResponse) -> Answers:
        answers = answers_by_partition(response)
        for batch in batches:
            answer = answers.get(batch.topic_partition)
            if answer is None:
                silence = KafkaConnectionError("the broker's answer does not name this partition")
                answers[batch.topic_partition] = answer_of_failure(batch, silence)
            elif answer.error_code:
                self._follow_leader(batch, answer, response)
        return answers

    def _follow_leader(
        self, batch: ProducerBatch, answer: PartitionProduceResponse, response: ProduceResponse
    ) -> None:
        metadata = self._context.metadata
        leader = new_leader(answer, response, metadata.cluster.nodes)
        if leader is not None:
            with self._context.guard:
                metadata.apply_leader(batch.topic_partition, leader, answer.current_leader.leader_epoch)

    def _settle(self, batches: Sequence[ProducerBatch], answers: Answers) -> None:
        now_ms = self._context.clock.now_ms()
        with self._context.guard:
            for batch in batches:
                self._completion.settle(batch, answers[batch.topic_partition], now_ms)
        self._tell()

    def _tell(self) -> None:
        self._completion.run_finished()
        self._on_settled()


def _failures(batches: Sequence[ProducerBatch], error: KafkaError) -> Answers:
    return {batch.topic_partition: answer_of_failure(batch, error) for batch in batches}
