"""Elections of partition leaders."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from itertools import groupby

from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions


class Election(IntEnum):
    """Kafka's ``ElectionType``, with its codes.

    PREFERRED gives a partition back to its first replica, if that is in sync. UNCLEAN lets any replica lead
    where none in sync is alive: records that only the others have are lost.
    """

    PREFERRED = 0
    UNCLEAN = 1


async def elect_leaders(
    client: ClusterClient, election: Election, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, BrokerResponseError | None]:
    """Elect leaders; partitions that need no election are left out of the result.

    Args:
        client: of the cluster.
        election: which replica may lead.
        partitions: None: all that need one.

    Returns:
        None for a partition with a new leader, and else why it has none.

    Raises:
        BrokerResponseError: the request was refused as a whole.
        KafkaTimeoutError: the cluster did not answer.
    """
    asked = None
    if partitions is not None:
        asked = [
            TopicPartitions(topic=topic, partitions=[each.partition for each in chosen])
            for topic, chosen in groupby(sorted(set(partitions)), lambda where: where.topic)
        ]

    def results(answer: ElectLeadersResponse) -> dict[TopicPartition, BrokerResponseError | None]:
        if answer.error_code:
            raise error_for(answer.error_code, "electing leaders")
        found: dict[TopicPartition, BrokerResponseError | None] = {}
        for topic in answer.replica_election_results:
            for each in topic.partition_result:
                where = TopicPartition(topic.topic, each.partition_id)
                if each.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                text = each.error_message or str(where)
                found[where] = error_for(each.error_code, text) if each.error_code else None
        return found

    return await client.controller(
        ElectLeadersRequest(election_type=election, topic_partitions=asked), results
    )
