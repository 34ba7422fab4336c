"""What a consumer has read, and on whose behalf: for ``send_offsets_to_transaction`` (KIP-447)."""

from __future__ import annotations

from typing import NamedTuple


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
