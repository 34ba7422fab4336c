"""One ProduceRequest from its batches to their answers. No task waits for them: they are called back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from splashdam.accumulator.batch import ProducerBatch
from splashdam.model.errors import KafkaConnectionError, KafkaError, ProtocolError
from splashdam.model.values import TopicPartition
from splashdam.net.connection.pending import PendingResponse
from splashdam.sender.completion import Completion
from splashdam.sender.context import SenderContext
from splashdam.sender.links import BrokerLink
from splashdam.sender.loading import load
from splashdam.sender.produce import (
    LAST_WITH_NAMES,
    LAST_WITHOUT_V2,
    answer_of_failure,
    answer_of_silence,
    answers_by_partition,
    build_request,
    new_leader,
)
from splashdam.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from splashdam.sender.transactions.manager import TransactionManager

Answers = dict[TopicPartition, PartitionProduceResponse]


class Shipping:
    """Sends batches over links and settles them.

    Args:
        context: what all parts share.
        completion: settles batches; somebody else runs their waiters, soon after.
        transactions: of a producer that has a transactional id.

    Attributes:
        ended: the sender gives up what is left, so answers (there are only failures now) settle nothing.
    """

    def __init__(
        self,
        context: SenderContext,
        completion: Completion,
        transactions: TransactionManager | None = None,
    ) -> None:
        self._transactions = transactions
        self._context = context
        self._completion = completion
        self.ended = False

    def ship(self, link: BrokerLink, batches: Sequence[ProducerBatch], patience_ms: float) -> None:
        """Seals and sends the batches. Their answer settles them, or its absence. The guard is not held.

        The loop stands still for at most ``patience_ms`` to have them written; see ``net.writing.send_now``.
        """
        context = self._context
        try:
            if context.accumulator.compressions.used:
                batches = load(context, self._completion, batches, link.version_for(ProduceRequest))
                if not batches:
                    return
            link.submit(
                ProduceRequest,
                partial(self._request, batches),
                partial(self._answered, batches),
                expect_response=context.settings.acks != 0,
                patience_ms=patience_ms,
                newest=self._newest,
            )
        except ProtocolError as error:  # ours: what a broker does wrong comes with its answer
            for batch in batches:
                context.guard.run(self._completion.refuse_unsent, batch, error)
        except KafkaError as error:
            self._settle(batches, _failures(batches, error))

    def _answered(self, batches: Sequence[ProducerBatch], pending: PendingResponse[ProduceResponse]) -> None:
        context = self._context
        if self.ended:
            return
        if pending.error is not None:
            answers = _failures(batches, pending.error)
        elif context.settings.acks == 0:
            answers = {batch.topic_partition: answer_of_silence(batch) for batch in batches}
        else:
            response = pending.result()
            latency_ms = context.clock.now_ms() - pending.sent_at_ms
            context.counters.answered(latency_ms, response.throttle_time_ms)
            answers = self._answers(batches, response)
        self._settle(batches, answers)

    def _request(self, batches: Sequence[ProducerBatch], _version: int) -> ProduceRequest:
        settings = self._context.settings
        request = build_request(
            batches,
            acks=settings.acks,
            timeout_ms=settings.request_timeout_ms,
            compressions=self._context.accumulator.compressions,
            transactional_id=settings.transactional_id,
        )
        # Now that they are sealed, and not let go of yet.
        self._context.counters.shipped(batches, self._context.clock.now_ms())
        return request

    @property
    def _newest(self) -> int:
        """From the version behind the first on, leaders add partitions to the transaction."""
        transactions = self._transactions
        return LAST_WITH_NAMES if transactions is None or transactions.v2 else LAST_WITHOUT_V2

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
            self._context.guard.run(
                metadata.apply_leader, batch.topic_partition, leader, answer.current_leader.leader_epoch
            )

    def _settle(self, batches: Sequence[ProducerBatch], answers: Answers) -> None:
        now_ms = self._context.clock.now_ms()

        def settle() -> None:
            for batch in batches:
                self._completion.settle(batch, answers[batch.topic_partition], now_ms)

        self._context.guard.run(settle)


def _failures(batches: Sequence[ProducerBatch], error: KafkaError) -> Answers:
    return {batch.topic_partition: answer_of_failure(batch, error) for batch in batches}
