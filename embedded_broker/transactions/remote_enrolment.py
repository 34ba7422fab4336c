"""Partitions that join transactions, or are looked up in them, at a coordinator on another broker.

The coordinator is asked by AddPartitionsToTxn 4 and later, before the batch is appended. What it says is kept
for the append that follows at once, and no longer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from splashdam.embedded_broker.internal_topics import TRANSACTION_STATE, InternalTopic
from splashdam.embedded_broker.transactions.metadata import ProducerIdentity
from splashdam.model.broker_errors import CoordinatorNotAvailableError, NotCoordinatorError, error_for
from splashdam.model.errors import BrokerResponseError, KafkaError
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from splashdam.embedded_broker.broker import Broker


class Enrolment(NamedTuple):
    """A producer that is about to write to a partition."""

    topic_partition: TopicPartition
    producer: ProducerIdentity


class RemoteEnrolments:
    """What coordinators on other brokers have said.

    Args:
        broker: who asks.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._topic = InternalTopic(TRANSACTION_STATE, broker)
        self._said: dict[Enrolment, BrokerResponseError | None] = {}

    def coordinator_elsewhere(self, transactional_id: str) -> int | None:
        """The node that coordinates a transactional id, where it is not this one; -1 while there is none."""
        if self._broker.controller.is_alone:
            return None
        where = TopicPartition(TRANSACTION_STATE, self._topic.partition_for(transactional_id))
        leader = self._broker.leadership.leader_of(where)
        if leader is None or leader.node_id == self._broker.node_id:
            return None
        return leader.node_id

    def check(self, enrolment: Enrolment) -> None:
        """Whether the coordinator has agreed, as asked just now.

        Raises:
            BrokerResponseError: why not.
        """
        if enrolment not in self._said:
            raise NotCoordinatorError("the coordinator has moved, and was not asked")
        error = self._said[enrolment]
        if error is not None:
            raise error

    @asynccontextmanager
    async def asked(
        self, node_id: int, transactional_id: str, enrolments: Iterable[Enrolment], *, is_implicit: bool
    ) -> AsyncIterator[None]:
        """Asks about all of them; ``check`` knows the answers within the block, in which nothing waits.

        Args:
            node_id: who coordinates.
            transactional_id: the producer's.
            enrolments: what to ask.
            is_implicit: the partitions are brought into the transaction.
        """
        said: dict[Enrolment, BrokerResponseError | None] = {}
        for producer in dict.fromkeys(each.producer for each in enrolments):
            partitions = [each.topic_partition for each in enrolments if each.producer == producer]
            asked = _request(transactional_id, producer, partitions, is_implicit)
            said.update(await self._ask(node_id, asked, producer, partitions))
        self._said.update(said)
        try:
            yield
        finally:
            for each in said:
                self._said.pop(each, None)

    async def _ask(
        self,
        node_id: int,
        request: AddPartitionsToTxnRequest,
        producer: ProducerIdentity,
        partitions: list[TopicPartition],
    ) -> dict[Enrolment, BrokerResponseError | None]:
        try:
            answer = await self._broker.peers.ask(node_id, request)
        except KafkaError as error:
            unknown = CoordinatorNotAvailableError(f"node {node_id} cannot be asked: {error}")
            return dict.fromkeys((Enrolment(each, producer) for each in partitions), unknown)
        if answer.error_code:
            refused = error_for(answer.error_code, f"node {node_id} says so")
            return dict.fromkeys((Enrolment(each, producer) for each in partitions), refused)
        return {
            Enrolment(TopicPartition(topic.name, each.partition_index), producer): (
                error_for(each.partition_error_code, f"the coordinator, node {node_id}, says so")
                if each.partition_error_code
                else None
            )
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for each in topic.results_by_partition
        }


def _request(
    transactional_id: str,
    producer: ProducerIdentity,
    partitions: Iterable[TopicPartition],
    is_implicit: bool,
) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=not is_implicit,
                topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
            )
        ]
    )
