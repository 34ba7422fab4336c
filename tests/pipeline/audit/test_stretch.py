"""Offsets, sequences and transactions of a stretch; cut anywhere and joined, it says the same."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pipeline.audit_kit import WHERE, batch, data, found, marker, stretch

from splashdam.pipeline.audit.checks import KEPT_FINDINGS, Hole, Stretch
from splashdam.pipeline.audit.files import FileTask
from splashdam.pipeline.audit.findings import MAX_SEQUENCE, AuditedBatch, Kind
from splashdam.pipeline.audit.run import Plan

TRANSACTIONAL: dict[str, Any] = {"is_transactional": True}


def test_a_sound_log() -> None:
    """Nothing is found, and all is counted; a log may begin anywhere, as retention leaves it."""
    audit = stretch(data(100, 4, 10), data(110, 14, 5), batch(115))
    assert found(audit) == []
    assert (audit.figures.batches, audit.figures.records, audit.offsets.next_offset) == (3, 16, 116)


def test_a_gap() -> None:
    """Named with the offsets that are missing, at the batch behind them."""
    audit = stretch(batch(0, 5), batch(8))
    assert found(audit) == [(Kind.GAP, 8, "no offsets from 5 to 7")]
    assert audit.findings[0].position == 800
    assert (audit.offsets.gaps, audit.offsets.lost_offsets, audit.offsets.holes) == (1, 3, [Hole(5, 8, True)])


def test_records_missing_in_a_batch() -> None:
    """A batch keeps its last offset when compaction takes records out of it; nothing else may."""
    audit = stretch(batch(0, 5)._replace(record_count=3))
    assert found(audit) == [(Kind.GAP, 0, "3 records with offsets 0 to 4")]


def test_gaps_explained_by_compaction() -> None:
    """Below the cleaner's checkpoint, holes and the sequences that were in them are no loss."""
    audit = stretch(data(0, 0, 5)._replace(record_count=1), data(20, 20), data(21, 21), compacted_until=20)
    assert found(audit) == []
    assert (audit.offsets.compacted_offsets, audit.offsets.lost_offsets) == (19, 0)
    assert audit.offsets.holes == [Hole(5, 20, False)]


def test_offsets_twice() -> None:
    """A batch that begins before the end of another one."""
    audit = stretch(batch(0, 5), batch(3, 4), batch(7))
    assert found(audit) == [(Kind.DUPLICATE, 3, "offsets 3 to 6 again; due is 5")]


def test_wrappers_of_old_formats() -> None:
    """Only the last offset of a compressed wrapper is known: it may hide offsets, but must not end early."""
    wrapper = batch(9)._replace(record_count=-1)
    assert found(stretch(batch(0, 5), wrapper)) == []
    assert found(stretch(batch(0, 12), wrapper)) == [(Kind.DUPLICATE, 9, "offsets 9 to 9 again; due is 12")]


def test_wrong_checksum() -> None:
    """The finding names file, byte and offset; an unchecked checksum is no finding."""
    audit = stretch(batch(0, crc_ok=None), batch(1, crc_ok=False))
    (finding,) = audit.findings
    assert str(finding) == ("error: checksum: t-0/0.log, byte 100: offset 1: the batch has a wrong checksum")


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (data(5, 7), "no sequences from 5 to 6"),
        (data(5, 0, 5), "sequences 0 to 4 again; due is 5"),
        (data(5, 0, producer_epoch=-1), "its epoch goes back from 0 to -1"),
        (data(5, 3, producer_epoch=1), "no sequences from 0 to 2"),
    ],
    ids=["gap", "again", "epoch", "a new epoch begins with 0"],
)
def test_sequences(second: AuditedBatch, text: str) -> None:
    """Sequences that an idempotent producer cannot have written."""
    assert found(stretch(data(0, 0, 5), second)) == [(Kind.SEQUENCE, 5, f"producer 7: {text}")]


def test_sequences_wrap_around() -> None:
    """After 2,147,483,647 comes 0, within a batch and between two."""
    assert found(stretch(data(0, MAX_SEQUENCE - 1, 4), data(4, 2))) == []
    assert found(stretch(data(0, MAX_SEQUENCE), data(1, 0))) == []


def test_epochs_rise() -> None:
    """With a batch or with a marker, each begins with 0 again."""
    bumped = [data(0, 0, 5, **TRANSACTIONAL), marker(5, epoch=1), data(6, 0, producer_epoch=1)]
    assert found(stretch(*bumped)) == []
    assert found(stretch(data(0, 9), data(1, 0, producer_epoch=3))) == []


def test_transactions() -> None:
    """Committed and aborted ones are counted; an open one is a note, not an error."""
    audit = stretch(
        data(0, 0, 5, **TRANSACTIONAL),
        marker(5),
        data(6, 5, **TRANSACTIONAL),
        marker(7, commits=False),
        data(8, 6, **TRANSACTIONAL),
    )
    assert found(audit) == []
    transactions = audit.transactions
    assert (transactions.markers, transactions.committed, transactions.aborted) == (2, 1, 1)
    assert [(note.offset, note.is_error) for note in transactions.still_open()] == [(8, False)]
    assert audit.figures.records == 7


def test_a_batch_outside_of_its_transaction() -> None:
    """The coordinator would have refused it."""
    audit = stretch(data(0, 0, **TRANSACTIONAL), data(1, 1))
    text = "producer 7: a batch outside of its transaction, which is open since offset 0"
    assert found(audit) == [(Kind.TRANSACTION, 1, text)]


def test_a_marker_first() -> None:
    """Retention may have removed what was before: any sequence may follow."""
    assert found(stretch(marker(10), data(11, 50))) == []


def test_thousands_of_findings() -> None:
    """The first are kept, the others counted."""
    audit = stretch(*(batch(number * 2) for number in range(KEPT_FINDINGS + 50)))
    assert (len(audit.findings), audit.dropped_errors) == (KEPT_FINDINGS, 49)


@st.composite
def logs(draw: st.DrawFn) -> list[AuditedBatch]:
    """A sound log of three producers, one without an id and two with transactions now and then."""
    batches: list[AuditedBatch] = []
    offset, sequences, epochs, begun = 0, [0, MAX_SEQUENCE - 3], [0, 0], [False, False]
    for producer, count, ends in draw(
        st.lists(st.tuples(st.integers(-1, 1), st.integers(1, 4), st.booleans()), max_size=20)
    ):
        if producer < 0:
            batches.append(batch(offset, count))
        elif begun[producer] and ends:
            begun[producer] = False
            if draw(st.booleans()):
                epochs[producer], sequences[producer] = epochs[producer] + 1, 0
            batches.append(marker(offset, epoch=epochs[producer], producer_id=producer))
            offset += 1
            continue
        else:
            begun[producer] = begun[producer] or ends
            batches.append(
                data(
                    offset,
                    sequences[producer],
                    count,
                    producer_id=producer,
                    producer_epoch=epochs[producer],
                    is_transactional=begun[producer],
                )
            )
            sequences[producer] += count
        offset += count
    return batches


def joined(batches: list[AuditedBatch], cuts: list[int]) -> Stretch:
    """The audit in parts, each pickled as workers send them."""
    edges = sorted({0, len(batches), *(cut % (len(batches) + 1) for cut in cuts)})
    whole = stretch()
    for start, end in pairwise(edges):
        whole.then(pickle.loads(pickle.dumps(stretch(*batches[start:end]))))
    return whole


@given(logs(), st.lists(st.integers(0, 30), max_size=4))
def test_cut_anywhere(batches: list[AuditedBatch], cuts: list[int]) -> None:
    """A sound log is sound in parts, too, and the totals are the same."""
    whole, parts = stretch(*batches), joined(batches, cuts)
    assert whole.findings == parts.findings == []
    assert whole.figures == parts.figures
    assert whole.transactions.open == parts.transactions.open
    assert (whole.transactions.markers, whole.offsets) == (parts.transactions.markers, parts.offsets)
    assert whole.sequences.last == parts.sequences.last


@given(logs().filter(lambda log: len(log) > 2), st.data())
def test_a_lost_batch_is_found_however_it_is_cut(batches: list[AuditedBatch], choice: st.DataObject) -> None:
    """One is taken out of the middle: the gap is named, at the same place."""
    lost = choice.draw(st.integers(1, len(batches) - 2))
    rest = batches[:lost] + batches[lost + 1 :]
    cuts = choice.draw(st.lists(st.integers(0, 30), max_size=4))
    gaps = [finding for finding in joined(rest, cuts).findings if finding.kind is Kind.GAP]
    assert [finding.offset for finding in gaps] == [batches[lost + 1].base_offset]
    assert {finding.kind for finding in joined(rest, cuts).findings} == {
        finding.kind for finding in stretch(*rest).findings
    }


def test_objects_for_workers_pickle() -> None:
    """Plans, pieces of work and findings survive the way there and back."""
    plan = Plan({WHERE: "/data/t-0"}, {WHERE: 7})
    (finding,) = stretch(batch(0), batch(2)).findings
    for value in (plan, FileTask("/data/t-0", 5, 10), finding):
        assert pickle.loads(pickle.dumps(value)) == value
    assert plan.path(WHERE, 5) == "/data/t-0/00000000000000000005.log"
