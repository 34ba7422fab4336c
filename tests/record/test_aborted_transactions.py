"""Which batches are of aborted transactions: the one decision that readers and compaction share."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from splashdam.record.aborted_transactions import ABORT, COMMIT, AbortedTransactions, control_type
from splashdam.record.batch import BatchHeader, parse_header
from splashdam.record.sealing import build_batch


class Listed(NamedTuple):
    """An entry of a list of aborted transactions."""

    producer_id: int
    first_offset: int


def header(offset: int, producer_id: int = -1, *, transactional: bool = True) -> BatchHeader:
    data = build_batch(
        [(0, None, b"v", None)], producer_id=producer_id, producer_epoch=0, transactional=transactional
    )
    return parse_header(data)._replace(base_offset=offset)


def marker(key: bytes | None) -> bytes:
    return build_batch([(0, key, b"", None)], producer_id=1, producer_epoch=0, control=True)


steps = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["write", "plain", "abort", "commit"])))


@given(steps)
def test_data_between_its_first_offset_and_the_marker(todo: list[tuple[int, str]]) -> None:
    """Random interleavings of three producers, against what each transaction became in the end."""
    ends: dict[int, tuple[int, str]] = {}  # offset of a write → offset and kind of the marker behind it
    opened: dict[int, list[int]] = {}
    for offset, (producer_id, kind) in enumerate(todo):
        if kind == "write":
            opened.setdefault(producer_id, []).append(offset)
        elif kind in ("abort", "commit"):
            ends.update(dict.fromkeys(opened.pop(producer_id, []), (offset, kind)))
    listed = {
        (todo[offset][0], end): Listed(todo[offset][0], offset)
        for offset, (end, kind) in reversed(ends.items())
        if kind == "abort"
    }
    aborted = AbortedTransactions(listed.values())
    for offset, (producer_id, kind) in enumerate(todo):
        if kind == "abort":
            aborted.ended_by(header(offset, producer_id))
        elif kind != "commit":
            found = aborted.of_data(header(offset, producer_id, transactional=kind == "write"))
            assert (found is not None) == (ends.get(offset, (0, ""))[1] == "abort")


def test_two_that_begin_at_one_offset() -> None:
    """A hostile list: nothing is compared that cannot be."""
    aborted = AbortedTransactions([Listed(1, 0), Listed(1, 0), Listed(2, 0)])
    assert aborted.of_data(header(0, 1)) == Listed(1, 0)
    assert aborted.ended_by(header(1, 2)) == Listed(2, 0)
    assert aborted.ended_by(header(2, 2)) is None


def test_control_types() -> None:
    """By the key; a batch that compaction emptied, or one of another form, has none."""
    assert control_type(marker(b"\0\0\0\0")) == ABORT
    assert control_type(b"--" + marker(b"\0\0\0\1"), 2) == COMMIT
    assert [control_type(marker(key)) for key in (None, b"\0\0\0")] == [None, None]
