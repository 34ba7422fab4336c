"""The work of a shard of the group coordinator, by what it looks at."""

from __future__ import annotations

from typing import Any, Never

import pytest

from splashdam.embedded_broker.groups.coordinator_shard import CoordinatorShard
from splashdam.embedded_broker.groups.offset_records import CommittedOffset, OffsetKey
from splashdam.model.values import TopicPartition

PLACES = [TopicPartition("t", number) for number in range(3)]


class Unwalked(dict[int, Any]):
    """A dict that nobody may walk through."""

    def _refuse(self) -> Never:
        pytest.fail("all open transactions were walked through")

    __iter__ = values = items = keys = _refuse  # type: ignore[assignment]  # each raises


def test_a_deleted_offset_was_looked_for_in_every_open_transaction() -> None:
    """Only those that have a pending offset for its partition are asked, and lose it."""
    shard = CoordinatorShard(host=None)  # type: ignore[arg-type]  # no group has members here
    shard._pending = Unwalked()
    keys = [OffsetKey("g", place) for place in PLACES]
    for producer_id, numbers in enumerate([(0, 1), (1,), (2,)]):
        for number in numbers:
            shard.commit(keys[number], CommittedOffset(5), record_offset=producer_id, producer_id=producer_id)
    shard.forget(keys[1])
    assert shard.groups["g"].open_transactions == {PLACES[0]: {0}, PLACES[2]: {2}}
    shard.forget(keys[1])
    for producer_id in range(3):
        shard.end_transaction(producer_id, committed=True)
    assert {place: each.committed.offset for place, each in shard.groups["g"].offsets.items()} == {
        PLACES[0]: 5,
        PLACES[2]: 5,
    }
