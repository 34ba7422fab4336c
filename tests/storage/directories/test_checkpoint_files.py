"""Checkpoints, leader epochs, topic ids: small text files with exact bytes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.storage.logs import NOW_MS, TP, batch, open_log

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.checkpoints import (
    OffsetCheckpoint,
    RootCheckpoints,
    decode_lines,
    encode_lines,
)
from splashdam.storage.directories.identity import (
    load_identity,
    mark_clean_shutdown,
    take_clean_shutdown,
)
from splashdam.storage.directories.partition_metadata import (
    format_uuid,
    new_uuid,
    parse_uuid,
    read_topic_id,
    write_topic_id,
)
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.leader_epochs import LeaderEpochs
from splashdam.storage.producers.snapshots import SnapshotFiles


def test_a_checkpoint_without_entries_is_four_bytes() -> None:
    """As Kafka writes it."""
    assert encode_lines([]) == b"0\n0\n"
    assert decode_lines(b"0\n0\n", "x") == []


def test_a_start_reads_a_checkpoint_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """First the offsets, then the partitions that are gone; what a caller does to the offsets is its own."""
    files = MemoryFiles()
    here, gone = TopicPartition("a", 0), TopicPartition("b", 0)
    OffsetCheckpoint(files, "/c").write({here: 5, gone: 6})
    checkpoint, reads = OffsetCheckpoint(files, "/c"), []
    read_bytes = MemoryFiles.read_bytes

    def counted(self: MemoryFiles, path: str, *limit: int) -> bytes | None:
        reads.append(path)
        return read_bytes(self, path, *limit)

    monkeypatch.setattr(MemoryFiles, "read_bytes", counted)
    checkpoint.read().clear()
    checkpoint.keep_only({here})
    assert reads == ["/c"]
    assert OffsetCheckpoint(files, "/c").read() == {here: 5}


def test_after_a_failed_write_a_checkpoint_is_read_again() -> None:
    """The write may have replaced the file."""
    files = MemoryFiles()
    here, gone, late = (TopicPartition(name, 0) for name in "abc")
    checkpoint = OffsetCheckpoint(files, "/c")
    checkpoint.write({here: 5, gone: 6})
    files.inject(Fault(errno.EIO))
    with pytest.raises(KafkaStorageError):
        checkpoint.write({here: 7, gone: 6, late: 8})
    OffsetCheckpoint(files, "/c").write({here: 7, gone: 6, late: 8})  # as if it had replaced the file
    checkpoint.keep_only({here, late})
    assert OffsetCheckpoint(files, "/c").read() == {here: 7, late: 8}


@pytest.mark.parametrize("looks_first", [True, False])
def test_offsets_that_a_failed_write_left_were_taken_for_durable(
    monkeypatch: pytest.MonkeyPatch, looks_first: bool
) -> None:
    """An equal write was left out, and a power cut brought the old file back."""
    files, here = MemoryFiles(), TopicPartition("a", 0)
    checkpoint = OffsetCheckpoint(files, "/c")
    checkpoint.write({here: 5})
    files.inject(Fault(errno.EIO))
    with pytest.raises(KafkaStorageError):
        checkpoint.write({here: 7})
    if looks_first:
        checkpoint.keep_only({here})
        assert checkpoint.read() == {here: 5}
    written: list[str] = []
    write_atomic = MemoryFiles.write_atomic

    def noted(self: MemoryFiles, path: str, data: bytes, **options: bool) -> None:
        written.append(path)
        write_atomic(self, path, data, **options)

    monkeypatch.setattr(MemoryFiles, "write_atomic", noted)
    for _ in range(2):
        checkpoint.write({here: 5})
    assert written == ["/c"]


@pytest.mark.parametrize("count", ["²", "9" * 5000], ids=["superscript", "long"])
def test_a_count_that_only_looks_like_a_number_was_a_crash(count: str) -> None:
    """``isdigit`` takes superscripts, and ``int`` neither those nor more than 4,300 digits."""
    with pytest.raises(KafkaStorageError, match=r"says .* entries and has 1"):
        decode_lines(f"0\n{count}\nt 0 5\n".encode(), "/c")


def test_offsets_come_back() -> None:
    """One line each, in order of topic and partition."""
    files = MemoryFiles()
    checkpoint = OffsetCheckpoint(files, "/c")
    offsets = {TopicPartition("b", 10): 5, TopicPartition("b", 9): 2**62, TopicPartition("a", 0): 0}
    checkpoint.write(offsets)
    assert files.read_bytes("/c") == f"0\n3\na 0 0\nb 9 {2**62}\nb 10 5\n".encode()
    assert OffsetCheckpoint(files, "/c").read() == offsets


def test_the_same_offsets_are_not_written_twice() -> None:
    """Writing costs an fsync, and most of the time nothing has changed."""
    files = MemoryFiles()
    checkpoint = OffsetCheckpoint(files, "/c")
    checkpoint.write({TopicPartition("a", 0): 1})
    operations = files.operations
    checkpoint.write({TopicPartition("a", 0): 1})
    assert files.operations == operations


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0 1",
        b"0\nx\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 x\n",
        b"\xff",
    ],
)
def test_a_damaged_checkpoint_counts_as_none(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Recovery points and log starts then fall back, with a warning."""
    files = MemoryFiles()
    files.write_atomic("/c", data)
    assert OffsetCheckpoint(files, "/c").read() == {}
    assert "ignoring the file" in caplog.text


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one() -> None:
    """It is written the next time, although nothing has changed since."""
    files = MemoryFiles()
    checkpoint = OffsetCheckpoint(files, "/c")
    checkpoint.write({TopicPartition("a", 0): 1})
    files.inject(Fault(errno.ENOSPC, after=1))
    with pytest.raises(KafkaStorageError, match="write /c"):
        checkpoint.write({TopicPartition("a", 0): 2})
    assert OffsetCheckpoint(files, "/c").read() == {TopicPartition("a", 0): 1}
    checkpoint.write({TopicPartition("a", 0): 2})
    assert OffsetCheckpoint(files, "/c").read() == {TopicPartition("a", 0): 2}


def test_oversized_files_are_as_good_as_damaged_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the broker can do without is left out, with a warning that names the file."""
    files, names = DiskFiles(), ("replication-offset-checkpoint", "leader-epoch-checkpoint", "5.snapshot")
    for name in names:
        with (tmp_path / name).open("wb") as file:
            file.truncate(3 << 30)
    (tmp_path / "5.snapshot").rename(tmp_path / f"{5:020d}.snapshot")
    assert OffsetCheckpoint(files, str(tmp_path / names[0])).read() == {}
    assert LeaderEpochs(files, str(tmp_path)).entries == ()
    assert SnapshotFiles(files, str(tmp_path)).load_newest(up_to=9, above=0)[0] == 0
    assert [name in line for name, line in zip(names, caplog.messages, strict=True)] == [True] * 3
    assert (tmp_path / names[0]).exists()


def test_leader_epochs_rise_and_stay() -> None:
    """A known epoch changes nothing; one that wrote nothing is replaced by its successor."""
    files = MemoryFiles()
    files.make_directory("/d")
    epochs = LeaderEpochs(files, "/d")
    assert (epochs.latest, epochs.epoch_of(0)) == (-1, -1)
    for epoch, start in ((0, 0), (0, 5), (2, 10), (3, 10), (1, 20)):
        epochs.assign(epoch, start)
    assert files.read_bytes("/d/leader-epoch-checkpoint") == b"0\n2\n0 0\n3 10\n"
    again = LeaderEpochs(files, "/d")
    assert again.entries == ((0, 0), (3, 10))
    assert [again.epoch_of(offset) for offset in (0, 9, 10, 99)] == [0, 0, 3, 3]


def test_leader_epochs_are_cut_to_the_log() -> None:
    """From the end: epochs that begin at or behind it; from the start: epochs that ended before it."""
    files = MemoryFiles()
    files.make_directory("/d")
    epochs = LeaderEpochs(files, "/d")
    for epoch, start in ((0, 0), (1, 10), (2, 20), (3, 30)):
        epochs.assign(epoch, start)
    epochs.cut(15, 30)
    assert LeaderEpochs(files, "/d").entries == ((1, 15), (2, 20))
    epochs.cut(15, 0)
    assert epochs.entries == ()


def test_where_leader_epochs_end() -> None:
    """Facts, section 8: the newest at the end of the log, others where the next known one begins."""
    files = MemoryFiles()
    files.make_directory("/d")
    epochs = LeaderEpochs(files, "/d")
    assert epochs.end_of(0, 0) == (-1, -1)
    for epoch, start in ((2, 5), (3, 10), (6, 20)):
        epochs.assign(epoch, start)
    ends = {epoch: epochs.end_of(epoch, 30) for epoch in range(-1, 8)}
    assert ends == {
        -1: (-1, -1),
        0: (0, 5),
        1: (1, 5),
        2: (2, 10),
        3: (3, 20),
        4: (3, 20),
        5: (3, 20),
        6: (6, 30),
        7: (-1, -1),
    }


def test_damaged_leader_epochs_start_again(caplog: pytest.LogCaptureFixture) -> None:
    """The batches in the log name their epochs anyway."""
    files = MemoryFiles()
    files.make_directory("/d")
    files.write_atomic("/d/leader-epoch-checkpoint", b"0\n1\n0\n")
    assert LeaderEpochs(files, "/d").latest == -1
    assert "going on without the leader epochs" in caplog.text


@given(st.binary(min_size=16, max_size=16))
def test_ids_are_22_characters(value: bytes) -> None:
    """Base64url without padding, both ways."""
    text = format_uuid(value)
    assert len(text) == 22
    assert parse_uuid(text) == value


def test_new_ids_differ_and_never_begin_with_a_dash() -> None:
    """Kafka's tools would take such an id for an option."""
    ids = {format_uuid(new_uuid()) for _ in range(500)}
    assert len(ids) == 500
    assert not any(text.startswith("-") for text in ids)


@pytest.mark.parametrize(
    "data",
    [
        b"version: 1\ntopic_id: StFlzgWJQLaSZk3q7GHfkA",
        b"version: 0\ntopic_id: StFlzgWJQLaSZk3q7GHfkA and more",
        b"version: 0\ntopic id: StFlzgWJQLaSZk3q7GHfkA",
        b"version 0",
    ],
)
def test_a_damaged_partition_metadata_is_an_error(data: bytes) -> None:
    """To guess an id would make a second topic of the partition."""
    files = MemoryFiles()
    files.make_directory("/d")
    assert read_topic_id(files, "/d") is None
    files.write_atomic("/d/partition.metadata", data)
    with pytest.raises(KafkaStorageError, match=r"/d/partition\.metadata"):
        read_topic_id(files, "/d")


def test_topic_id_comes_back() -> None:
    """Through 43 bytes."""
    files = MemoryFiles()
    files.make_directory("/d")
    topic_id = new_uuid()
    write_topic_id(files, "/d", topic_id)
    assert read_topic_id(files, "/d") == topic_id
    assert files.size_bytes("/d/partition.metadata") == 43


def test_a_new_directory_gets_an_identity_that_stays() -> None:
    """Later starts find the ids of the first, whatever node id they would give."""
    files = MemoryFiles()
    files.make_directory("/d")
    first = load_identity(files, "/d", node_id=5)
    assert first == load_identity(files, "/d", node_id=6)
    assert first.node_id == 5
    text = files.read_bytes("/d/meta.properties")
    assert text is not None
    assert b"version=1\n" in text


def test_meta_properties_of_version_0_name_a_broker_id() -> None:
    """As brokers before KRaft wrote them."""
    files = MemoryFiles()
    files.make_directory("/d")
    files.write_atomic("/d/meta.properties", b"#c\n! d\n\nversion=0\nbroker.id = 7\ncluster.id=x\n")
    identity = load_identity(files, "/d", node_id=1)
    assert (identity.node_id, identity.cluster_id, len(identity.directory_id)) == (7, "x", 22)


@pytest.mark.parametrize("data", [b"", b"version=2\nnode.id=1\n", b"version=1\n", b"version=1\nnode.id=x\n"])
def test_meta_properties_that_make_no_sense_are_an_error(data: bytes) -> None:
    """Starting with another identity would split the cluster."""
    files = MemoryFiles()
    files.make_directory("/d")
    files.write_atomic("/d/meta.properties", data)
    with pytest.raises(KafkaStorageError, match=r"meta\.properties"):
        load_identity(files, "/d", node_id=1)


def test_the_clean_shutdown_marker_serves_once_even_if_the_power_goes() -> None:
    """It is durable when written, and durably gone when taken."""
    files = MemoryFiles()
    files.make_directory("/d")
    files.sync_directory("/")
    mark_clean_shutdown(files, "/d")
    files.crash()
    assert files.read_bytes("/d/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":-1}'
    assert take_clean_shutdown(files, "/d")
    files.crash()
    assert not take_clean_shutdown(files, "/d")


@pytest.mark.parametrize("zeros", [0, 5])
def test_a_partition_metadata_that_a_power_cut_tore_counts_as_missing(zeros: int) -> None:
    """It is not synced when it is made, since the registry has the id; a broker would not start otherwise."""
    files = MemoryFiles()
    files.make_directory("/d")
    write_topic_id(files, "/d", bytes(range(16)))
    whole = files.read_bytes("/d/partition.metadata")
    assert whole is not None
    for length in range(len(whole)):
        files.write_atomic("/d/partition.metadata", whole[:length] + bytes(zeros))
        assert read_topic_id(files, "/d") is None


def test_a_truncated_log_does_not_start_where_it_did() -> None:
    """Its start goes back with its end; a crash then hid what was appended instead of the rest."""
    files = MemoryFiles()
    checkpoints, log = RootCheckpoints(files, "/data"), open_log(files)
    for _ in range(9):
        log.append_as_leader(batch(b"x"), now_ms=NOW_MS)
    log.flush()
    log.advance_log_start(8)
    checkpoints.write_all({TP: log})
    assert checkpoints.read().log_starts == {TP: 8}
    log.truncate_to(3, now_ms=NOW_MS)
    checkpoints.log_truncated(TP, {TP: log})
    assert checkpoints.read().log_starts.get(TP, 0) == log.log_start_offset <= 3
