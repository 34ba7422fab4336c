"""dump-log and verify-log on directories that a real Kafka wrote, on damage, and on what is no log at all."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.kafka.make_golden import GOLDEN
from support.running.cli_processes import COMMAND, run

from splashdam import EmbeddedBroker

NEW, OLD = GOLDEN / "kafka-4.3.1", GOLDEN / "kafka-3.9.2"


def dumped(*arguments: str | Path) -> list[dict[str, object]]:
    """The entries that dump-log prints as JSON."""
    done = run("dump-log", "--json", *map(str, arguments))
    assert (done.returncode, done.stderr) == (0, b"")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("partition", sorted(GOLDEN.glob("kafka-*/*-0")), ids=lambda path: path.name)
def test_dump_of_kafkas_directories(partition: Path) -> None:
    """Every record that Kafka served is there; every batch is valid."""
    entries = dumped("--print-data", partition)
    served = json.loads((partition.parent / "served.json").read_text())[partition.name.removesuffix("-0")]
    records = [entry for entry in entries if "value" in entry]
    assert len(records) == served["records"]
    assert all(entry["isvalid"] for entry in entries if "isvalid" in entry)
    files = {Path(str(entry["file"])).suffix for entry in entries}
    assert {".log", ".metadata"} <= files


def test_dump_of_transactions() -> None:
    """Markers, the index of aborted transactions, and what snapshots know of the open one."""
    entries = dumped("--deep", NEW / "transactions-0")
    markers = [entry["endTxnMarker"] for entry in entries if "endTxnMarker" in entry]
    assert markers == ["COMMIT", "ABORT", "COMMIT"]
    (aborted,) = (entry for entry in entries if "lastStableOffset" in entry)
    assert (aborted["firstOffset"], aborted["lastOffset"], aborted["lastStableOffset"]) == (8, 13, 14)
    open_ones = [entry for entry in entries if entry.get("currentTxnFirstOffset", -1) != -1]
    assert open_ones[-1]["currentTxnFirstOffset"] == 24


def test_dump_took_the_producer_ids_for_damage(tmp_path: Path) -> None:
    """The second line of this checkpoint is an id, not a number of entries; every sound directory failed."""
    (tmp_path / "producer-ids-checkpoint").write_text("0\n3000\n")
    (entry,) = dumped(tmp_path)
    assert entry["firstUnreservedProducerId"] == 3000


@pytest.mark.parametrize("content", ["0\n", "1\n5\n", "0\n²\n", "0\n5\n6\n"])
def test_dump_of_damaged_producer_ids(tmp_path: Path, content: str) -> None:
    """What the broker refuses at its start is a problem here, too."""
    (tmp_path / "producer-ids-checkpoint").write_text(content)
    done = run("dump-log", str(tmp_path))
    assert done.returncode == 1
    assert b"problem: " in done.stdout


@pytest.mark.parametrize("command", ["dump-log", "verify-log"])
def test_an_epoch_of_five_thousand_digits_was_a_traceback(tmp_path: Path, command: str) -> None:
    """``int`` takes no more than 4,300 digits."""
    shutil.copytree(NEW / "codecs-0", tmp_path / "codecs-0")
    (tmp_path / "codecs-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 " + "9" * 5000 + "\n")
    done = run(command, str(tmp_path / "codecs-0"))
    assert done.returncode == 1
    assert b"is not 'epoch offset'" in done.stdout + done.stderr


def test_dump_as_text() -> None:
    """One line for each entry, headed by the file's name; records behind a bar."""
    done = run("dump-log", "--print-data", str(NEW / "codecs-0" / f"{200:020d}.log"))
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("Dumping ")
    assert "baseOffset: 200 lastOffset: 209 count: 10 position: 0" in lines[1]
    assert "compresscodec: zstd" in lines[1]
    assert lines[2].startswith("| offset: 200 timestamp: ")
    assert "key: null value: value 400 value 400" in lines[2]


def test_dump_of_checkpoints_and_properties() -> None:
    """The small files of a root."""
    entries = dumped(NEW / "recovery-point-offset-checkpoint", NEW / "meta.properties")
    assert {"topic": "codecs", "partition": 0, "offset": 500}.items() <= entries[1].items()
    assert entries[-1]["version"] == "1"


def test_damage_is_printed_where_it_is_met(tmp_path: Path) -> None:
    """The rest is printed all the same, and the status is 1."""
    path = tmp_path / f"{0:020d}.log"
    data = bytearray((NEW / "codecs-0" / path.name).read_bytes())
    data[100] ^= 1
    path.write_bytes(data + b"rubbish")
    done = run("dump-log", str(path))
    text = done.stdout.decode()
    assert done.returncode == 1
    assert "isvalid: false" in text
    assert "problem: the checksum is wrong" in text
    assert text.count("isvalid: true") == 4
    assert "tail: no batch problem: 7 bytes are too few for a batch header" in text


@pytest.mark.parametrize("command", ["dump-log", "verify-log"])
def test_missing_paths_and_files_that_are_no_log(command: str, tmp_path: Path) -> None:
    """One message that says what is wrong, without a traceback."""
    (tmp_path / "notes.txt").touch()
    for path in (tmp_path / "missing", tmp_path, tmp_path / "notes.txt"):
        done = run(command, str(path))
        assert done.returncode == 1
        said = (done.stderr + done.stdout).decode()
        assert str(path) in said
        assert "broker" not in said


def test_dump_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    """Opening a named pipe would block; it is refused as no regular file."""
    os.mkfifo(tmp_path / f"{0:020d}.log")
    done = run("dump-log", str(tmp_path / f"{0:020d}.log"))
    assert done.returncode == 1
    assert b"is not a regular file" in done.stdout


def test_verify_of_sound_directories() -> None:
    """A data directory, a partition, and the totals."""
    done = run("verify-log", str(OLD))
    assert done.returncode == 0
    last = b"0 errors, 0 notes in 3 partitions: 3 segments, 117 batches, 360 records"
    assert done.stdout.splitlines() == [last]
    assert run("verify-log", str(NEW / "codecs-0")).returncode == 0


def test_verify_of_gaps() -> None:
    """A note, or with --contiguous an error; --quiet leaves the notes out."""
    done = run("verify-log", str(NEW / "compacted-0"))
    assert (done.returncode, done.stdout.count(b"note: ")) == (0, 3)
    assert b"compacted up to offset 90; of 858 bytes in closed segments 0 are dirty (0%)" in done.stdout
    assert b"note: " not in run("verify-log", "--quiet", str(NEW / "compacted-0")).stdout
    done = run("verify-log", "--contiguous", str(NEW / "compacted-0"))
    assert (done.returncode, done.stdout.count(b"error: ")) == (1, 2)


def test_verify_of_damage(tmp_path: Path) -> None:
    """The status is 1, the line names file, byte and batch."""
    shutil.copytree(NEW, tmp_path / "data")
    path = tmp_path / "data" / "codecs-0" / f"{50:020d}.log"
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    done = run("verify-log", "--quiet", str(tmp_path / "data"))
    assert done.returncode == 1
    expected = f"error: {path}, byte 0: the batch at offset 50: its checksum is wrong"
    assert done.stdout.decode().splitlines()[0] == expected


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory in other ways")
@pytest.mark.parametrize("command", [("verify-log",), ("dump-log", "--deep")])
def test_memory_does_not_grow_with_the_file(command: tuple[str, ...], tmp_path: Path) -> None:
    """200 MB of zeros behind a log and its index are told of within 300 MB of address space."""
    directory = tmp_path / "t-0"
    shutil.copytree(NEW / "appended-0", directory)
    for suffix in (".log", ".index"):
        with (directory / f"{0:020d}{suffix}").open("ab") as file:
            file.truncate(200 * 1024 * 1024)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (300 * 1024 * 1024,) * 2)

    done = subprocess.run(
        [*COMMAND, *command, str(directory)], capture_output=True, preexec_fn=limit, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"zero" in done.stdout


def test_empty_internal_partitions_were_a_line_each(tmp_path: Path) -> None:
    """A group left 49 notes; those of other topics stay."""
    with EmbeddedBroker(tmp_path, topics={"t": 1, "empty": 1}) as broker:
        where = ("-b", broker.bootstrap_servers)
        assert run("produce", "t", *where, lines=b"x\n").returncode == 0
        assert run("groups", "reset", "g", "--topic", "t", "--to-latest", *where).returncode == 0
    done = run("verify-log", str(tmp_path))
    notes = [line for line in done.stdout.decode().splitlines() if line.startswith("note: ")]
    assert notes == [
        f"note: {tmp_path}/empty-0/00000000000000000000.log: an empty segment",
        "note: empty partitions: 3 of __consumer_offsets",
    ]
    assert b"0 errors, 2 notes in 6 partitions" in done.stdout
