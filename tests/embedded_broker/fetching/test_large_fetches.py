"""Fetches of thousands of partitions: no step of the loop does much for them."""

from __future__ import annotations

from typing import Any

import pytest
from support.broker.broker_talk import Talk

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.fetching.sessions import SessionPartition
from splashdam.model.broker_errors import ErrorCode
from splashdam.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

MANY = 10_000


def asked_for(topics: int, partitions: int) -> list[FetchTopic]:
    """Partitions that are not there."""
    return [
        FetchTopic(
            topic=f"t{topic}",
            partitions=[
                FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1)
                for number in range(partitions)
            ],
        )
        for topic in range(topics)
    ]


def request(topics: list[FetchTopic], session: tuple[int, int]) -> FetchRequest:
    session_id, session_epoch = session
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1000,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
    )


async def test_many_topics_of_one_partition_were_taken_in_one_step(
    broker: Broker, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns ended after eight partitions of a topic; of topics with one, 60 ms were taken in one."""
    turn, turns = 0, set()
    begin, made = broker.turns.begin, SessionPartition.__init__

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        begin()

    def noted(partition: SessionPartition, *given: Any) -> None:
        turns.add(turn)
        made(partition, *given)

    monkeypatch.setattr(broker.turns, "begin", next_turn)
    monkeypatch.setattr(SessionPartition, "__init__", noted)
    answer = await talk.ask(request(asked_for(MANY, 1), (0, -1)), 12)
    codes = [part.error_code for topic in answer.responses for part in topic.partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * MANY
    assert len(turns) > 4


async def test_the_answer_of_a_large_session_was_encoded_in_one_step(broker: Broker, talk: Talk) -> None:
    """The request for it names no partition, so that nobody saw that the answer has thousands: 40 ms."""
    answer = await talk.ask(request(asked_for(1, MANY), (0, 0)), 12)
    before = broker.turns.beside
    answer = await talk.ask(request([], (answer.session_id, 1)), 12)
    assert len(answer.responses[0].partitions) == MANY
    assert broker.turns.beside == before + 1
