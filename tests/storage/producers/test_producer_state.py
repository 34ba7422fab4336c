"""What a log makes of sequence numbers: repeats, gaps, epochs, the wrap, transactions, snapshots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.storage.logs import batch

from splashdam.model.broker_errors import (
    CorruptMessageError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaStorageError,
    OutOfOrderSequenceNumberError,
)
from splashdam.record.batch import BatchHeader, parse_header
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.producers.snapshots import (
    SnapshotFiles,
    decode_snapshot,
    encode_snapshot,
)
from splashdam.storage.producers.state import (
    MAX_SEQUENCE,
    CompletedTransaction,
    ProducerEntry,
    ProducerStates,
    RememberedBatch,
)
from splashdam.storage.transaction_marker import TransactionMarker

PID = 7


def header(
    sequence: int, *, epoch: int = 0, count: int = 1, transactional: bool = False, producer_id: int = PID
) -> BatchHeader:
    return parse_header(
        batch(
            *[b"v"] * count,
            producer_id=producer_id,
            epoch=epoch,
            sequence=sequence,
            transactional=transactional,
        )
    )


def after(*headers: BatchHeader) -> ProducerStates:
    """States that have recorded these batches one behind the other."""
    states, offset = ProducerStates(), 0
    for each in headers:
        states.record(each, offset, now_ms=0)
        offset += each.last_offset_delta + 1
    return states


def test_the_first_batch_of_an_unknown_producer_may_have_any_sequence() -> None:
    """The log may have forgotten it."""
    assert ProducerStates().check(header(4711)) is None


def test_the_next_sequence_is_accepted_and_a_gap_is_not() -> None:
    """The next one follows the last record, not the last batch."""
    states = after(header(0, count=10))
    assert states.check(header(10)) is None
    for wrong in (9, 11, 0):
        with pytest.raises(OutOfOrderSequenceNumberError, match=f"sequence {wrong} where 10 was expected"):
            states.check(header(wrong))


def test_each_of_the_last_five_batches_is_recognised() -> None:
    """With the offsets it got; the sixth last counts as out of order."""
    headers = [header(2 * n, count=2) for n in range(6)]
    states = after(*headers)
    for number, each in enumerate(headers[1:], start=1):
        found = states.check(each)
        assert found is not None
        assert (found.first_offset, found.last_offset) == (2 * number, 2 * number + 1)
    with pytest.raises(OutOfOrderSequenceNumberError):
        states.check(headers[0])


def test_a_repeat_must_match_first_and_last_sequence() -> None:
    """Another cut of the same records is no repeat."""
    states = after(header(0, count=2), header(2, count=2))
    for sequence, count in ((0, 1), (0, 3), (1, 1), (0, 4)):
        with pytest.raises(OutOfOrderSequenceNumberError):
            states.check(header(sequence, count=count))


def test_a_new_epoch_begins_at_zero() -> None:
    """Anything else means that batches are missing."""
    states = after(header(0), header(1))
    assert states.check(header(0, epoch=1)) is None
    with pytest.raises(OutOfOrderSequenceNumberError):
        states.check(header(2, epoch=1))


def test_an_older_epoch_is_fenced_even_if_it_repeats() -> None:
    """The batches of the old epoch are no longer remembered."""
    states = after(header(0), header(0, epoch=1))
    with pytest.raises(InvalidProducerEpochError, match="at epoch 1, the batch at 0"):
        states.check(header(0))


def test_zero_follows_the_largest_sequence() -> None:
    """Within a batch and between two."""
    states = after(header(MAX_SEQUENCE - 1, count=2))
    assert states.check(header(0)) is None
    wrapping = header(MAX_SEQUENCE, count=3)
    states = after(wrapping)
    found = states.check(wrapping)
    assert found is not None
    assert (found.first_sequence, found.last_sequence) == (MAX_SEQUENCE, 1)
    assert states.check(header(2)) is None


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    """The first unstable offset is that of the oldest open one."""
    states = after(header(0), header(1, transactional=True), header(2, transactional=True))
    states.record(header(0, producer_id=8, transactional=True), 3, now_ms=0)
    assert states.first_unstable_offset == 1
    with pytest.raises(InvalidTxnStateError):
        states.check(header(3))
    aborted = states.end_transaction(TransactionMarker(PID, 0, False, 3), 4, 7, now_ms=7)
    assert aborted == CompletedTransaction(PID, 1, 4, last_stable_offset=3, is_aborted=True)
    assert states.first_unstable_offset == 3
    assert states.end_transaction(TransactionMarker(PID, 0, True, 3), 5, 7, now_ms=7) is None
    assert states.check(header(3)) is None


def test_a_marker_of_a_newer_epoch_lets_the_producer_begin_at_zero() -> None:
    """The coordinator bumps the epoch when it aborts; the batches of the old one are forgotten."""
    states = after(header(0, transactional=True))
    states.end_transaction(TransactionMarker(PID, 1, False, 0), 1, 7, now_ms=7)
    with pytest.raises(InvalidProducerEpochError):
        states.check(header(1))
    with pytest.raises(OutOfOrderSequenceNumberError):
        states.check(header(1, epoch=1))
    assert states.check(header(0, epoch=1)) is None


def test_producers_expire_by_silence_unless_a_transaction_is_open() -> None:
    """Records of last year do not make a producer silent."""
    states = ProducerStates()
    states.record(header(0, producer_id=1), 0, now_ms=100)
    states.record(header(0, producer_id=2), 1, now_ms=200)
    states.record(header(0, producer_id=3, transactional=True), 2, now_ms=100)
    assert states.expire(1_099, 1_000) == 0
    assert states.expire(1_100, 1_000) == 1
    assert [entry.producer_id for entry in states] == [2, 3]
    states.restart_clocks(5_000)
    assert states.expire(5_999, 1_000) == 0


def test_the_snapshot_of_one_producer_is_kafkas() -> None:
    """Bytes from a directory of a real Kafka."""
    known = bytes.fromhex(
        "00013fdb858d00000001" "0000000000000000" "0000" "00000340" "0000000000000340" "00000017"
        "000001a1fe0416c1" "ffffffff" "ffffffffffffffff"
    )  # fmt: skip
    entry = ProducerEntry(0, 0, timestamp_ms=0x1A1FE0416C1)
    entry.batches.append(RememberedBatch(0x340 - 0x17, 0x340, 0x340 - 0x17, 0x340, 0x1A1FE0416C1))
    assert encode_snapshot([entry]) == known
    assert decode_snapshot(known) == [entry]


sequences = st.integers(0, MAX_SEQUENCE)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**62), st.integers(0, 2**15 - 1), sequences, st.integers(0, 1000), st.booleans()
        ),
        unique_by=lambda fields: fields[0],
    )
)
def test_snapshots_come_back(producers: list[tuple[int, int, int, int, bool]]) -> None:
    """The last batch of each producer, wrapped sequences and producers without a batch included."""
    entries = []
    for producer_id, epoch, last, delta, is_empty in producers:
        entry = ProducerEntry(producer_id, epoch, timestamp_ms=5, coordinator_epoch=2)
        if not is_empty:
            first = (last - delta) % (MAX_SEQUENCE + 1)
            entry.batches.append(RememberedBatch(first, last, 10, 10 + delta, 5))
        entries.append(entry)
    assert decode_snapshot(encode_snapshot(entries)) == entries


def test_any_damaged_byte_of_a_snapshot_is_noticed() -> None:
    """Version, checksum, count and entries."""
    data = encode_snapshot(after(header(0), header(1)))
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises(CorruptMessageError):
            decode_snapshot(bytes(damaged))
    for length in range(len(data)):
        with pytest.raises(CorruptMessageError):
            decode_snapshot(data[:length])


def test_the_newest_sound_snapshot_is_loaded_and_damaged_ones_go() -> None:
    """Within the bounds asked for."""
    files = MemoryFiles()
    files.make_directory("/d")
    snapshots = SnapshotFiles(files, "/d")
    for offset in (5, 10, 20):
        snapshots.write(offset, after(header(offset)))
    files.write_atomic("/d/00000000000000000015.snapshot", b"damaged")
    assert snapshots.offsets() == [5, 10, 15, 20]
    offset, states = snapshots.load_newest(up_to=19, above=0)
    assert (offset, [entry.last_sequence for entry in states]) == (10, [10])
    assert snapshots.offsets() == [5, 10, 20]
    assert len(snapshots.load_newest(up_to=9, above=5)[1]) == 1
    offset, states = snapshots.load_newest(up_to=9, above=6)
    assert (offset, len(states)) == (6, 0)


def test_a_snapshot_whose_name_is_no_offset_is_an_error() -> None:
    """Kafka refuses to load such a directory, too."""
    files = MemoryFiles()
    files.make_directory("/d")
    files.write_atomic("/d/copy.snapshot", b"")
    with pytest.raises(KafkaStorageError, match=r"/d/copy\.snapshot is no file of a log"):
        SnapshotFiles(files, "/d").offsets()


@pytest.mark.parametrize("transaction_version", [1, 2])
def test_a_marker_that_comes_late_ends_no_later_transaction(transaction_version: int) -> None:
    """From version 2 on a transaction ends with a newer epoch than its records (KIP-1228)."""
    states = after(header(0, epoch=1, transactional=True))
    late = TransactionMarker(PID, 1, False, 0, transaction_version)
    if transaction_version == 1:
        states.check_marker(late)
    else:
        with pytest.raises(
            InvalidProducerEpochError, match="a transaction open at epoch 1, which began after"
        ):
            states.check_marker(late)
    states.check_marker(late._replace(producer_epoch=2))
