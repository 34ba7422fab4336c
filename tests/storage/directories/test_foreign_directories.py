"""What lies in a data directory and is not ours, and a directory that is another process's."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from support.storage.logs import NOW_MS, batch

from splashdam.embedded_broker.controller.producer_ids import ProducerIds
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.manager.log_manager import LogManager

ROOT = "/data"


def open_manager(files: MemoryFiles) -> LogManager:
    return LogManager.open(files, ROOT, now_ms=NOW_MS)


def put(files: MemoryFiles, directory: str) -> str:
    """Makes a directory with a file that is nobody's log; returns the file's path."""
    files.make_directory(f"{ROOT}/{directory}")
    files.write_atomic(f"{ROOT}/{directory}/file", b"precious")
    return f"{ROOT}/{directory}/file"


@pytest.mark.parametrize(
    "name",
    [
        "to-delete",
        "x-0.abc-delete",
        f"x.{'0f' * 16}-delete",
        f"x-0.{'0F' * 16}-delete",
        f"x-0.{'0f' * 16}-delete2",
    ],
)
def test_a_start_removes_no_directory_that_is_merely_called_delete(name: str) -> None:
    """Only the whole name that a broker gives."""
    files = MemoryFiles()
    path = put(files, name)
    open_manager(files).close()
    assert files.read_bytes(path) == b"precious"


def test_a_topic_is_not_made_in_a_directory_that_holds_something() -> None:
    """Deleting it would destroy that; nothing of the attempt is left, and an empty directory is fine."""
    files = MemoryFiles()
    manager = open_manager(files)
    path = put(files, "photos-1")
    files.make_directory(f"{ROOT}/videos-0")
    with pytest.raises(KafkaStorageError, match="/data/photos-1 exists and is not empty"):
        manager.create_topic("photos", 2, now_ms=NOW_MS)
    assert not manager.topics
    assert not files.list_directory(f"{ROOT}/photos-0")
    manager.create_topic("videos", 1, now_ms=NOW_MS)
    assert files.read_bytes(path) == b"precious"


def test_a_deleted_topic_takes_no_directory_of_another_number_along() -> None:
    """photos-2024 is no partition of a topic with one partition, neither at its deletion nor at a start."""
    files = MemoryFiles()
    path = put(files, "photos-2024")
    manager = open_manager(files)
    manager.create_topic("photos", 1, now_ms=NOW_MS)
    manager.close()
    manager = open_manager(files)
    assert manager.topics["photos"].partitions == (0,)
    manager.delete_topic("photos")
    manager.close()
    open_manager(files).close()
    assert files.read_bytes(path) == b"precious"


async def test_a_forked_child_leaves_its_parents_directory_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No clean-shutdown marker, no checkpoint: the parent goes on writing."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    manager.logs[TopicPartition("a", 0)].append_as_leader(batch(b"x"), now_ms=NOW_MS)
    before, pid = files.operations, os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert await manager.step(1e9, NOW_MS) == math.inf
    manager.close()
    assert files.operations == before
    monkeypatch.undo()
    manager.close()
    assert files.read_bytes(f"{ROOT}/.kafka_cleanshutdown") is not None


@pytest.mark.parametrize("name", ["u-00", "u-01", "u-2147483648", "u-9999999999"])
def test_a_directory_whose_number_is_no_partitions_is_left_alone(tmp_path: Path, name: str) -> None:
    """A broker asked for u-00 opened u-0, which is not there; numbers above 2^31 - 1 fit into no answer."""
    directory = tmp_path / name
    directory.mkdir()
    (directory / f"{0:020d}.log").touch()
    manager = LogManager.open(DiskFiles(), str(tmp_path), now_ms=NOW_MS)
    assert not manager.logs
    manager.close()
    assert [file.name for file in directory.iterdir()] == [f"{0:020d}.log"]


@pytest.mark.parametrize(
    "name", [f"{2**63}.log", f"{10**20 - 1}.log", f"{10**21}.timeindex", f"{2**63}.snapshot"]
)
def test_a_file_of_an_offset_that_cannot_be_is_named(name: str) -> None:
    """Its log would have taken appends that nobody can be told the offset of."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    manager.close()
    files.write_atomic(f"{ROOT}/a-0/{name}", b"")
    with pytest.raises(KafkaStorageError, match=f"{name} is no file of a log.*move it away"):
        open_manager(files)


@pytest.mark.parametrize(
    "change",
    [
        {"partitions": [-1]},
        {"partitions": [0.5]},
        {"partitions": ["a"]},
        {"partitions": [2**31]},
        {"topics": "../outside"},
        {"topics": "a/b"},
        {"topics": "same id"},
        {"deleting": ["../outside"]},
        {"deleting": [5]},
        {"configs": {"segment.bytes": 100}},
        {"configs": []},
    ],
    ids=str,
)
def test_a_registry_that_leads_out_of_its_directory_is_refused(change: dict[str, Any]) -> None:
    """Its names become those of directories, which are made and removed."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    manager.close()
    path = f"{ROOT}/splashdam-topics.json"
    registry = json.loads(files.read_bytes(path) or b"")
    for name, value in change.items():
        if name == "topics":
            registry["topics"][value] = registry["topics"]["a"]
        else:
            (registry if name == "deleting" else registry["topics"]["a"])[name] = value
    files.write_atomic(path, json.dumps(registry).encode())
    with pytest.raises(KafkaStorageError, match=r"splashdam-topics\.json is damaged"):
        open_manager(files)


def test_an_invalid_option_in_the_registry_is_reported_with_its_topic() -> None:
    """The error says where to correct it."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, {"segment.bytes": "100"}, now_ms=NOW_MS)
    manager.close()
    path = f"{ROOT}/splashdam-topics.json"
    files.write_atomic(path, (files.read_bytes(path) or b"").replace(b'"100"', b'"5 GB"'))
    with pytest.raises(KafkaStorageError, match=r"option of topic 'a' in .*topics\.json.*correct it there"):
        open_manager(files)


@pytest.mark.parametrize("entry", ["a 0 -5", f"a 0 {2**63}", "a 0 1_0", "a -1 5", "a 0"])
def test_a_checkpoint_of_impossible_offsets_counts_as_damaged(
    entry: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty log began at 10^23 on its word."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    manager.close()
    files.write_atomic(f"{ROOT}/log-start-offset-checkpoint", f"0\n1\n{entry}\n".encode())
    manager = open_manager(files)
    assert manager.logs[TopicPartition("a", 0)].log_end_offset == 0
    assert "is not 'topic partition offset'; ignoring the file" in caplog.text


def test_producer_ids_end_before_they_fit_into_no_answer() -> None:
    """The file says what was reserved; a number beyond 64 bits is damage."""
    files = MemoryFiles()
    files.make_directory(ROOT)
    files.write_atomic(f"{ROOT}/producer-ids-checkpoint", f"0\n{2**63}\n".encode())
    with pytest.raises(KafkaStorageError, match="move it away"):
        ProducerIds(files, ROOT, above=-1)
