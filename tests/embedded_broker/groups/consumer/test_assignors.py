"""Server-side assignors: everything is handed out once, evenly, and little moves."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.running.examples import examples

from splashdam.embedded_broker.groups.consumer.assignors import ASSIGNORS, Candidate
from splashdam.embedded_broker.groups.consumer.member import Share, TopicIdPartition

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def share(*partitions: tuple[bytes, int]) -> Share:
    """Partitions by topic id."""
    return frozenset(TopicIdPartition(*each) for each in partitions)


def everybody(*names: str, topics: frozenset[bytes] = frozenset({A, B})) -> dict[str, Candidate]:
    """Members that want the same."""
    return {name: Candidate(topics) for name in names}


def again(members: Mapping[str, Candidate], shares: Mapping[str, Share]) -> dict[str, Candidate]:
    """The members with what they were assigned."""
    return {name: Candidate(each.topic_ids, shares[name], each.instance_id) for name, each in members.items()}


def test_range_gives_neighbours_and_the_same_numbers_of_each_topic() -> None:
    """Kafka's own example: three partitions of two topics for two members."""
    assert ASSIGNORS["range"](everybody("m1", "m0"), {A: 3, B: 3}) == {
        "m0": share((A, 0), (A, 1), (B, 0), (B, 1)),
        "m1": share((A, 2), (B, 2)),
    }


def test_range_puts_static_members_first_by_instance_id() -> None:
    """So a restart under a new member id gives everybody what it had."""
    members = {
        "x": Candidate(frozenset({A})),
        "z": Candidate(frozenset({A}), instance_id="i0"),
        "y": Candidate(frozenset({A}), instance_id="i1"),
    }
    assert ASSIGNORS["range"](members, {A: 4}) == {
        "z": share((A, 0), (A, 1)),
        "y": share((A, 2)),
        "x": share((A, 3)),
    }


def test_range_counts_only_subscribers_of_the_topic() -> None:
    """Members with different subscriptions."""
    members = {
        "m0": Candidate(frozenset({A})),
        "m1": Candidate(frozenset({A, B})),
        "m2": Candidate(frozenset({B})),
    }
    assert ASSIGNORS["range"](members, {A: 2, B: 3}) == {
        "m0": share((A, 0)),
        "m1": share((A, 1), (B, 0), (B, 1)),
        "m2": share((B, 2)),
    }


def test_uniform_moves_no_more_than_a_newcomer_needs() -> None:
    """Six partitions for two members, then a third: one of each goes, and nothing else moves."""
    members = everybody("m0", "m1", topics=frozenset({A}))
    first = ASSIGNORS["uniform"](members, {A: 6})
    members = {**again(members, first), **everybody("m2", topics=frozenset({A}))}
    second = ASSIGNORS["uniform"](members, {A: 6})
    assert [len(each) for each in second.values()] == [2, 2, 2]
    assert second["m0"] < first["m0"]
    assert second["m1"] < first["m1"]


def test_uniform_balances_members_with_different_subscriptions() -> None:
    """The only subscriber of a large topic gets few partitions of others."""
    members = {
        "m0": Candidate(frozenset({A, B})),
        "m1": Candidate(frozenset({B})),
    }
    shares = ASSIGNORS["uniform"](members, {A: 3, B: 3})
    assert shares == {"m0": share((A, 0), (A, 1), (A, 2)), "m1": share((B, 0), (B, 1), (B, 2))}


def test_uniform_moves_partitions_of_a_shared_topic_when_subscriptions_change() -> None:
    """A member that wants one more topic gives up what others can read."""
    members = {
        "m0": Candidate(frozenset({A, B}), share((B, 0), (B, 1), (B, 2))),
        "m1": Candidate(frozenset({B}), share((B, 3), (B, 4), (B, 5))),
    }
    shares = ASSIGNORS["uniform"](members, {A: 4, B: 6})
    assert {name: len(each) for name, each in shares.items()} == {"m0": 5, "m1": 5}
    assert shares["m1"] > share((B, 3), (B, 4), (B, 5))


TOPICS = st.sets(st.sampled_from([A, B, C]))


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, Candidate], dict[bytes, int]]:
    """Members with what some earlier assignment left them, be it of topics as they were then."""
    partitions = {topic_id: draw(st.integers(1, 7)) for topic_id in (A, B, C)}
    wanted = draw(st.lists(TOPICS, min_size=1, max_size=5))
    every = [TopicIdPartition(each, number) for each in (A, B, C) for number in range(9)]
    owners = draw(st.lists(st.integers(-1, len(wanted) - 1), min_size=len(every), max_size=len(every)))
    members = {
        f"m{number}": Candidate(
            frozenset(topics),
            frozenset(each for each, owner in zip(every, owners, strict=True) if owner == number),
            draw(st.sampled_from([None, f"i{number}"])),
        )
        for number, topics in enumerate(wanted)
    }
    return members, partitions


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=examples(60), deadline=None)
@given(group=groups())
def test_everything_that_is_wanted_is_handed_out_once(
    name: str, group: tuple[dict[str, Candidate], dict[bytes, int]]
) -> None:
    """To somebody who wants it, and the same again for the same group: an assignment is stable."""
    members, partitions = group
    shares = ASSIGNORS[name](members, partitions)
    handed = [each for some in shares.values() for each in some]
    wanted = frozenset[bytes]().union(*(each.topic_ids for each in members.values()))
    assert len(handed) == len(set(handed))
    assert set(handed) == {TopicIdPartition(each, n) for each in wanted for n in range(partitions[each])}
    assert all(each.topic_id in members[name].topic_ids for name, some in shares.items() for each in some)
    assert ASSIGNORS[name](again(members, shares), partitions) == shares


@settings(max_examples=examples(60), deadline=None)
@given(group=groups())
def test_no_move_would_make_a_uniform_assignment_more_even(
    group: tuple[dict[str, Candidate], dict[bytes, int]],
) -> None:
    """A member that could take a partition of another one has at most one less."""
    members, partitions = group
    shares = ASSIGNORS["uniform"](members, partitions)
    for some in shares.values():
        for poor, candidate in members.items():
            if any(each.topic_id in candidate.topic_ids for each in some):
                assert len(some) - len(shares[poor]) <= 1
