"""A transactional batch is appended only in an open transaction that has its partition (KIP-890).

The coordinator is asked whether the partition was added, or told to add it. In a cluster that comes before
the batch is appended: a coordinator on another broker is asked by AddPartitionsToTxn 4 or 5, and its own
broker waits, too, until the coordinator's log is replicated. The answer counts for this request only, and for
each partition until the producer's next marker there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from splashdam.embedded_broker.topics.internal_topics import (
    InternalTopic,
    OwnsTopics,
    term_of,
    wait_coordinated,
)
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
    from splashdam.model.values import Buffer
    from splashdam.storage.log import Log
    from splashdam.storage.manager.log_manager import LogManager
    from splashdam.storage.producers.state import Verification


class Enrols(Protocol):
    """What ``enrol`` needs of a broker; the attributes are those of `Broker`."""

    settings: BrokerSettings
    logs: LogManager
    enrolments: Enrolments
    transactions: TransactionCoordinator


def producer_of(batch: Buffer) -> ProducerIdentity:
    """Return the producer id and epoch of a batch, which must have a whole header."""
    producer_id, epoch, _ = PRODUCER.unpack_from(batch, PRODUCER_AT)
    return ProducerIdentity(producer_id, epoch)


def enrol(
    broker: Enrols,
    transactional_id: str | None,
    batch: Buffer,
    log: Log,
    version: int,
    *,
    verdict: CoordinatorVerdict | None = None,
) -> Log | None:
    """Make sure that a transactional batch belongs to an open transaction of its producer.

    Nothing has to be done if the partition already has an open transaction of the same producer and epoch.
    Otherwise the coordinator verifies it (``transaction.partition.verification.enable``) or, for Produce 12
    and later, adds the partition.

    Returns:
        The log to which the coordinator appended, for whose flush the answer has to wait, or None.

    Raises:
        BrokerResponseError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53): the request names no transactional
            id; or the coordinator's error, mapped by ``produce_error``.
    """
    if transactional_id is None:
        raise TransactionalIdAuthorizationFailedError(
            "the batch is transactional, and the request names no transactional id"
        )
    producer = producer_of(batch)
    is_implicit = version >= FIRST_IMPLICIT_PRODUCE
    try:
        return join_transaction(
            broker, transactional_id, producer, log.topic_partition, is_implicit, verdict=verdict
        )
    except BrokerResponseError as error:
        refusal = produce_error(error, version)
        if refusal is error:
            raise  # `raise error from error` would make it its own cause
        raise refusal from error


def join_transaction(
    broker: Enrols,
    transactional_id: str,
    producer: ProducerIdentity,
    topic_partition: TopicPartition,
    is_implicit: bool,
    *,
    verdict: CoordinatorVerdict | None = None,
) -> Log | None:
    """As ``enrol``, for a partition whose log may not exist yet.

    Args:
        broker: that leads the partition.
        transactional_id: of the producer.
        producer: its id and epoch.
        topic_partition: that it is about to write to.
        is_implicit: the request adds the partition to the transaction, as since KIP-890.
        verdict: the coordinator's answer, if ``Enrolments.coordinator_to_ask`` named one.

    Raises:
        BrokerResponseError: from the coordinator.
    """
    log = broker.logs.logs.get(topic_partition)
    if log is not None and log.producers.has_open_transaction(producer.producer_id, producer.epoch):
        return None
    if not is_implicit and not broker.settings.transactions.transaction_partition_verification_enable:
        return None
    if verdict is not None:
        verdict.check(Enrolment(topic_partition, producer))
        return None
    if broker.enrolments.coordinator_to_ask(transactional_id) is not None:
        raise NotCoordinatorError("the coordinator has moved, and the new one was not asked")
    coordinator = broker.transactions
    if is_implicit:
        coordinator.add_partitions(transactional_id, *producer, [topic_partition])
        return coordinator.log_of(transactional_id)
    coordinator.verify_partition(transactional_id, *producer, topic_partition)
    return None


class Enrolment(NamedTuple):
    """A producer and a partition that it is about to write to."""

    topic_partition: TopicPartition
    producer: ProducerIdentity


class CoordinatorVerdict:
    """The answer of a coordinator about the partitions of one request.

    The request may take many turns, and its transaction may end meanwhile. So the answer for a partition is
    valid until the producer's next marker is written there, or the partition is truncated.

    Args:
        logs: of the broker that asked.
        verifications: guards that the logs issued before the question (Kafka's ``VerificationGuard``); None
            for a partition without a log.
        errors: the coordinator's error for each partition; None where it agreed.
    """

    def __init__(
        self,
        logs: LogManager,
        verifications: Mapping[Enrolment, Verification | None],
        errors: Mapping[Enrolment, BrokerResponseError | None],
    ) -> None:
        self._logs = logs
        self._verifications = verifications
        self._errors = errors

    def check(self, enrolment: Enrolment) -> None:
        """Check that the coordinator has agreed, and that its answer is still valid.

        Raises:
            BrokerResponseError: from the coordinator.
            NotCoordinatorError: it was not asked, or the partition was created or deleted since.
            InvalidTxnStateError: the transaction has ended since.
        """
        if enrolment not in self._errors:
            raise NotCoordinatorError("the coordinator was not asked about the partition")
        error = self._errors[enrolment]
        if error is not None:
            raise error
        log = self._logs.logs.get(enrolment.topic_partition)
        verification, producer_id = self._verifications[enrolment], enrolment.producer.producer_id
        if log is None and verification is None:
            return
        if log is None or verification is None:
            raise NotCoordinatorError(
                "the partition was created or deleted after the coordinator had been asked"
            )
        if not log.producers.holds(verification, producer_id):
            raise InvalidTxnStateError(
                f"the transaction of producer {producer_id} ended before the batch could be appended"
            )


class AsksCoordinators(OwnsTopics, KnowsPartitions, Protocol):
    """What `Enrolments` needs of its broker; the attributes are those of `Broker`."""

    controller: Controller
    peers: InterBrokerClient
    transactions: TransactionCoordinator


class Enrolments:
    """Asks coordinators before a batch is appended (Kafka's ``AddPartitionsToTxnManager``).

    The coordinator must not forget that a partition has joined once the partition has a batch: an abort would
    leave that open, and the producer's next commit would commit it. So where the state of transactions has
    replicas, even the coordinator of the same broker is asked, and it answers when they have the change.

    Args:
        broker: that asks.
    """

    def __init__(self, broker: AsksCoordinators) -> None:
        self._broker = broker
        self._topic = InternalTopic(TRANSACTION_STATE, broker)

    def coordinator_to_ask(self, transactional_id: str) -> int | None:
        """Return the node to ask about a transactional id before an append, -1 if nobody coordinates it.

        None: this broker coordinates it, and what it appends is safe at once, or as safe as the batch.
        """
        if self._broker.controller.is_alone:
            return None
        where = TopicPartition(TRANSACTION_STATE, self._topic.partition_for(transactional_id))
        leader = self._broker.leadership.leader_of(where)
        if leader is None:
            return None
        if leader.node_id == self._broker.node_id:
            log = self._broker.logs.logs.get(where)
            return None if log is None or log.replication is None else leader.node_id
        return leader.node_id

    async def ask(
        self, node_id: int, transactional_id: str, enrolments: Iterable[Enrolment], *, is_implicit: bool
    ) -> CoordinatorVerdict:
        """Ask about all enrolments of a request, one producer after the other.

        Args:
            node_id: of the coordinator.
            transactional_id: of the producer.
            enrolments: producers and partitions of the request.
            is_implicit: the coordinator adds the partitions to the transaction; otherwise it only verifies.

        Returns:
            Its answer; COORDINATOR_NOT_AVAILABLE (15) for each partition if it cannot be reached.
        """
        # Before the question: a marker that comes while the coordinator is asked makes its answer void.
        verifications = {each: self._verification(each) for each in enrolments}
        errors: dict[Enrolment, BrokerResponseError | None] = {}
        for producer in dict.fromkeys(each.producer for each in verifications):
            partitions = [each.topic_partition for each in verifications if each.producer == producer]
            if node_id == self._broker.node_id:
                answers = await self._ask_here(transactional_id, producer, partitions, is_implicit)
            else:
                asked = _request(transactional_id, producer, partitions, is_implicit)
                answers = await self._ask(node_id, asked, producer, partitions)
            errors.update(answers)
        return CoordinatorVerdict(self._broker.logs, verifications, errors)

    def _verification(self, enrolment: Enrolment) -> Verification | None:
        log = self._broker.logs.logs.get(enrolment.topic_partition)
        return None if log is None else log.producers.verification(enrolment.producer.producer_id)

    async def _ask_here(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: list[TopicPartition],
        is_implicit: bool,
    ) -> dict[Enrolment, BrokerResponseError | None]:
        coordinator, logs = self._broker.transactions, self._broker.logs.logs
        answers: dict[Enrolment, BrokerResponseError | None] = {}
        try:
            if is_implicit:
                coordinator.add_partitions(transactional_id, *producer, partitions)
                log = coordinator.log_of(transactional_id)
                end_offset, term = log.log_end_offset, term_of(log)
                # A synced batch must not be left by a power cut without the transaction that it is in.
                is_promised = any(
                    each in logs and logs[each].settings.flush_messages == 1 for each in partitions
                )
                needs_sync = log.must_flush or (is_promised and not log.is_synced)
                await wait_coordinated(log, end_offset, term, needs_sync=needs_sync)
        except BrokerResponseError as error:
            return dict.fromkeys((Enrolment(each, producer) for each in partitions), error)
        for topic_partition in partitions:
            enrolment = Enrolment(topic_partition, producer)
            answers[enrolment] = None
            if not is_implicit:
                try:
                    coordinator.verify_partition(transactional_id, *producer, topic_partition)
                except BrokerResponseError as error:
                    answers[enrolment] = error
        return answers

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
            unknown = CoordinatorNotAvailableError(f"node {node_id} cannot be reached: {error}")
            return dict.fromkeys((Enrolment(each, producer) for each in partitions), unknown)
        if answer.error_code:
            refused = error_for(answer.error_code, f"refused by the coordinator, node {node_id}")
            return dict.fromkeys((Enrolment(each, producer) for each in partitions), refused)
        return {
            Enrolment(TopicPartition(topic.name, each.partition_index), producer): (
                error_for(each.partition_error_code, f"refused by the coordinator, node {node_id}")
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
