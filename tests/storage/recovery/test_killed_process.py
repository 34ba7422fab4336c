"""A real process, really killed in the middle of its appends."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from support.storage.logs import NOW_MS, batch, read_headers

from splashdam.model.values import TopicPartition
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.manager.log_manager import LogManager

APPEND_UNTIL_KILLED = """
import sys
sys.path.insert(0, sys.argv[2])
from support.storage.logs import NOW_MS, batch
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.manager.log_manager import LogManager
from splashdam.model.values import TopicPartition
manager = LogManager.open(DiskFiles(), sys.argv[1], now_ms=NOW_MS)
if "t" not in manager.topics:
    manager.create_topic("t", 1, {"segment.bytes": "20000"}, now_ms=NOW_MS)
log = manager.logs[TopicPartition("t", 0)]
while True:
    number = log.log_end_offset
    log.append_as_leader(batch(b"%d" % number * 40, producer_id=1, sequence=number), now_ms=NOW_MS)
    sys.stdout.write("%d\\n" % number)
    sys.stdout.flush()
"""


def test_killed_with_sigkill_again_and_again(tmp_path: Path) -> None:
    """Each start finds every acknowledged batch once and in order, knows the last ones, and goes on."""
    chance = random.Random(5)
    for _ in range(5):
        acknowledged = run_and_kill(tmp_path, lines=chance.randint(1, 400))
        manager = LogManager.open(DiskFiles(), str(tmp_path), now_ms=NOW_MS)
        log = manager.logs[TopicPartition("t", 0)]
        headers = read_headers(log)
        assert log.log_end_offset > acknowledged
        assert [header.base_offset for header in headers] == list(range(log.log_end_offset))
        assert [header.base_sequence for header in headers] == list(range(log.log_end_offset))
        for number in range(max(0, log.log_end_offset - 5), log.log_end_offset):
            data = batch(b"%d" % number * 40, producer_id=1, sequence=number)
            assert log.append_as_leader(data, now_ms=NOW_MS).base_offset == number
        if chance.random() < 0.5:
            manager.close()
        else:
            manager.directories.release()  # as a process that ends without a word
            log.abandon()
    assert len(os.listdir(tmp_path / "t-0")) > 8


def run_and_kill(directory: Path, *, lines: int) -> int:
    """Lets a process append until it has acknowledged so many batches, kills it, returns the last one."""
    tests = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", APPEND_UNTIL_KILLED, str(directory), tests], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        read = "".join(process.stdout.readline() for _ in range(lines))
        process.kill()
        read += process.stdout.read()
    return int(read.split("\n")[-2])  # the last whole line
