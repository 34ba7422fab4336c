"""Planted damage is found, with file and place, and so is all that ``verify-log`` finds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.kafka.make_golden import GOLDEN
from support.storage.damage import DAMAGE, Damage
from support.storage.log_workload import append_random
from support.storage.logs import NOW_MS, batch, open_log

from splashdam.pipeline.audit.findings import AuditFinding, Kind
from splashdam.record.batch import HEADER, BatchHeader, iter_headers
from splashdam.record.checksum import crc32c
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.inspect.verify import Level, Totals, partition_directories, verify_partition
from splashdam.storage.settings import LogSettings

pytest.importorskip("pyarrow", reason="needs splashdam[spark]")
from support.pipeline.audit_kit import audited

Batches = list[bytes]
LOG = f"{0:020d}.log"


def errors(root: Path) -> list[AuditFinding]:
    """The errors of the audit, however the log is divided among workers."""
    whole, sliced = audited(root), audited(root, slice_bytes=500)
    assert whole.findings == sliced.findings
    return [finding for finding in whole.findings if finding.is_error]


@pytest.mark.parametrize("root", sorted(GOLDEN.glob("*-[34]*")), ids=lambda path: path.name)
def test_kafkas_directories_are_sound(root: Path) -> None:
    """Every codec and format, transactions, compaction, Kafka's own topics: no error, and all is counted."""
    report, totals = audited(root), Totals()
    assert report.is_sound
    assert (report.gaps, report.duplicates) == (0, 0)
    for partition in partition_directories(str(root)):
        assert list(verify_partition(partition, totals)) is not None
    assert (report.batches, len(report.partitions)) == (totals.batches, totals.partitions)


def test_explained_gaps_are_no_findings() -> None:
    """Compaction's holes and the markers of transactions are counted, the open transaction is a note."""
    report = audited(GOLDEN / "kafka-4.3.1")
    by_topic = {partition.where.topic: partition for partition in report.partitions}
    assert by_topic["compacted"].offsets.compacted_offsets == 60
    transactions = by_topic["transactions"].transactions
    assert (transactions.committed, transactions.aborted, transactions.markers) == (2, 1, 3)
    (note,) = report.findings
    assert (note.kind, note.offset, note.level) == (Kind.TRANSACTION, 24, Level.NOTE)


def test_compaction_that_no_checkpoint_tells_of(tmp_path: Path) -> None:
    """Is loss, unless the topic is named as compacted."""
    shutil.copytree(GOLDEN / "kafka-4.3.1", tmp_path / "data")
    (tmp_path / "data" / "cleaner-offset-checkpoint").unlink()
    assert {finding.kind for finding in errors(tmp_path / "data")} == {Kind.GAP}
    assert audited(tmp_path / "data", compacted=("compacted",)).is_sound


@pytest.mark.parametrize(("damage", "text"), DAMAGE.values(), ids=DAMAGE)
def test_findings_of_verify_log(tmp_path: Path, damage: Damage, text: str) -> None:
    """The same files are named, and the same bytes of them."""
    directory = tmp_path / "data" / "t-0"
    log = open_log(DiskFiles(), str(directory), settings=LogSettings(segment_bytes=60_000))
    append_random(log, seed=5, count=80)
    log.close()
    damage(directory)
    by_verify = [
        finding for finding in verify_partition(str(directory), Totals()) if finding.level is Level.ERROR
    ]
    assert any(text in finding.text for finding in by_verify)
    for report in (audited(tmp_path / "data"), audited(tmp_path / "data", slice_bytes=500)):
        named = {(finding.path, finding.position) for finding in report.findings if finding.is_error}
        assert {(finding.path, finding.position) for finding in by_verify} <= named


def changed(raw: bytes, **fields: int) -> bytes:
    """A batch with other fields in its header, and the checksum that fits them."""
    header = BatchHeader(*HEADER.unpack_from(raw))._replace(**fields)
    data = bytearray(raw)
    HEADER.pack_into(data, 0, *header)
    HEADER.pack_into(data, 0, *header._replace(crc=crc32c(memoryview(data)[21:])))
    return bytes(data)


def lost(batches: Batches) -> Batches:
    return batches[:2] + batches[3:]


def doubled(batches: Batches) -> Batches:
    return batches[:3] + batches[2:]


def sent_twice(batches: Batches) -> Batches:
    header = BatchHeader(*HEADER.unpack_from(batches[2]))
    return [*batches[:3], changed(batches[2], base_offset=9), *(moved(each, 3) for each in batches[3:])] * (
        header.base_offset == 6
    )


def moved(raw: bytes, by: int) -> bytes:
    return changed(raw, base_offset=BatchHeader(*HEADER.unpack_from(raw)).base_offset + by)


def replaced(**fields: int) -> Callable[[Batches], Batches]:
    return lambda batches: [*batches[:2], changed(batches[2], **fields), *batches[3:]]


PLANTED: dict[str, tuple[Callable[[Batches], Batches], Kind, int, str]] = {
    "a batch is lost": (lost, Kind.GAP, 9, "no offsets from 6 to 8"),
    "and its sequences": (lost, Kind.SEQUENCE, 9, "producer 7: no sequences from 6 to 8"),
    "a batch is doubled": (doubled, Kind.DUPLICATE, 6, "offsets 6 to 8 again; due is 9"),
    "a batch was sent twice": (sent_twice, Kind.SEQUENCE, 9, "producer 7: sequences 6 to 8 again; due is 9"),
    "a sequence is left out": (
        replaced(base_sequence=7),
        Kind.SEQUENCE,
        6,
        "producer 7: no sequences from 6 to 6",
    ),
    "an old epoch": (
        replaced(producer_epoch=2),
        Kind.SEQUENCE,
        6,
        "producer 7: its epoch goes back from 3 to 2",
    ),
    "a time that no record has": (
        replaced(max_timestamp=NOW_MS + 5),
        Kind.FILE,
        6,
        f"its header has the maximum timestamp {NOW_MS + 5}, its records go up to {NOW_MS}",
    ),
    "a checksum": (
        lambda batches: [*batches[:2], batches[2][:-1] + b"\x7f", *batches[3:]],
        Kind.CHECKSUM,
        6,
        "the batch has a wrong checksum",
    ),
}


@pytest.mark.parametrize(("damage", "kind", "offset", "text"), PLANTED.values(), ids=PLANTED)
def test_planted_damage(
    tmp_path: Path, damage: Callable[[Batches], Batches], kind: Kind, offset: int, text: str
) -> None:
    """Each kind is found, and names file, byte and offset."""
    directory = tmp_path / "data" / "t-0"
    log = open_log(DiskFiles(), str(directory))
    for number in range(5):
        sound = batch(b"a", b"b", b"c", producer_id=7, epoch=3, sequence=3 * number)
        log.append_as_leader(sound, now_ms=NOW_MS)
    log.close()
    data = (directory / LOG).read_bytes()
    batches = [data[at : at + header.size_bytes] for at, header in iter_headers(data)]
    assert errors(tmp_path / "data") == []
    damaged = damage(batches)
    (directory / LOG).write_bytes(b"".join(damaged))
    found = [finding for finding in errors(tmp_path / "data") if finding.kind is kind]
    assert [(finding.offset, finding.text) for finding in found[:1]] == [(offset, text)]
    assert found[0].path == str(directory / LOG)
    place = found[0].position
    assert place in [sum(map(len, damaged[:index])) for index in range(len(damaged))]
