"""``splashdam-meta.json``: who wrote a directory, and what becomes of one that a newer version wrote."""

from __future__ import annotations

import json

import pytest
from support.running.patches import guard

import splashdam
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.version import VERSION
from splashdam.storage.directories import written_by
from splashdam.storage.directories.written_by import FORMAT, WrittenBy, claim_format, read_written_by
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.manager.log_manager import LogManager

NOW_MS = 1_795_000_000_000
NEWER = {"format": FORMAT + 1, "version": "7.2.0"}


def written(content: object) -> MemoryFiles:
    """A data directory with a topic, and this in the file."""
    files = MemoryFiles()
    manager = LogManager.open(files, "/d", now_ms=NOW_MS)
    manager.create_topic("t", 1, now_ms=NOW_MS)
    manager.close()
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    files.write_atomic("/d/splashdam-meta.json", data)
    return files


def names(files: MemoryFiles) -> dict[str, bytes | None]:
    return {
        name: files.read_bytes(f"/d/{name}")
        for name, is_directory in files.list_directory("/d")
        if not is_directory
    }


def test_the_version_is_that_of_the_package() -> None:
    """Rooms below the facade have it from ``model``."""
    assert splashdam.__version__ == VERSION


def test_a_new_directory_says_who_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start writes nothing more."""
    files = MemoryFiles()
    LogManager.open(files, "/d", now_ms=NOW_MS).close()
    assert json.loads(files.read_bytes("/d/splashdam-meta.json") or b"") == {
        "format": FORMAT,
        "version": VERSION,
    }
    monkeypatch.setattr(files, "write_atomic", guard("a second write of the same version"))
    claim_format(files, "/d")


def test_a_newer_format_is_refused_before_anything_changes() -> None:
    """The text names the remedy; the directory can be opened by the right version afterwards."""
    files = written(NEWER)
    before = names(files)
    with pytest.raises(
        KafkaStorageError,
        match=r"/d was written by splashdam 7\.2\.0 in format 2, and this is splashdam .*, which reads"
        r" format 1: install splashdam 7\.2\.0 or later, or give this version another directory",
    ) as raised:
        LogManager.open(files, "/d", now_ms=NOW_MS)
    assert "free space" not in str(raised.value)  # what helps against other errors of disks
    assert raised.value.remedy.startswith("install splashdam 7.2.0 or later")
    assert names(files) == before
    files.lock("/d").release()


@pytest.mark.parametrize("version", ["", "\x1b[31m", None, "x" * 500])
def test_an_edited_version_is_not_repeated(version: object) -> None:
    """It would go to a terminal."""
    files = written({"format": 9, "version": version})
    with pytest.raises(
        KafkaStorageError, match=r"by a newer splashdam in format 9, .*: install a newer splashdam, or"
    ):
        claim_format(files, "/d")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        [],
        {},
        {"format": "1"},
        {"format": True},
        {"format": 0},
        {"format": 1 << 40},
    ],
)
def test_a_damaged_file(content: object) -> None:
    """Nobody knows which format the directory has; whoever does can remove the file."""
    files = written(content)
    with pytest.raises(KafkaStorageError, match=r"splashdam-meta\.json is damaged; move this file away"):
        LogManager.open(files, "/d", now_ms=NOW_MS)
    files.unlink("/d/splashdam-meta.json")
    LogManager.open(files, "/d", now_ms=NOW_MS).close()


@pytest.mark.parametrize("older", [None, {"format": 1, "version": "0.0.1"}])
def test_an_older_directory_is_claimed(older: object) -> None:
    """Also one of before there was such a file."""
    files = written(older)
    if older is None:
        files.unlink("/d/splashdam-meta.json")
    assert read_written_by(files, "/d") == WrittenBy(1, "" if older is None else "0.0.1")
    manager = LogManager.open(files, "/d", now_ms=NOW_MS)
    assert list(manager.topics) == ["t"]
    manager.close()
    assert read_written_by(files, "/d") == WrittenBy(FORMAT, VERSION)


def on_a_full_disk(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> MemoryFiles:
    def refuse(*_: object, **__: object) -> None:
        raise KafkaStorageError("no space left")

    monkeypatch.setattr(files, "write_atomic", refuse)
    return files


def test_a_full_disk_does_not_keep_an_upgrade_from_starting(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The format is the same, and the next start notes the version."""
    files = on_a_full_disk(written({"format": FORMAT, "version": "0.0.1"}), monkeypatch)
    claim_format(files, "/d")
    assert "noting the version in /d: no space left" in caplog.text


def test_a_newer_format_is_written_only_once_it_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an older version could misread it."""
    files = on_a_full_disk(written({"format": FORMAT, "version": "0.0.1"}), monkeypatch)
    monkeypatch.setattr(written_by, "FORMAT", FORMAT + 1)
    with pytest.raises(KafkaStorageError, match="no space left"):
        claim_format(files, "/d")
