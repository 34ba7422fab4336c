"""Verifying logs: what is damage, what is worth a note, and that nothing sound is complained about."""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kafka.make_golden import GOLDEN
from support.running.examples import examples
from support.storage.compacted_logs import COMPACTED, clean, put, roll
from support.storage.damage import DAMAGE, INDEX, LOG, Damage
from support.storage.log_workload import append_random, append_transactions
from support.storage.logs import NOW_MS, batch, open_log

from splashdam.model.broker_errors import BrokerResponseError, KafkaStorageError
from splashdam.storage.cleaning.log_cleaner import cleanable_of
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.inspect.dump import dump_file
from splashdam.storage.inspect.verify import (
    Finding,
    Level,
    Totals,
    cleaning_notes,
    partition_directories,
    verify_partition,
    verify_root,
)
from splashdam.storage.settings import LogSettings


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A closed log of one partition, with several segments and index entries."""
    path = tmp_path / "data" / "t-0"
    log = open_log(DiskFiles(), str(path), settings=LogSettings(segment_bytes=60_000))
    append_random(log, seed=5, count=80)
    assert len(log.segments) > 2
    log.close()
    shutil.copy(GOLDEN / "kafka-4.3.1" / "codecs-0" / "partition.metadata", path)
    return path


def verified(directory: Path, *, contiguous: bool = False) -> tuple[list[Finding], Totals]:
    totals = Totals()
    return list(verify_partition(str(directory), totals, contiguous=contiguous)), totals


def test_a_log_of_ours_is_sound(directory: Path) -> None:
    """Not even a note, and everything was looked at."""
    seen = 0

    def on_bytes(count: int) -> None:
        nonlocal seen
        seen += count

    totals = Totals()
    assert list(verify_partition(str(directory), totals, contiguous=True, on_bytes=on_bytes)) == []
    assert (totals.partitions, totals.batches) == (1, 80)
    assert totals.records > 800
    assert seen == sum(path.stat().st_size for path in directory.glob("*.log"))


@pytest.mark.parametrize("partition", sorted(GOLDEN.glob("kafka-*/*-0")), ids=lambda path: path.name)
def test_kafkas_logs_are_sound(partition: Path) -> None:
    """Every codec and format; what compaction left are notes."""
    findings, _ = verified(partition)
    assert all(finding.level is Level.NOTE for finding in findings)
    assert bool(findings) == (partition.name == "compacted-0")
    if findings:
        assert {finding.level for finding in verified(partition, contiguous=True)[0]} == {Level.ERROR}


def test_kafkas_checkpoints_are_sound() -> None:
    """An empty one, as a broker beside ZooKeeper leaves it, too."""
    for root in GOLDEN.glob("kafka-*"):
        assert list(verify_root(str(root))) == []
        assert len(partition_directories(str(root))) >= 3


def test_compaction_is_reported(tmp_path: Path) -> None:
    """Up to which offset, and how much has come since; by Kafka's measure, and of a single partition, too."""
    directory = tmp_path / "t-0"
    log = open_log(DiskFiles(), str(directory), settings=COMPACTED)
    for number in range(6):
        put(log, (b"k", b"%d" % number))
        if number % 2:
            roll(log)
    end = clean(DiskFiles(), log)
    assert list(cleaning_notes([str(directory)])) == []  # no checkpoint says so
    (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n2\nt 0 {end}\nu 3 9\n")
    put(log, (b"k", b"new"))
    roll(log)
    put(log, (b"k", b"active"))
    target = cleanable_of(log, end, NOW_MS)
    log.close()
    (told,) = cleaning_notes([str(directory)])
    assert (told.level, told.path) == (Level.NOTE, str(directory))
    sizes = f"of {target.clean_bytes + target.dirty_bytes} bytes in closed segments {target.dirty_bytes} are"
    assert told.text == f"compacted up to offset 6; {sizes} dirty ({target.dirty_ratio:.0%})"
    (tmp_path / "cleaner-offset-checkpoint").write_text("rubbish")
    assert list(cleaning_notes([str(directory)])) == []
    assert [finding.level for finding in verify_root(str(tmp_path))] == [Level.ERROR]


@pytest.mark.parametrize(("damage", "text"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_named(directory: Path, damage: Damage, text: str) -> None:
    """The finding has the file and, if there is one, the position; the bytes behind it are still checked."""
    damage(directory)
    findings, totals = verified(directory)
    errors = [finding for finding in findings if finding.level is Level.ERROR]
    assert any(text in finding.text for finding in errors), findings
    assert len(errors) <= 4
    assert totals.segments == len(list(directory.glob("0*.log")))


def test_notes_are_no_errors(directory: Path) -> None:
    """Preallocated zeros, what was interrupted, foreign files, missing indexes, an empty segment."""
    active = sorted(directory.glob("*.log"))[-1]
    for path in (active.with_suffix(".index"), active, active.with_suffix(".timeindex")):
        path.write_bytes(path.read_bytes() + bytes(4800))
    (directory / INDEX).unlink()
    (directory / "notes.txt").touch()
    (directory / f"{0:020d}.log.deleted").touch()
    (directory / "partition.metadata").unlink()
    (directory / f"{10**6:020d}.log").touch()
    findings, _ = verified(directory)
    assert {finding.level for finding in findings} == {Level.NOTE}
    texts = "\n".join(finding.text for finding in findings)
    expected = ("4,800 preallocated zero", "4,800 zero bytes", "an empty segment", "rebuilds it",
                "is not a file of a log", "interrupted", "has no partition.metadata",
                "no offsets from")  # fmt: skip
    assert [part for part in expected if part not in texts] == []


def test_segments_that_overlap(tmp_path: Path) -> None:
    """The second begins before the first has ended."""
    log = open_log(DiskFiles(), str(tmp_path / "t-0"))
    for _ in range(3):
        log.append_as_leader(batch(b"x"), now_ms=NOW_MS)
    log.close()
    shutil.copy(tmp_path / "t-0" / LOG, tmp_path / "t-0" / f"{1:020d}.log")
    findings, _ = verified(tmp_path / "t-0")
    assert "the segment before ends with offset 2" in [finding.text for finding in findings]


def test_paths_that_are_no_log_directory(tmp_path: Path) -> None:
    """It is said instead of finding nothing wrong."""
    with pytest.raises(KafkaStorageError, match="neither a data directory nor"):
        partition_directories(str(tmp_path))
    with pytest.raises(KafkaStorageError, match="could not list"):
        partition_directories(str(tmp_path / "missing"))


def test_transactions_of_ours_are_sound(tmp_path: Path) -> None:
    """Markers, the index of aborted transactions, several segments."""
    directory = tmp_path / "t-0"
    log = open_log(DiskFiles(), str(directory), settings=LogSettings(segment_bytes=20_000))
    append_transactions(log, seed=1, count=150)
    log.close()
    assert list(directory.glob("*.txnindex"))
    findings, totals = verified(directory, contiguous=True)
    assert [finding.text for finding in findings if "partition.metadata" not in finding.text] == []
    assert totals.segments > 1


@given(st.randoms(use_true_random=False), st.sampled_from(sorted(GOLDEN.glob("kafka-*/*-0"))))
@settings(max_examples=examples(60), deadline=None)
def test_any_damage_is_reported_and_breaks_nothing(chance: random.Random, partition: Path) -> None:
    """One file with some bytes changed, put in or cut off: verifying and dumping come to their end."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder, partition.name)
        shutil.copytree(partition, directory)
        target = chance.choice([path for path in sorted(directory.iterdir()) if path.stat().st_size])
        data = bytearray(target.read_bytes())
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            removed, added = chance.choice(((1, 1), (4, 4), (0, 9), (len(data), 1)))
            data[at : at + removed] = chance.choice(
                (chance.randbytes(added), b"\xff" * added, b"\x7f" * added)
            )
        target.write_bytes(data)
        verified(directory)
        for path in directory.iterdir():
            with suppress(BrokerResponseError):
                list(dump_file(str(path), print_data=True))
