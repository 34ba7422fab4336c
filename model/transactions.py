"""What transactions take from applications, and prepared transactions as values that travel."""

from __future__ import annotations

from typing import NamedTuple

import attrs


class OffsetAndMetadata(NamedTuple):
    """How far a partition was read. Fields, order and defaults are kafka-python's.

    Attributes:
        offset: of the record to read next, which is one behind the last one read.
        metadata: any text to be kept with it.
        leader_epoch: of the leader the last record came from, -1 where unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """Who commits offsets: the group, and the member, so that the cluster can fence one that was replaced.

    kafka-python's ``KafkaConsumer.group_metadata()`` answers such values.

    Attributes:
        group_id: name of the group.
        generation_id: of the group's assignment, -1 for none.
        member_id: given by the group's coordinator, empty for none.
        group_instance_id: of a static member, None for none.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@attrs.frozen
class PreparedTransaction:
    """What it takes to commit or abort a prepared transaction, from any process; it pickles.

    Its end is one request to the transaction's coordinator, see ``splashdam.net.admin.transactions``. Until
    then the cluster keeps it open for at most the producer's ``transaction_timeout_ms``, counted from its
    first record.

    Attributes:
        transactional_id: the producer's name.
        producer_id: what the cluster knows the producer by.
        producer_epoch: of that producer.
        is_empty: nothing is in it, so that there is nothing to end either.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_empty: bool = False
