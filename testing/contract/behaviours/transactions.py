"""Transactions, as producers and consumers see them."""

from __future__ import annotations

from splashdam.testing.contract.behaviour import Run, behaviour, expect
from splashdam.testing.contract.behaviours.produce import values


def committed_values(run: Run, topic: str, count: int) -> list[bytes | None]:
    """Return the values that a read_committed consumer gets."""
    return [each.value for each in run.helper.fetch(topic, count=count, isolation="read_committed")]


@behaviour("produce")
def a_committed_transaction_is_seen(run: Run) -> None:
    """read_committed gets all of its records."""
    topic = run.topic()
    run.client.produce(topic, values("a", "b"), transactional_id=run.name())
    expect(committed_values(run, topic, 2), [b"a", b"b"], "values")


@behaviour("produce")
def an_aborted_transaction_is_not_seen(run: Run) -> None:
    """Its records are left out, and later ones are not held up."""
    topic, transactional_id = run.topic(), run.name()
    run.client.produce(topic, values("aborted"), transactional_id=transactional_id, commit=False)
    run.client.produce(topic, values("after"), transactional_id=transactional_id)
    expect(committed_values(run, topic, 1), [b"after"], "values")


@behaviour("produce")
def every_transaction_ends_with_a_marker(run: Run) -> None:
    """The marker takes an offset: the next record has one more."""
    topic, transactional_id = run.topic(), run.name()
    first = run.client.produce(topic, values("a"), transactional_id=transactional_id)
    second = run.client.produce(topic, values("b"), transactional_id=transactional_id)
    expect([each.offset for each in first + second], [0, 2], "offsets")
    # A coordinator answers EndTxn before the partition leaders have written its markers.
    run.eventually(lambda: expect(run.helper.offsets(topic, "latest"), 4, "log end offset"))


@behaviour("send_offsets")
def offsets_of_a_transaction_are_committed_with_it(run: Run) -> None:
    """A group's offsets take effect with the commit."""
    topic, group = run.topic(), run.group()
    run.helper.commit(group, topic, {0: (1, "")})
    _send_offsets(run, topic, group, 5, commit=True)
    run.eventually(lambda: expect(run.helper.committed(group, topic)[0][0], 5, "offset"))


@behaviour("send_offsets")
def offsets_of_an_aborted_transaction_are_forgotten(run: Run) -> None:
    """The group stays at its offset of before."""
    topic, group = run.topic(), run.group()
    run.helper.commit(group, topic, {0: (1, "")})
    _send_offsets(run, topic, group, 5, commit=False)
    expect(run.helper.committed(group, topic)[0][0], 1, "offset")


def _send_offsets(run: Run, topic: str, group: str, offset: int, *, commit: bool) -> None:
    run.client.call(
        "send_offsets", group=group, topic=topic, offset=offset, transactional_id=run.name(), commit=commit
    )
