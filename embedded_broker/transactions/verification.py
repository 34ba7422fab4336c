"""A transactional batch is appended only in an open transaction that has its partition (KIP-890).

The coordinator is asked whether it has, or told to add the partition. One on another broker is asked by
AddPartitionsToTxn 4 or 5 before the batch is appended; its answer counts for the request that asked, and for
each partition until the producer's transaction ends there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from splashdam.embedded_broker.topics.internal_topics import InternalTopic, OwnsTopics
from splashdam.embedded_broker.topics.partitions import KnowsPartitions
from splashdam.embedded_broker.transactions.error_mapping import FIRST_IMPLICIT_PRODUCE, produce_error
from splashdam.embedded_broker.transactions.metadata import ProducerIdentity
from splashdam.model.broker_errors import (
    BrokerResponseError,
    CoordinatorNotAvailableError,
    InvalidTxnStateError,
    NotCoordinatorError,
    TransactionalIdAuthorizationFailedError,
    error_for,
)
from splashdam.model.errors import KafkaError
from splashdam.model.values import TopicPartition
from splashdam.record.batch import PRODUCER, PRODUCER_AT
from splashdam.storage.topic_names import TRANSACTION_STATE
from splashdam.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
    from splashdam.embedded_broker.controller.controller import Controller
    from splashdam.embedded_broker.controller.inter_broker_client import InterBrokerClient
    from splashdam.embedded_broker.transactions.coordinator import TransactionCoordinator
    from splashdam.model.values import Buffer, TopicPartition
    from splashdam.storage.log import Log
    from splashdam.storage.manager.log_manager import LogManager
    from splashdam.storage.producers.state import Verification


class Enrols(Protocol):
    """What is asked of a broker here; the attributes are those of `Broker`."""

    settings: BrokerSettings
    logs: LogManager
    enrolments: RemoteEnrolments
    transactions: TransactionCoordinator


def producer_of(batch: Buffer) -> ProducerIdentity:
    """The producer of a batch, which has a whole header."""
    producer_id, epoch, _ = PRODUCER.unpack_from(batch, PRODUCER_AT)
    return ProducerIdentity(producer_id, epoch)


def enrol(
    broker: Enrols,
    transactional_id: str | None,
    batch: Buffer,
    log: Log,
    version: int,
    *,
    consent: Consent | None = None,
) -> Log | None:
    """Sees to it that a transactional batch belongs to the transaction of its producer.

    Where the partition has an open transaction of the same producer and epoch already, that is so. Otherwise
    the coordinator is asked (``transaction.partition.verification.enable``), or, by Produce 12 and later,
    told.

    Returns:
        The log in which the partition was added, whose flush the answer waits for; None where nothing was.

    Raises:
        BrokerResponseError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53): the request names no transactional
            id; or what ``produce_error`` makes of the coordinator's answer.
    """
    if transactional_id is None:
        raise TransactionalIdAuthorizationFailedError(
            "the batch is transactional, and the request names no transactional id"
        )
    producer = producer_of(batch)
    is_implicit = version >= FIRST_IMPLICIT_PRODUCE
    try:
        return join_transaction(
            broker, transactional_id, producer, log.topic_partition, is_implicit, consent=consent
        )
    except BrokerResponseError as error:
        raise produce_error(error, version) from error


def join_transaction(
    broker: Enrols,
    transactional_id: str,
    producer: ProducerIdentity,
    topic_partition: TopicPartition,
    is_implicit: bool,
    *,
    consent: Consent | None = None,
) -> Log | None:
    """As ``enrol``, of a partition whose log may not be there yet.

    Args:
        broker: whose coordinator it is.
        transactional_id: the producer's.
        producer: its id and epoch.
        topic_partition: what it is about to write to.
        is_implicit: the request brings the partition into the transaction, as those of KIP-890 do.
        consent: what the request was told by a coordinator on another broker, if it asked one.

    Raises:
        BrokerResponseError: what the coordinator says.
    """
    log = broker.logs.logs.get(topic_partition)
    if log is not None and log.producers.has_open_transaction(producer.producer_id, producer.epoch):
        return None
    if not is_implicit and not broker.settings.transactions.transaction_partition_verification_enable:
        return None
    if broker.enrolments.coordinator_elsewhere(transactional_id) is not None:
        if consent is None:
            raise NotCoordinatorError("the coordinator has moved to another broker, which was not asked")
        consent.check(Enrolment(topic_partition, producer))
        return None
    coordinator = broker.transactions
    if is_implicit:
        coordinator.add_partitions(transactional_id, *producer, [topic_partition])
        return coordinator.log_of(transactional_id)
    coordinator.verify_partition(transactional_id, *producer, topic_partition)
    return None


class Enrolment(NamedTuple):
    """A producer that is about to write to a partition."""

    topic_partition: TopicPartition
    producer: ProducerIdentity


class Consent:
    """What a coordinator on another broker said about the partitions of one request.

    The request may take many turns, and its transaction may end meanwhile: what was said of a partition
    counts until the producer's next marker is in it, or the partition is truncated.

    Args:
        logs: of the broker that asked.
        verifications: what each log gave out before the question, and holds until then; None for a partition
            that was not here.
        said: the coordinator's refusals; None where it agrees.
    """

    def __init__(
        self,
        logs: LogManager,
        verifications: Mapping[Enrolment, Verification | None],
        said: Mapping[Enrolment, BrokerResponseError | None],
    ) -> None:
        self._logs = logs
        self._verifications = verifications
        self._said = said

    def check(self, enrolment: Enrolment) -> None:
        """Refuses what is about to be appended, unless the coordinator has agreed and that still counts.

        Raises:
            BrokerResponseError: the coordinator's refusal.
            NotCoordinatorError: it was not asked, or the partition came or went since.
            InvalidTxnStateError: the transaction has ended since.
        """
        if enrolment not in self._said:
            raise NotCoordinatorError("the coordinator, another broker, was not asked about the partition")
        error = self._said[enrolment]
        if error is not None:
            raise error
        log = self._logs.logs.get(enrolment.topic_partition)
        verification, producer_id = self._verifications[enrolment], enrolment.producer.producer_id
        if log is None and verification is None:
            return
        if log is None or verification is None:
            raise NotCoordinatorError("the partition came or went after the coordinator had been asked")
        if not log.producers.holds(verification, producer_id):
            raise InvalidTxnStateError(
                f"the transaction of producer {producer_id} ended before the batch could be appended"
            )


class AsksCoordinators(OwnsTopics, KnowsPartitions, Protocol):
    """What the questions need of the broker that asks; the attributes are those of `Broker`."""

    controller: Controller
    peers: InterBrokerClient


class RemoteEnrolments:
    """The questions of one broker to coordinators on others.

    Args:
        broker: the one that asks.
    """

    def __init__(self, broker: AsksCoordinators) -> None:
        self._broker = broker
        self._topic = InternalTopic(TRANSACTION_STATE, broker)

    def coordinator_elsewhere(self, transactional_id: str) -> int | None:
        """The node that coordinates a transactional id, where it is not this one; -1 while there is none."""
        if self._broker.controller.is_alone:
            return None
        where = TopicPartition(TRANSACTION_STATE, self._topic.partition_for(transactional_id))
        leader = self._broker.leadership.leader_of(where)
        if leader is None or leader.node_id == self._broker.node_id:
            return None
        return leader.node_id

    async def ask(
        self, node_id: int, transactional_id: str, enrolments: Iterable[Enrolment], *, is_implicit: bool
    ) -> Consent:
        """Asks about all enrolments of a request, one producer after the other.

        Args:
            node_id: the coordinator.
            transactional_id: the producer's.
            enrolments: who is about to write where.
            is_implicit: the coordinator is to bring the partitions into the transaction; else it only says
                whether they are in it.

        Returns:
            What it said. Where it cannot be asked, that is COORDINATOR_NOT_AVAILABLE (15) of each partition.
        """
        verifications = {each: self._verification(each) for each in enrolments}
        said: dict[Enrolment, BrokerResponseError | None] = {}
        for producer in dict.fromkeys(each.producer for each in verifications):
            partitions = [each.topic_partition for each in verifications if each.producer == producer]
            asked = _request(transactional_id, producer, partitions, is_implicit)
            said.update(await self._ask(node_id, asked, producer, partitions))
        return Consent(self._broker.logs, verifications, said)

    def _verification(self, enrolment: Enrolment) -> Verification | None:
        log = self._broker.logs.logs.get(enrolment.topic_partition)
        return None if log is None else log.producers.verification(enrolment.producer.producer_id)

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
