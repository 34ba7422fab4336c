"""Each bug that ``make fuzz``, or a look at what one request may cost, has found."""

from __future__ import annotations

import pytest
from support.broker.broker_talk import Talk, batch, produce_request
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.topics import internal_topics
from splashdam.model.broker_errors import ErrorCode
from splashdam.net.memory import memory_stream_pair
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from splashdam.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from splashdam.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from splashdam.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from splashdam.wire.messages.produce import PartitionProduceData


async def test_an_error_that_quotes_the_longest_name_is_answered(talk: Talk) -> None:
    """Its text was longer than a string may be, and the connection was closed without an answer."""
    request = DescribeUserScramCredentialsRequest(users=[UserName(name="x" * 32_767)])
    result = (await talk.ask(request, 0)).results[0]
    assert result.error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert result.error_message is not None
    assert result.error_message.endswith("x …")


async def test_many_users_in_one_request_are_written_once(broker: Broker, talk: Talk) -> None:
    """Each of them read and wrote the file of all: five thousand took the broker a minute."""
    made = [
        ScramCredentialUpsertion(
            name=f"user-{i}", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
        )
        for i in range(300)
    ]
    made[7].name = ""
    answer = await talk.ask(AlterUserScramCredentialsRequest(upsertions=made), 0)
    codes = [each.error_code for each in answer.results]
    assert codes.count(ErrorCode.UNACCEPTABLE_CREDENTIAL) == 1
    assert codes.count(ErrorCode.NONE) == len(broker.access.users.names()) == 299


async def test_a_refused_election_is_answered_in_version_0(autojump_clock: MockClock) -> None:
    """This version has no top-level error code, so the connection was closed."""
    opened = open_broker(
        "/data",
        port=None,
        clock=VirtualClock(autojump_clock),
        files=MemoryFiles(),
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    )
    async with opened as broker:
        ours, theirs = memory_stream_pair()
        broker.server.adopt(theirs)
        talk = Talk(ours)
        asked = [TopicPartitions(topic="t", partitions=[0])]
        answer = await talk.ask(ElectLeadersRequest(topic_partitions=asked), 0)
        (partition,) = answer.replica_election_results[0].partition_result
        assert partition.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert not (await talk.ask(ElectLeadersRequest(topic_partitions=None), 0)).replica_election_results


async def test_a_transaction_is_looked_up_once_for_all_its_partitions(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition had the id hashed again: 10 ms for the longest id, seconds for a request of 40 KB."""
    hashed: list[str] = []
    hash_of = internal_topics.java_string_hash

    def counted(text: str) -> int:
        hashed.append(text)
        return hash_of(text)

    monkeypatch.setattr(internal_topics, "java_string_hash", counted)
    asked = AddPartitionsToTxnTransaction(
        transactional_id="x" * 32_767,
        producer_id=1,
        producer_epoch=0,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=list(range(500)))],
    )
    answer = await talk.ask(AddPartitionsToTxnRequest(transactions=[asked]), 5)
    found = answer.results_by_transaction[0].topic_results[0].results_by_partition
    codes = {each.partition_error_code for each in found}
    assert (len(found), codes) == (500, {ErrorCode.INVALID_PRODUCER_ID_MAPPING})
    assert len(hashed) == 1


async def test_a_transactional_id_is_hashed_once_for_all_batches(
    broker: Broker, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 of one Produce, with an id of 32 KB: each hashed it twice, which took half a minute of CPU."""
    broker.topics.create("t", 100)
    transactional_id = "x" * 32_000
    request = produce_request("t", None, transactional_id=transactional_id)
    request.topic_data[0].partition_data = [
        PartitionProduceData(
            index=index,
            records=batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
        )
        for index in range(100)
    ]
    internal_topics.java_string_hash.cache_clear()
    answer = await talk.ask(request, 9)
    codes = [each.error_code for each in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 100
    assert internal_topics.java_string_hash.cache_info().misses <= 2
