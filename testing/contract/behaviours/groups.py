"""Consumer groups and their committed offsets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from splashdam.testing.contract.behaviour import Run, behaviour, expect
from splashdam.testing.contract.behaviours.produce import values
from splashdam.testing.contract.behaviours.share_of_partitions import need_this_protocol
from splashdam.testing.contract.raw_connection import coordinator_of
from splashdam.testing.contract.vocabulary import Record
from splashdam.wire.messages.describe_groups import DescribeGroupsRequest

_EACH = 5
_SHARING_SECONDS = 30
"""How long two members may take to join: a JVM starts for one of them."""


@behaviour("consume")
def a_group_reads_everything_once(run: Run) -> None:
    """Each partition from its beginning, and after a commit from the committed offset."""
    topic, group = run.topic(partitions=2), run.group()
    run.helper.produce(topic, [Record(f"{number}".encode(), partition=number % 2) for number in range(6)])
    first = run.client.consume(topic, group, count=6)
    expect(sorted(each.value or b"" for each in first), [b"0", b"1", b"2", b"3", b"4", b"5"], "values")
    run.helper.produce(topic, values("more"))
    second = run.client.consume(topic, group, count=1)
    expect([each.value for each in second], [b"more"], "values after the commit")


@behaviour("consume")
def two_members_share_a_topic(run: Run) -> None:
    """Each of two members has one of two partitions, and together they read each record once."""
    topic, group = run.topic(partitions=2), run.group()
    sent = {partition: [f"{partition}-{number}" for number in range(_EACH)] for partition in range(2)}
    with run.client.twin() as other, ThreadPoolExecutor(2) as threads:
        reading = [
            threads.submit(each.consume, topic, group, count=_EACH, timeout_ms=_SHARING_SECONDS * 1500)
            for each in (run.client, other)
        ]
        try:
            run.eventually(lambda: _expect_two_members(run, group), _SHARING_SECONDS)
        finally:  # otherwise both would wait in vain
            records = [
                Record(value.encode(), partition=partition)
                for partition, values_ in sent.items()
                for value in values_
            ]
            run.helper.produce(topic, records)
        found = [each.result() for each in reading]
    shares = sorted([(each.value or b"").decode() for each in share] for share in found)
    expect(shares, [sent[0], sent[1]], "what each member read")


def _expect_two_members(run: Run, group: str) -> None:
    with coordinator_of(run, group) as conn:
        (described,) = conn.ask(DescribeGroupsRequest(groups=[group])).groups
    shares = [bool(member.member_assignment) for member in described.members]
    expect((described.group_state, shares), ("Stable", [True, True]), "state, and who has partitions")


@behaviour("consume_by_coordinator")
def a_group_of_the_new_protocol_reads_everything_once(run: Run) -> None:
    """As with the classic protocol, with the group protocol of KIP-848."""
    need_this_protocol(run)
    topic, group = run.topic(partitions=2), run.group()
    run.helper.produce(topic, [Record(f"{number}".encode(), partition=number % 2) for number in range(4)])
    for count, wanted in ((4, [b"0", b"1", b"2", b"3"]), (1, [b"more"])):
        found = run.client.consume_by_coordinator(topic, group, count=count)
        expect(sorted(each.value or b"" for each in found), wanted, "values")
        run.helper.produce(topic, values("more"))


@behaviour("consume", "committed")
def a_commit_is_visible_to_other_clients(run: Run) -> None:
    """Another client gets the offset after the last record that was read."""
    topic, group = run.topic(), run.group()
    run.helper.produce(topic, values("a", "b", "c"))
    run.client.consume(topic, group, count=3)
    expect({key: each[0] for key, each in run.client.committed(group, topic).items()}, {0: 3}, "offsets")


@behaviour("commit", "committed")
def offsets_are_kept_with_their_metadata(run: Run) -> None:
    """A client that is no member commits offsets with metadata, and reads them back unchanged."""
    topic, group = run.topic(partitions=2), run.group()
    wanted = {0: (5, "note é"), 1: (7, "")}
    run.client.commit(group, topic, wanted)
    expect(run.client.committed(group, topic), wanted, "committed")
    expect(run.helper.committed(group, topic), wanted, "committed, as the helper sees it")


@behaviour("committed")
def a_group_that_does_not_exist_has_committed_nothing(run: Run) -> None:
    """The answer is empty, and no error."""
    expect(run.client.committed(run.group(), run.topic()), {}, "committed")


@behaviour("consume")
def a_group_begins_at_its_committed_offset(run: Run) -> None:
    """The first member reads from the offset that an admin tool has committed."""
    topic, group = run.topic(), run.group()
    run.helper.produce(topic, values("a", "b", "c", "d"))
    run.helper.commit(group, topic, {0: (2, "")})
    expect([each.value for each in run.client.consume(topic, group, count=2)], [b"c", b"d"], "values")


@behaviour("list_groups")
def groups_are_listed(run: Run) -> None:
    """Groups with committed offsets are listed, with members or without."""
    topic, group = run.topic(), run.group()
    run.helper.commit(group, topic, {0: (1, "")})
    expect(group in run.client.call("list_groups"), True, "listed")


@behaviour("consume", "describe_group")
def a_group_without_members_is_empty(run: Run) -> None:
    """Its state is Empty once its members have left."""
    topic, group = run.topic(), run.group()
    run.helper.produce(topic, values("a"))
    run.client.consume(topic, group, count=1)
    expect(run.client.call("describe_group", group=group), {"state": "Empty", "members": 0}, "group")


@behaviour("delete_group")
def a_group_can_be_deleted(run: Run) -> None:
    """Its committed offsets go with it; the second time it is GROUP_ID_NOT_FOUND."""
    topic, group = run.topic(), run.group()
    run.helper.commit(group, topic, {0: (1, "")})
    run.client.call("delete_group", group=group)
    expect(run.helper.committed(group, topic), {}, "committed")
    with run.refused("GROUP_ID_NOT_FOUND"):
        run.client.call("delete_group", group=group)


@behaviour("delete_offsets")
def single_offsets_can_be_deleted(run: Run) -> None:
    """The offsets of other partitions stay."""
    topic, group = run.topic(partitions=2), run.group()
    run.helper.commit(group, topic, {0: (1, ""), 1: (2, "")})
    run.client.call("delete_offsets", group=group, topic=topic, partition=0)
    expect(run.helper.committed(group, topic), {1: (2, "")}, "committed")
