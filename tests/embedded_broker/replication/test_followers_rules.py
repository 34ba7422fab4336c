"""The rules of following: where to cut, and what comes first; what is said in a fetch session."""

from __future__ import annotations

import pytest
from support.storage.logs import NOW_MS, TP, batch, open_log

from splashdam.embedded_broker.fetching.sessions import SessionPartition
from splashdam.embedded_broker.replication.replica_fetcher import (
    FetchSession,
    LeaderFetcher,
    Wanted,
    truncation_offset,
)
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.leader_epochs import EpochEnd, LeaderEpochs
from splashdam.storage.log import Log
from splashdam.wire.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest, PartitionData

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize(
    ("leader", "expected"),
    [
        (EpochEnd(-1, -1), 3),  # it cannot say: what is certain stays
        (EpochEnd(-1, 5), 5),
        (EpochEnd(2, 12), 12),  # the same epoch ended there
        (EpochEnd(2, 40), 20),
        (EpochEnd(1, 4), 4),
        (EpochEnd(3, 30), 20),  # an epoch that is not known here: the end of what is known below
        (EpochEnd(9, 7), 7),
    ],
)
def test_where_a_log_is_cut(leader: EpochEnd, expected: int) -> None:
    """The follower's epochs: 1 from 0, 2 from 10, 4 from 20, its log ends at 25."""
    epochs = LeaderEpochs(MemoryFiles(), "/")
    for epoch, start in ((1, 0), (2, 10), (4, 20)):
        epochs.assign(epoch, start)
    found = truncation_offset(
        leader, lambda epoch: epochs.end_of(epoch, 25), log_end_offset=25, high_watermark=3
    )
    assert found == expected


def said(
    session: FetchSession, wanted: dict[TopicPartition, Wanted], *unwanted: TopicPartition
) -> tuple[object, ...]:
    """The contents of a request, in short."""
    request = FetchRequest(topics=[])
    session.fill(request, wanted, unwanted)
    return (
        (request.session_id, request.session_epoch),
        [
            (topic.topic, each.partition, each.fetch_offset)
            for topic in request.topics
            for each in topic.partitions
        ],
        [(topic.topic, topic.topic_id[:1], topic.partitions) for topic in request.forgotten_topics_data],
    )


def at(partition: int, offset: int, topic_id: bytes = b"1" * 16) -> Wanted:
    """Where to read on."""
    return Wanted(topic_id, FetchPartition(partition=partition, fetch_offset=offset))


def test_a_session_reports_changes() -> None:
    """Everything, then differences; and everything again after an error or without a session."""
    session = FetchSession()
    everything = [("a", 0, 5), ("a", 1, 6), ("b", 0, 7)]
    wanted = {A0: at(0, 5), A1: at(1, 6), B0: at(0, 7, b"2" * 16)}
    assert said(session, wanted) == ((0, 0), everything, [])
    session.answered(99)
    assert said(session, wanted) == ((99, 1), [], [])
    session.answered(99)
    wanted = {A1: at(1, 8), B0: wanted[B0]}
    assert said(session, wanted, A0) == ((99, 2), [("a", 1, 8)], [("a", b"1", [0])])
    session.answered(99)
    another = {A1: at(1, 0, b"3" * 16), B0: wanted[B0]}
    assert said(session, another) == ((99, 3), [("a", 1, 0)], [("a", b"1", [1])])
    session.lost()
    assert said(session, another) == ((0, 0), [("a", 1, 0), ("b", 0, 7)], [])
    session.answered(0)
    assert said(session, another) == ((0, 0), [("a", 1, 0), ("b", 0, 7)], [])


def test_a_session_checks_only_partitions_with_news() -> None:
    """Partitions that a request does not name stay; one that is dropped and added again is not forgotten."""
    session = FetchSession()
    said(session, {A0: at(0, 5), A1: at(1, 6), B0: at(0, 7, b"2" * 16)})
    session.answered(99)
    assert said(session, {A1: at(1, 7)}) == ((99, 1), [("a", 1, 7)], [])
    session.answered(99)
    assert said(session, {A0: at(0, 5)}, A0, A1) == ((99, 2), [], [("a", b"1", [1])])
    session.answered(99)
    assert said(session, {A0: at(0, 6), A1: at(1, 7)}) == ((99, 3), [("a", 0, 6), ("a", 1, 7)], [])


def test_the_sessions_epoch_starts_again_after_the_largest() -> None:
    """With 1: 0 would open another session."""
    session = FetchSession()
    session._epoch = 2**31 - 1
    session.answered(4)
    assert said(session, {})[0] == (4, 1)


def test_a_high_watermark_that_a_follower_did_not_use_is_repeated() -> None:
    """It came beside a diverging epoch; left out as known, both asked and answered for ever."""
    partition = SessionPartition(FetchPartition(partition=0, fetch_offset=144, high_watermark=134), A0, b"")
    answer = PartitionData(
        partition_index=0, high_watermark=142, diverging_epoch=EpochEndOffset(epoch=1, end_offset=142)
    )
    assert partition.note(answer, 0)
    partition.asked.fetch_offset = 142
    answer = PartitionData(partition_index=0, high_watermark=142)
    assert partition.note(answer, 0)
    partition.asked.high_watermark = 142
    assert not partition.note(answer, 0)


async def test_a_log_is_not_cut_beside_a_checkpoint_that_vouches_for_more() -> None:
    """The checkpoint came after the cut. Where the disk refused it, the log grew beside the old one."""

    class Full:
        """A follower whose disk has no room for a checkpoint."""

        class clock:
            """Wall clock."""

            @staticmethod
            def wall_ms() -> int:
                return NOW_MS

        def truncating(self, _log: Log, _offset: int) -> None:
            raise KafkaStorageError("the disk is full")

        def truncated(self, _log: Log) -> None:
            raise KafkaStorageError("the disk is full")

    log = open_log(MemoryFiles())
    for value in (b"a", b"b"):
        log.append_as_leader(batch(value), now_ms=NOW_MS)
    fetcher = LeaderFetcher(2, Full())  # type: ignore[arg-type]  # no more of a broker is asked
    fetcher.follow(log, 1)
    followed = fetcher._followed[TP]
    followed.asked_offset = log.log_end_offset
    with pytest.raises(KafkaStorageError):
        await fetcher._truncate(TP, followed, 1)
    assert log.log_end_offset == 2
