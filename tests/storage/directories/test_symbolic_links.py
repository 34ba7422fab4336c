"""Symbolic links in a data directory are not followed, so that nothing outside is emptied or written to."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from support.storage.logs import NOW_MS

from splashdam.embedded_broker.security.users import UserStore
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.manager.log_manager import LogManager

PRECIOUS = b"somebody else's\n" * 40


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file outside of the data directory."""
    path = tmp_path / "outside"
    path.write_bytes(PRECIOUS)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data directory with a topic, a record short of nothing."""
    root = tmp_path / "data"
    manager = open_manager(root)
    manager.create_topic("t", 1, now_ms=NOW_MS)
    manager.close()
    return root


def open_manager(root: Path) -> LogManager:
    return LogManager.open(DiskFiles(), str(root), now_ms=NOW_MS)


ROOT_FILES = [
    ".lock", "meta.properties", "splashdam-topics.json", "splashdam-topics.changes", "splashdam-log-dirs",
    "splashdam-meta.json", "splashdam-meta.json.tmp",
    "recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint.tmp", "splashdam-topics.json.tmp",
]  # fmt: skip
LOG_FILES = [
    f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex", f"{0:020d}.txnindex", f"{0:020d}.snapshot",
    "partition.metadata", "leader-epoch-checkpoint", "leader-epoch-checkpoint.tmp",
]  # fmt: skip


def use(root: Path) -> None:
    """Everything a broker does to its files."""
    manager = open_manager(root)
    try:
        manager.create_topic("another", 1, now_ms=NOW_MS)
        manager.checkpoints.write_all(manager.logs)
        for log in manager.logs.values():
            log.begin_leader_epoch(3)
            log.flush()
    finally:
        manager.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", [*ROOT_FILES, *(f"t-0/{each}" for each in LOG_FILES)])
def test_nothing_is_written_behind_a_link(root: Path, outside: Path, name: str, clean: bool) -> None:
    """The file outside stays as it is, whether the broker does without the link or refuses it."""
    path = root / name
    path.unlink(missing_ok=True)
    path.symlink_to(outside)
    if not clean:
        (root / ".kafka_cleanshutdown").unlink()
    with suppress(KafkaStorageError):
        use(root)
    assert outside.read_bytes() == PRECIOUS


@pytest.mark.parametrize("name", [".lock", "meta.properties", f"t-0/{0:020d}.log"])
def test_a_link_is_refused_by_name_and_remedy(root: Path, outside: Path, name: str) -> None:
    """At the start, before anything is changed."""
    (root / name).unlink()
    (root / name).symlink_to(outside)
    with pytest.raises(KafkaStorageError, match=r"symbolic link.*log\.dirs") as refused:
        use(root)
    assert str(root / name) in refused.value.message


def test_a_partitions_directory_is_no_link(root: Path, tmp_path: Path) -> None:
    """One of a topic that is there keeps the broker from starting."""
    elsewhere = tmp_path / "elsewhere"
    (root / "t-0").rename(elsewhere)
    (root / "t-0").symlink_to(elsewhere)
    before = sorted(each.name for each in elsewhere.iterdir())
    with pytest.raises(KafkaStorageError, match="t-0 is a symbolic link"):
        open_manager(root)
    assert sorted(each.name for each in elsewhere.iterdir()) == before


def test_a_new_topic_is_not_made_behind_a_link(root: Path, tmp_path: Path) -> None:
    """Not even where nothing is there yet; the broker goes on."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    manager = open_manager(root)
    (root / "u-0").symlink_to(elsewhere)
    with pytest.raises(KafkaStorageError, match="u-0 is a symbolic link"):
        manager.create_topic("u", 1, now_ms=NOW_MS)
    assert not list(elsewhere.iterdir())
    assert TopicPartition("u", 0) not in manager.logs
    manager.close()


def test_a_data_directory_may_be_a_link_and_others_links_are_left_alone(root: Path, tmp_path: Path) -> None:
    """A link that the user named is kept; links without one of our names are ignored."""
    (tmp_path / "link").symlink_to(root)
    (root / "photos-2024").symlink_to(tmp_path)
    use(tmp_path / "link")
    assert (root / "another-0").is_dir()


def test_users_are_not_written_behind_a_link(root: Path, outside: Path) -> None:
    """They are not read from there either."""
    (root / "splashdam-users.json").symlink_to(outside)
    with pytest.raises(KafkaStorageError, match="symbolic link"):
        UserStore(DiskFiles(), str(root)).names()
    assert outside.read_bytes() == PRECIOUS
