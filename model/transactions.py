"""What transactions take from applications, and prepared transactions as values that travel."""

from __future__ import annotations

from typing import NamedTuple

import attrs


class OffsetAndMetadata(NamedTuple):
    """A position to commit. Fields, order and defaults are kafka-python's.

    Attributes:
        offset: of the next record to read, one after the last record processed.
        metadata: any text to store with the offset.
        leader_epoch: of the leader that the last record was read from, -1 if unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """The group member that offsets are committed for: a replaced one is fenced (KIP-447).

    kafka-python's ``KafkaConsumer.group_metadata()`` returns such values.

    Attributes:
        group_id: name of the group.
        generation_id: generation of the group's assignment, -1 for none.
        member_id: assigned by the group coordinator, empty for none.
        group_instance_id: of a static member, None for none.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@attrs.frozen
class PreparedTransaction:
    """A prepared transaction: all that is needed to commit or abort it, from any process. It can be pickled.

    ``splashdam.net.admin.transactions.end_transaction`` ends it with one request to the coordinator. Until
    then the cluster keeps it open for at most the producer's ``transaction_timeout_ms``, counted from its
    first record.

    Attributes:
        transactional_id: of the producer.
        producer_id: assigned to the producer by the cluster.
        producer_epoch: of that producer.
        is_empty: nothing was sent in it, so there is nothing to end.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_empty: bool = False
