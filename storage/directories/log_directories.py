"""The data directories of one broker (``log.dirs``), each with lock, identity and checkpoints.

The directory that the broker is opened with is its home (Kafka's ``metadata.log.dir``), with topics, producer
ids and users. Without it the broker ends; a failure of another directory takes its partitions offline.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.checkpoints import CheckpointedOffsets, RootCheckpoints, SpreadCheckpoints
from splashdam.storage.directories.identity import (
    META_NAME,
    DirectoryIdentity,
    check_exists,
    claim_directory,
    load_identity,
    remove_half_written,
    take_clean_shutdown,
)
from splashdam.storage.directories.scan import KnownTopic, find_partitions
from splashdam.storage.files.disk import Files, StorageLock
from splashdam.storage.files.watched import WatchedFiles

KNOWN_NAME = "splashdam-log-dirs"
"""File in the home that lists the directories of the last start, to notice a missing one."""

_logger = logging.getLogger(__name__)


class PlacedLog(Protocol):
    """A log, of which only the directory matters."""

    @property
    def directory(self) -> str: ...


class LogDirectory:
    """One data directory.

    Attributes:
        root: its absolute path.
        is_cordoned: it gets no new partitions.
        checkpoints: its checkpoint files.
        identity: cluster id, node id and directory id.
        was_clean: whether the last broker left a clean shutdown marker.
        checkpointed: the content of its checkpoint files at the start.
        failure: why it is offline, or None.
    """

    def __init__(self, files: Files, root: str, *, is_cordoned: bool) -> None:
        self.root = root
        self.is_cordoned = is_cordoned
        self.checkpoints = RootCheckpoints(files, root)
        self.identity: DirectoryIdentity
        self.was_clean = False
        self.checkpointed = CheckpointedOffsets({}, {}, {})
        self.failure: KafkaStorageError | None = None
        self._files = files
        self._lock: StorageLock | None = None

    def take(self) -> None:
        """Create the directory if it is missing, and lock it.

        Raises:
            IllegalStateError: another broker uses it.
            KafkaStorageError: it cannot be created or locked.
        """
        for made in self._files.make_directory(self.root):
            self._files.sync_directory(os.path.dirname(made))
        self._lock = self._files.lock(self.root)

    def load(self, node_id: int, cluster_id: str | None) -> None:
        """Read identity, clean shutdown marker and checkpoints.

        Raises:
            KafkaStorageError: a file is damaged, or the directory belongs to another broker.
        """
        self.was_clean = take_clean_shutdown(self._files, self.root)
        if cluster_id is not None:
            claim_directory(self._files, self.root, node_id, cluster_id)
        self.identity = load_identity(self._files, self.root, node_id=node_id, cluster_id=cluster_id)
        remove_half_written(self._files, self.root)
        self.checkpointed = self.checkpoints.read()

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()


class LogDirectories:
    """All data directories of a broker.

    Args:
        files: the file system.
        home: absolute path of the broker's home.
        log_dirs: absolute paths of the directories for partitions; by default the home.
        on_failure: called with a directory that has just failed.
        root_of: returns the data directory of a partition; None for an unknown one.

    Attributes:
        files: the file system; with several directories one that reports failures of the disk.
        all: every directory, in the order in which they get partitions.
        home: see above.
        checkpoints: the checkpoint files of all directories.
    """

    def __init__(
        self,
        files: Files,
        home: str,
        log_dirs: Sequence[str],
        on_failure: Callable[[LogDirectory], None],
        root_of: Callable[[TopicPartition], str | None],
    ) -> None:
        roots = list(dict.fromkeys([*([] if home in log_dirs else [home]), *log_dirs]))
        self.files = files if len(roots) == 1 else WatchedFiles(files, self._note)
        self.all = [
            LogDirectory(self.files, root, is_cordoned=bool(log_dirs) and root not in log_dirs)
            for root in roots
        ]
        self.home = next(each for each in self.all if each.root == home)
        self.checkpoints: RootCheckpoints | SpreadCheckpoints = (
            self.home.checkpoints
            if len(roots) == 1
            else SpreadCheckpoints(self._checkpoints_by_root, root_of)
        )
        self._on_failure = on_failure

    @property
    def online(self) -> list[LogDirectory]:
        """The directories that have not failed."""
        return [each for each in self.all if each.failure is None]

    def _checkpoints_by_root(self) -> dict[str, RootCheckpoints]:
        return {each.root: each.checkpoints for each in self.online}

    def at(self, root: str) -> LogDirectory | None:
        """Return the directory with this path, or None."""
        return next((each for each in self.all if each.root == root), None)

    def of(self, log: PlacedLog) -> LogDirectory:
        """Return the directory of a log."""
        directory = self.at(os.path.dirname(log.directory))
        assert directory is not None, log.directory
        return directory

    def open(self) -> None:
        """Lock the directories; one other than the home that cannot be used is offline from the start.

        Raises:
            IllegalStateError: another broker uses one; the text names its process.
            KafkaStorageError: the home, or every directory for partitions, cannot be used.
        """
        self._for_each_online(LogDirectory.take)

    def load(self, node_id: int) -> None:
        """Load each directory; new ones get node id and cluster id of the home.

        Raises:
            KafkaStorageError: as ``open``, or a directory with partitions is missing from ``log.dirs``.
        """
        # First: the others belong to this broker if they have the home's cluster id.
        self.home.load(node_id, None)
        check_none_is_missing(self.files, self.home.root, [each.root for each in self.all])
        ours = self.home.identity
        self._for_each_online(
            lambda each: None if each is self.home else each.load(ours.node_id, ours.cluster_id)
        )

    def _for_each_online(self, act: Callable[[LogDirectory], None]) -> None:
        for each in self.online:
            try:
                act(each)
            except KafkaStorageError as error:
                if each is self.home:
                    raise
                self.fail(each, error)
        takers = [each for each in self.all if not each.is_cordoned]
        if all(each.failure is not None for each in takers):
            reasons = "; ".join(f"{each.root}: {each.failure.message}" for each in takers if each.failure)
            raise KafkaStorageError(f"no directory of log.dirs can be used: {reasons}")

    def find(self, topics: Mapping[str, KnownTopic]) -> dict[TopicPartition, list[str]]:
        """Return the partitions in all directories, each with its paths; there should be one for each.

        Raises:
            KafkaStorageError: the home, or every directory for partitions, cannot be read.
        """
        found: dict[TopicPartition, list[str]] = {}

        roots = [each.root for each in self.all]

        def look(directory: LogDirectory) -> None:
            here = find_partitions(self.files, directory.root, topics, roots=roots)
            for topic_partition, path in here.items():
                found.setdefault(topic_partition, []).append(path)

        self._for_each_online(look)
        return found

    def place(self, logs: Iterable[PlacedLog]) -> Callable[[], LogDirectory]:
        """Return a function that chooses the directory of a new partition: as in Kafka the emptiest one.

        Args:
            logs: the existing logs.

        Raises:
            KafkaStorageError: by the function: no directory for partitions is left.
        """
        if len(self.all) == 1:
            return lambda: self.home
        counts = Counter(os.path.dirname(log.directory) for log in logs)

        def choose() -> LogDirectory:
            takers = [each for each in self.online if not each.is_cordoned]
            if not takers:
                raise KafkaStorageError("no data directory for partitions is left; all have failed")
            chosen = min(takers, key=lambda each: counts[each.root])
            counts[chosen.root] += 1
            return chosen

        return choose

    def check_exist(self) -> None:
        """Check that the directories still exist; one that does not has failed.

        Raises:
            KafkaStorageError: the home was removed or has failed.
        """
        for each in self.online:
            try:
                check_exists(self.files, each.root)
            except KafkaStorageError as error:
                self.fail(each, error)
        if self.home.failure is not None:
            raise self.home.failure

    def _note(self, path: str, error: KafkaStorageError) -> None:
        for each in self.online:
            if path == each.root or path.startswith(each.root + "/"):
                self.fail(each, error)

    def fail(self, directory: LogDirectory, error: KafkaStorageError) -> None:
        """Take a directory offline."""
        if directory.failure is None:
            # First: what follows may meet the same disk and come here again.
            directory.failure = error
            _logger.error("the data directory %s is offline: %s", directory.root, error.message)
            self._on_failure(directory)

    def release(self) -> None:
        for each in self.all:
            with suppress(KafkaStorageError):
                each.release()


def check_none_is_missing(files: Files, home: str, roots: Sequence[str]) -> None:
    """Compare the directories of this start with those of the last one, and note them.

    Otherwise a broker started without one of its ``log.dirs`` would create the partitions in it again, empty,
    and the next start with that directory would find them twice.

    Args:
        files: the file system.
        home: absolute path of the broker's home.
        roots: absolute paths of all directories of this start.

    Raises:
        KafkaStorageError: a directory with partitions is missing.
    """
    path = f"{home}/{KNOWN_NAME}"
    data = files.read_bytes(path) or b""
    for line in data.decode(errors="replace").splitlines():
        root = os.path.normpath(os.path.join(home, line))
        if root not in roots and _holds_partitions(files, root, roots):
            raise KafkaStorageError(
                f"{root} holds partitions of this broker and is missing from log.dirs; add it there, "
                "or move it away if its partitions may be lost"
            )
    noted = "".join(f"{_relative(each, home)}\n" for each in roots if each != home).encode()
    if noted != data:
        files.write_atomic(path, noted)


def _holds_partitions(files: Files, root: str, roots: Sequence[str]) -> bool:
    is_ours = files.size_bytes(f"{root}/{META_NAME}") is not None
    return is_ours and bool(find_partitions(files, root, {}, roots=roots))


def _relative(root: str, home: str) -> str:
    """Return the path relative to the home if it is below it, so that both can be moved together."""
    return os.path.relpath(root, home) if root.startswith(home + "/") else root
