"""A transactional batch is appended only in an open transaction that has its partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from splashdam.embedded_broker.transactions.answers import FIRST_IMPLICIT_PRODUCE, produce_error
from splashdam.embedded_broker.transactions.metadata import ProducerIdentity
from splashdam.embedded_broker.transactions.remote_enrolment import Consent, Enrolment, RemoteEnrolments
from splashdam.model.broker_errors import (
    BrokerResponseError,
    NotCoordinatorError,
    TransactionalIdAuthorizationFailedError,
)
from splashdam.record.batch import PRODUCER, PRODUCER_AT

if TYPE_CHECKING:
    from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
    from splashdam.embedded_broker.transactions.coordinator import TransactionCoordinator
    from splashdam.model.values import Buffer, TopicPartition
    from splashdam.storage.log import Log
    from splashdam.storage.manager.log_manager import LogManager


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
