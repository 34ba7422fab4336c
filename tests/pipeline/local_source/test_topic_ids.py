"""A topic is told from a later one of its name."""

from __future__ import annotations

from support.pipeline.local_source_kit import FakeCluster, topic

from splashdam.model.values import TopicPartition
from splashdam.pipeline.local_source.planning import OffsetRange, for_topics, made_anew, topic_ids
from splashdam.wire.fields import NO_UUID

OLD, NEW = b"o" * 16, b"n" * 16


def test_ids_of_existing_topics() -> None:
    """A topic that is gone has none; tasks find that out."""
    cluster = FakeCluster(t=topic(1))
    cluster.ids["t"] = OLD
    assert topic_ids(["t", "gone", "t"], cluster) == {"t": OLD}


def test_topics_created_again() -> None:
    """Not what is new, what is gone, or what a broker without ids tells."""
    before = {"same": OLD, "anew": OLD, "gone": OLD, "downgraded": OLD, "upgraded": NO_UUID}
    now = {"same": OLD, "anew": NEW, "new": NEW, "downgraded": NO_UUID, "upgraded": NEW}
    assert made_anew(before, now) == {"anew"}


def test_ranges_of_topics() -> None:
    """They carry the id, or none."""
    where, other = TopicPartition("t", 0), TopicPartition("u", 0)
    ranges = [OffsetRange(where, 0, 1), OffsetRange(other, 0, 1)]
    assert for_topics(ranges, {"t": OLD}) == [OffsetRange(where, 0, 1, OLD), OffsetRange(other, 0, 1)]
