"""Fetch, fetch sessions, leader epochs and offsets, request by request."""

from __future__ import annotations

import time
from typing import Any

from splashdam.model.broker_errors import ErrorCode
from splashdam.testing.contract.behaviour import Run, behaviour, expect
from splashdam.testing.contract.behaviours.produce import values
from splashdam.testing.contract.raw_connection import RawConnection, leader_of
from splashdam.testing.contract.vocabulary import PROTOCOL
from splashdam.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from splashdam.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from splashdam.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from splashdam.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

EARLIEST_LOCAL, LATEST_TIERED = -4, -5
_VERSION, _VERSION_WITH_IDS = 12, 13


def fetch_of(topic: str, offset: int, *, max_wait_ms: int = 0, **fields: Any) -> FetchRequest:
    """Build a Fetch request for partition 0, without a session."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, **fields)
    topics = [FetchTopic(topic=topic, partitions=[partition])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics)


def fetched(conn: RawConnection, request: FetchRequest) -> Any:
    """Return the answer for partition 0."""
    (answer,) = conn.ask(request, _VERSION).responses[0].partitions
    return answer


def in_session(conn: RawConnection, session: int, epoch: int, request: FetchRequest | None) -> FetchResponse:
    """Send an incremental fetch; with ``request`` its partition is added to the session."""
    asked = request or FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[])
    asked.session_id, asked.session_epoch = session, epoch
    return conn.ask(asked, _VERSION)


@behaviour(PROTOCOL)
def offsets_beyond_the_end_are_out_of_range(run: Run) -> None:
    """Beyond the log end offset it is OFFSET_OUT_OF_RANGE; at it the answer is empty."""
    topic = run.topic()
    run.helper.produce(topic, values("a"))
    with leader_of(run, topic) as conn:
        expect(fetched(conn, fetch_of(topic, 2)).error_code, ErrorCode.OFFSET_OUT_OF_RANGE, "error code")
        found = fetched(conn, fetch_of(topic, 1))
    expect((found.error_code, found.high_watermark, bytes(found.records or b"")), (0, 1, b""), "at the end")


@behaviour(PROTOCOL)
def a_fetch_waits_for_max_wait_ms(run: Run) -> None:
    """Without records it waits for max.wait.ms, and it answers as soon as there are some."""
    topic = run.topic()
    with leader_of(run, topic) as conn:
        begun = time.monotonic()
        fetched(conn, fetch_of(topic, 0, max_wait_ms=200))
        expect(time.monotonic() - begun >= 0.19, True, "it waited")
        conn.send(fetch_of(topic, 0, max_wait_ms=10_000), _VERSION)
        run.helper.produce(topic, values("a"))
        begun = time.monotonic()
        (found,) = conn.answer().responses[0].partitions
        expect(time.monotonic() - begun < 5, True, "it answered at once")
        expect(bool(found.records), True, "with the record")


@behaviour(PROTOCOL)
def a_fetch_session_reports_only_changes(run: Run) -> None:
    """After the first answer, only partitions without something new are in it (KIP-227)."""
    topic = run.topic()
    run.helper.produce(topic, values("a"))
    with leader_of(run, topic) as conn:
        first = in_session(conn, 0, 0, fetch_of(topic, 1))
        expect((first.error_code, first.session_id > 0), (0, True), "error code and session")
        expect(len(first.responses), 1, "topics in the first answer")
        expect(in_session(conn, first.session_id, 1, None).responses, [], "without news")
        run.helper.produce(topic, values("b"))
        news = in_session(conn, first.session_id, 2, None)
        expect([each.partitions[0].high_watermark for each in news.responses], [2], "high watermarks")
        expect(bool(news.responses[0].partitions[0].records), True, "records")


@behaviour(PROTOCOL)
def a_fetch_session_counts_its_requests(run: Run) -> None:
    """A wrong epoch is INVALID_FETCH_SESSION_EPOCH, a closed session FETCH_SESSION_ID_NOT_FOUND."""
    topic = run.topic()
    with leader_of(run, topic) as conn:
        session = in_session(conn, 0, 0, fetch_of(topic, 0)).session_id
        found = in_session(conn, session, 5, None)
        expect(
            (found.error_code, found.responses), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, []), "out of turn"
        )
        expect(in_session(conn, session, -1, fetch_of(topic, 0)).error_code, 0, "the last one")
        expect(in_session(conn, session, 1, None).error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "closed")


@behaviour(PROTOCOL)
def topics_are_fetched_by_their_ids(run: Run) -> None:
    """From version 13 on; an unknown topic id is UNKNOWN_TOPIC_ID."""
    topic = run.topic()
    run.helper.produce(topic, values("a"))
    with leader_of(run, topic) as conn:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        known = conn.ask(asked, 12).topics[0].topic_id
        for topic_id, error, has_records in (
            (known, 0, True),
            (bytes(range(16)), ErrorCode.UNKNOWN_TOPIC_ID, False),
        ):
            request = fetch_of(topic, 0)
            request.topics[0].topic_id = topic_id
            (found,) = conn.ask(request, _VERSION_WITH_IDS).responses[0].partitions
            expect((found.error_code, bool(found.records)), (error, has_records), "error code and records")


@behaviour(PROTOCOL)
def a_reader_learns_where_its_log_diverges(run: Run) -> None:
    """A reader beyond the end of its last epoch gets the diverging epoch's end offset, no error (KIP-595)."""
    topic = run.topic()
    run.helper.produce(topic, values("a", "b", "c"))
    with leader_of(run, topic) as conn:
        epoch = leader_epoch(conn, topic)
        request = fetch_of(topic, 5, last_fetched_epoch=epoch, current_leader_epoch=epoch)
        found = fetched(conn, request)
    diverging = (found.diverging_epoch.epoch, found.diverging_epoch.end_offset)
    expect((found.error_code, diverging), (0, (epoch, 3)), "error code and diverging epoch")


def leader_epoch(conn: RawConnection, topic: str) -> int:
    """Return the leader epoch of partition 0."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    return conn.ask(asked, 12).topics[0].partitions[0].leader_epoch


@behaviour(PROTOCOL)
def a_leader_epoch_of_the_future_is_refused(run: Run) -> None:
    """UNKNOWN_LEADER_EPOCH, from Fetch, ListOffsets and OffsetForLeaderEpoch."""
    topic = run.topic()
    with leader_of(run, topic) as conn:
        epoch = leader_epoch(conn, topic) + 1
        found = fetched(conn, fetch_of(topic, 0, current_leader_epoch=epoch))
        expect(found.error_code, ErrorCode.UNKNOWN_LEADER_EPOCH, "error code of Fetch")
        listed = offset_at(conn, topic, -1, current_leader_epoch=epoch)
        expect(listed.error_code, ErrorCode.UNKNOWN_LEADER_EPOCH, "error code of ListOffsets")
        end = end_of_epoch(conn, topic, 0, current=epoch)
        expect(end.error_code, ErrorCode.UNKNOWN_LEADER_EPOCH, "error code of OffsetForLeaderEpoch")


@behaviour(PROTOCOL)
def an_epoch_ends_where_the_log_does(run: Run) -> None:
    """The current epoch ends at the log end offset; an unknown epoch has end offset -1."""
    topic = run.topic()
    run.helper.produce(topic, values("a", "b"))
    with leader_of(run, topic) as conn:
        epoch = leader_epoch(conn, topic)
        found = end_of_epoch(conn, topic, epoch)
        expect((found.error_code, found.leader_epoch, found.end_offset), (0, epoch, 2), "the current epoch")
        found = end_of_epoch(conn, topic, epoch + 1)
        expect((found.error_code, found.leader_epoch, found.end_offset), (0, -1, -1), "the next epoch")


def end_of_epoch(conn: RawConnection, topic: str, epoch: int, current: int = -1) -> EpochEndOffset:
    """Return OffsetForLeaderEpoch's answer for partition 0."""
    asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    topics = [OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    return conn.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4).topics[0].partitions[0]


def offset_at(
    conn: RawConnection,
    topic: str,
    timestamp: int,
    *,
    version: int = 9,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
) -> Any:
    """Return ListOffsets' answer for partition 0."""
    asked = ListOffsetsPartition(
        partition_index=0, timestamp=timestamp, current_leader_epoch=current_leader_epoch
    )
    topics = [ListOffsetsTopic(name=topic, partitions=[asked])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
    return conn.ask(request, version).topics[0].partitions[0]


@behaviour(PROTOCOL)
def without_tiered_storage_everything_is_local(run: Run) -> None:
    """The earliest local offset is the log start offset, and no offset is in remote storage (KIP-405)."""
    topic = run.topic()
    run.helper.produce(topic, values("a", "b", "c"))
    run.helper.call("delete_records", topic=topic, partition=0, before_offset=2)
    with leader_of(run, topic) as conn:
        found = [offset_at(conn, topic, each) for each in (EARLIEST_LOCAL, LATEST_TIERED)]
    expect([(each.error_code, each.offset) for each in found], [(0, 2), (0, -1)], "error codes and offsets")


@behaviour(PROTOCOL)
def log_directories_show_what_is_in_them(run: Run) -> None:
    """Each partition is in one of the leader's directories, with the size of its log."""
    topic = run.topic()
    run.helper.produce(topic, values("a" * 1000))
    asked = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[0])])
    with leader_of(run, topic) as conn:
        answer = conn.ask(asked)
    expect((answer.error_code, {each.error_code for each in answer.results}), (0, {0}), "error codes")
    found = [
        (each.name, part.partition_index, part.partition_size > 1000, part.is_future_key)
        for result in answer.results
        for each in result.topics
        for part in each.partitions
    ]
    expect(found, [(topic, 0, True, False)], "partitions with their sizes")
