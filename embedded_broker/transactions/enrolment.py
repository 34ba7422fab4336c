"""A transactional batch is appended only in an open transaction that has its partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splashdam.embedded_broker.transactions.answers import FIRST_IMPLICIT_PRODUCE, produce_error
from splashdam.model.broker_errors import TransactionalIdAuthorizationFailedError
from splashdam.model.errors import BrokerResponseError
from splashdam.record.batch import PRODUCER, PRODUCER_AT

if TYPE_CHECKING:
    from splashdam.embedded_broker.broker import Broker
    from splashdam.embedded_broker.storage.log import Log
    from splashdam.model.values import Buffer


def enrol(broker: Broker, transactional_id: str | None, batch: Buffer, log: Log, version: int) -> Log | None:
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
    producer_id, epoch, _ = PRODUCER.unpack_from(batch, PRODUCER_AT)
    if log.producers.has_open_transaction(producer_id, epoch):
        return None
    coordinator = broker.transactions
    try:
        if version >= FIRST_IMPLICIT_PRODUCE:
            coordinator.add_partitions(transactional_id, producer_id, epoch, [log.topic_partition])
            return coordinator.log_of(transactional_id)
        if broker.settings.transaction_partition_verification_enable:
            coordinator.verify_partition(transactional_id, producer_id, epoch, log.topic_partition)
    except BrokerResponseError as error:
        raise produce_error(error, version) from error
    return None
