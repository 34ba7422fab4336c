"""Topics by name and by pattern, and single partitions."""

from __future__ import annotations

import pytest
from support.pipeline.local_source_kit import FakeCluster, topic

from splashdam.model.values import TopicPartition
from splashdam.pipeline.local_source.subscriptions import (
    Assigned,
    Subscription,
    Topics,
    missing,
    parse_pattern,
)

CLUSTER = FakeCluster(t=topic(1, 1), tt=topic(1), u=topic(1))
T0, T1, TT0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("tt", 0)


@pytest.mark.parametrize(
    ("subscription", "there", "gone"),
    [
        (Topics(("t",)), [T0, T1], []),
        (Topics(("t", "x")), [T0, T1], ["x"]),
        (parse_pattern("t+"), [T0, T1, TT0], []),
        (parse_pattern("t"), [T0, T1], []),
        (parse_pattern("x"), [], []),
        (Assigned((T1,)), [T1], []),
        (Assigned((T1, TopicPartition("t", 7), TopicPartition("x", 0))), [T1], ["t-7", "x-0"]),
    ],
)
def test_subscribed_partitions(
    subscription: Subscription, there: list[TopicPartition], gone: list[str]
) -> None:
    """A pattern matches whole names; what is asked for by name and not there is told."""
    found = subscription.partitions(CLUSTER)
    assert found == there
    assert missing(subscription, found) == gone


def test_invalid_patterns() -> None:
    """Python's message, with what is wrong."""
    with pytest.raises(ValueError, match="is not a regular expression that Python accepts"):
        parse_pattern("t(")
