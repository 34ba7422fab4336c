"""Metadata answers that no honest broker sends."""

from __future__ import annotations

import pytest

from splashdam.model.broker_errors import ClusterAuthorizationFailedError
from splashdam.model.cluster import PartitionInfo
from splashdam.model.errors import ProtocolError
from splashdam.net.cluster.metadata_reading import read_cluster
from splashdam.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def answer(*numbers: int) -> MetadataResponse:
    """A response with one topic whose partitions are called so."""
    partitions = [MetadataResponsePartition(partition_index=each, leader_id=1) for each in numbers]
    return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)])


@pytest.mark.parametrize("numbers", [(-1,), (3_000_000,), (1,), (0, 2), (0, 0), (0, -1, 1), (-(2**31),)])
def test_partition_numbers_are_not_believed(numbers: tuple[int, ...]) -> None:
    """Negative, huge, missing or repeated: an error that says so, not an IndexError or a long loop."""
    with pytest.raises(ProtocolError, match=r"topic 't' has . partitions, and one has number"):
        read_cluster(answer(*numbers))


def test_partitions_come_in_any_order() -> None:
    """Brokers do not promise one."""
    found = read_cluster(answer(2, 0, 1)).topics["t"].partitions
    assert found == tuple(PartitionInfo("t", number, leader=1) for number in range(3))


def test_error_of_the_whole_answer() -> None:
    """From version 13 on the broker may refuse the question itself."""
    with pytest.raises(ClusterAuthorizationFailedError):
        read_cluster(MetadataResponse(error_code=31))


def test_brokers_with_negative_ids_are_none() -> None:
    """Such ids are ours: the connection to an address to begin with would be taken for theirs."""
    brokers = [MetadataResponseBroker(node_id=each, host="h", port=1) for each in (-1, 1, -(2**31))]
    assert list(read_cluster(MetadataResponse(brokers=brokers)).nodes) == [1]
