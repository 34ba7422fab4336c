"""Where logs may lie: this machine, fsspec's filesystems, and what is said of those that cannot be opened."""

from __future__ import annotations

import logging
import pickle
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.pipeline.log_source_kit import WHERE, partition_on_disk, records_in
from support.storage.log_workload import append_random

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.errors import KafkaConfigurationError
from splashdam.net.cluster.fetch_client import LATEST
from splashdam.pipeline.log_source import filesystems
from splashdam.pipeline.log_source.filesystems import Location, _opened, location_of
from splashdam.pipeline.log_source.offline_logs import OfflineLogs
from splashdam.record.reader import Record

pytest.importorskip("pyarrow", reason="needs splashdam[spark]")


@pytest.fixture
def log(tmp_path: Path) -> tuple[Path, list[Record]]:
    """A data directory on disk."""
    expected: list[Record] = []
    path = partition_on_disk(tmp_path / "data", lambda log: expected.extend(append_random(log, 2, 60)))
    return path, expected


@pytest.fixture
def memory(log: tuple[Path, list[Record]]) -> Iterator[str]:
    """The same in fsspec's memory; its URI."""
    filesystem = pytest.importorskip("fsspec", reason="needs fsspec").filesystem("memory")
    root = f"/logs-{uuid.uuid4().hex}"
    filesystem.put(str(log[0]), root, recursive=True)
    yield f"memory://{root}"
    filesystem.rm(root, recursive=True)


def read(uri: str, **settings: str) -> list[Record]:
    """All records of ``t-0`` below a location, in slices of 5,000 bytes."""
    logs = OfflineLogs([location_of(uri, tuple(settings.items()))], read_committed=False)
    end = logs.offsets("t", [0], LATEST)[0]
    return records_in(logs.slices(WHERE, 0, end, max_bytes=5000))


def test_a_path_and_its_uri_are_the_same(
    log: tuple[Path, list[Record]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path, too; workers may stand in another directory."""
    path, expected = log
    monkeypatch.chdir(path.parent)
    relative = location_of("data")
    monkeypatch.chdir("/")
    assert relative == location_of(str(path))
    for uri in (str(path), f"{path}/", f"file://{path}", f"{path}/t-0"):
        assert read(uri) == expected


def test_a_log_in_fsspecs_memory(memory: str, log: tuple[Path, list[Record]]) -> None:
    """Any of fsspec's filesystems will do; a data directory, or one partition."""
    assert read(memory) == log[1]
    assert read(f"{memory}/t-0") == log[1]


def test_a_log_in_an_archive(log: tuple[Path, list[Record]], tmp_path: Path) -> None:
    """Settings go to fsspec as they are."""
    fsspec = pytest.importorskip("fsspec", reason="needs fsspec")
    import shutil

    path, expected = log
    archive = shutil.make_archive(str(tmp_path / "copy"), "zip", path)
    assert read("zip://", fo=archive) == expected
    _opened.cache_clear()  # we keep the open archive, as fsspec does
    fsspec.get_filesystem_class("zip").clear_instance_cache()


def test_the_torn_end_of_a_log_elsewhere_is_named_by_its_uri(
    memory: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As whoever gave the path would write it."""
    import fsspec

    filesystem = fsspec.filesystem("memory")
    name = max(each for each in filesystem.ls(f"{memory}/t-0", detail=False) if each.endswith(".log"))
    filesystem.pipe_file(name, filesystem.cat_file(name)[:-3])
    with caplog.at_level(logging.WARNING, "splashdam.pipeline"):
        read(memory)
    assert f"{memory}/t-0/{name.rpartition('/')[2]}, position " in caplog.text


def test_a_location_travels_without_its_filesystem(memory: str, log: tuple[Path, list[Record]]) -> None:
    """Trap 15: it pickles, and hides its settings, which may be keys."""
    location = Location(memory, (("secret", "s3cr3t"),))
    assert pickle.loads(pickle.dumps(location)) == location
    assert "s3cr3t" not in repr(location)


@pytest.mark.parametrize(
    ("uri", "settings", "message"),
    [
        ("nowhere://x/y", {}, "nowhere"),
        ("s3://bucket/x", {"endpoint_overide": "http://127.0.0.1:1"}, "endpoint_overide"),
        ("file:///tmp", {"a": "b"}, r"\?name=value"),
    ],
)
def test_files_that_cannot_be_opened_are_named(uri: str, settings: dict[str, str], message: str) -> None:
    """An unknown scheme, and an unknown setting."""
    with pytest.raises(KafkaConfigurationError, match=message):
        location_of(uri, tuple(settings.items())).open()


def test_a_store_that_cannot_be_reached_gave_no_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text was that of the object store's client alone."""

    def unreachable(*_: object) -> Any:
        raise OSError("AWS Error NETWORK_CONNECTION")

    monkeypatch.setattr(filesystems, "_open", unreachable)
    with pytest.raises(
        KafkaConfigurationError, match=r"cannot open s3://nope/x: AWS Error.* What to do: check"
    ):
        location_of("s3://nope/x").open()


def test_secrets_in_a_uri_are_not_shown() -> None:
    """Text before an @ or after the question mark may be a key."""
    location = location_of("nowhere://key:s3cr3t@x/y?secret_key=s3cr3t")
    with pytest.raises(KafkaConfigurationError, match="nowhere://x/y") as refused:
        location.open()
    assert "s3cr3t" not in str(refused.value) + repr(location)


def directory_of(kind: str, path: Path) -> Path:
    """One that is no data directory."""
    target = path / kind
    if kind != "missing":
        target.mkdir()
    if kind == "unnamed":
        (target / f"{0:020d}.log").touch()
    return target


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("missing", KafkaStorageError, "missing does not exist"),
        ("empty", KafkaStorageError, "neither a data directory nor"),
        ("unnamed", KafkaConfigurationError, "not the name of a partition"),
    ],
)
def test_directories_that_hold_no_log(tmp_path: Path, kind: str, error: Any, message: str) -> None:
    """Each is named, with what is wrong."""
    logs = OfflineLogs([location_of(str(directory_of(kind, tmp_path)))], read_committed=False)
    with pytest.raises(error, match=message):
        logs.topics()


def test_a_partition_that_lies_in_two_directories_is_refused(log: tuple[Path, list[Record]]) -> None:
    """It would be read twice."""
    logs = OfflineLogs([location_of(str(log[0])), location_of(str(log[0] / "t-0"))], read_committed=False)
    with pytest.raises(KafkaConfigurationError, match="t-0 is in"):
        logs.topics()


def test_log_dirs_are_read_together(tmp_path: Path) -> None:
    """A broker may have several."""
    for name in ("a", "b"):
        partition_on_disk(tmp_path / name, lambda log: append_random(log, 1, 3), topic=name)
    (tmp_path / "b" / "meta.properties").touch()
    logs = OfflineLogs([location_of(str(tmp_path / name)) for name in "ab"], read_committed=False)
    assert logs.topics() == ["a", "b"]


def test_a_compaction_that_stopped_in_the_middle_is_refused(log: tuple[Path, list[Record]]) -> None:
    """The segments that a copy replaces are gone already, and the copy has not its name yet."""
    first = min((log[0] / "t-0").glob("*.log"))
    first.rename(f"{first}.swap")
    with pytest.raises(KafkaStorageError, match=r"0\.log\.swap.*start a broker once"):
        read(str(log[0]))
