"""A text about a partition names it once, whoever wrote the text."""

from __future__ import annotations

import pytest

from splashdam.model.log_text import naming
from splashdam.model.values import TopicPartition

WHERE = TopicPartition("a.b-c", 1)


@pytest.mark.parametrize(
    "text",
    [
        "a.b-c-1: the batch is damaged",
        "this broker does not host 'a.b-c-1'",
        "Compacted topic cannot accept message without key in topic partition a.b-c-1.",
        "a.b-c-1 is led by node 2",
        "[7 RequestTimedOutError] a.b-c-1: too late",
    ],
)
def test_a_text_that_names_the_partition_stays_as_it_is(text: str) -> None:
    """Kafka's own texts, and those of checks that are used elsewhere, too."""
    assert naming(WHERE, text) == text


@pytest.mark.parametrize(
    "text",
    [
        "the batch is damaged",
        "",
        "a.b-c-10 is led by node 2",
        "x-a.b-c-1 is led by node 2",
        "a.b-c-1-1 is led by node 2",
        "a.b-c-1.d-0 is led by node 2",
        "axb-c-1 is led by node 2",
        "could not append to /data/a.b-c-1/0.log",
        "could not make /data/a.b-c-1",
    ],
)
def test_any_other_text_gets_the_name_in_front(text: str) -> None:
    """Another partition's name, of which this one is a part, does not count; nor does a path."""
    assert naming(WHERE, text) == f"a.b-c-1: {text}"
