"""The data directories of one broker: each with its lock, its identity and its checkpoints (``log.dirs``).

The first one named by the broker is its home (Kafka's ``metadata.log.dir``): topics, producer ids and users
are kept there. Without it the broker cannot go on; a failure of another one costs the partitions in it.
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
"""In the home: which directories the broker has filled so far, so that none is left out by mistake."""

_logger = logging.getLogger(__name__)


class PlacedLog(Protocol):
    """A log, as far as it matters where it lies."""

    @property
    def directory(self) -> str: ...


class LogDirectory:
    """One data directory.

    Attributes:
        root: its absolute path.
        is_cordoned: nothing new is put there.
        checkpoints: the files in it that say where its logs start, what is flushed, and so on.
        identity: cluster id, node id and directory id.
        was_clean: whether it was closed in order before.
        kept: what its checkpoints said at the start.
        failure: why it is offline; None while it is not.
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
        """Make it where it is missing, and take its lock.

        Raises:
            IllegalStateError: another broker uses it.
            KafkaStorageError: it cannot be used.
        """
        for made in self._files.make_directory(self.root):
            self._files.sync_directory(os.path.dirname(made))
        self._lock = self._files.lock(self.root)

    def load(self, node_id: int, cluster_id: str | None) -> None:
        """Read what it says of itself.

        Raises:
            KafkaStorageError: it makes no sense, or is another broker's.
        """
        self.was_clean = take_clean_shutdown(self._files, self.root)
        if cluster_id is not None:
            claim_directory(self._files, self.root, node_id, cluster_id)
        self.identity = load_identity(self._files, self.root, node_id=node_id, cluster_id=cluster_id)
        remove_half_written(self._files, self.root)
        self.checkpointed = self.checkpoints.read()

    def release(self) -> None:
        """Let the next broker in."""
        if self._lock is not None:
            self._lock.release()


class LogDirectories:
    """All data directories of a broker; made by ``open``.

    Args:
        files: the file system.
        home: absolute path of the broker's home.
        log_dirs: absolute paths of the directories that partitions are put into; by default the home.
        on_failure: is told of a directory other than the home that has failed just now.
        root_of: the directory that a partition lies in, None for one that is not here.

    Attributes:
        files: the file system; with several directories one that watches for failures of the disk.
        all: every directory, in the order in which they are filled.
        home: see above.
        checkpoints: those of all directories.
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
        """Those that have not failed."""
        return [each for each in self.all if each.failure is None]

    def _checkpoints_by_root(self) -> dict[str, RootCheckpoints]:
        return {each.root: each.checkpoints for each in self.online}

    def at(self, root: str) -> LogDirectory | None:
        """The directory of this path."""
        return next((each for each in self.all if each.root == root), None)

    def of(self, log: PlacedLog) -> LogDirectory:
        """The directory that a log lies in."""
        directory = self.at(os.path.dirname(log.directory))
        assert directory is not None, log.directory
        return directory

    def open(self) -> None:
        """Take the locks; a directory other than the home that cannot be used is offline from the start.

        Raises:
            IllegalStateError: another broker uses one; the text names its process.
            KafkaStorageError: the home cannot be used, or none that takes partitions.
        """
        self._for_each_online(LogDirectory.take)

    def load(self, node_id: int) -> None:
        """Read what each says of itself; ids of a new one are those of the home.

        Raises:
            KafkaStorageError: as ``open``, or a directory of ours is not named any more.
        """
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
        """The partitions that lie in the directories, with the paths of theirs; there should be one of each.

        Raises:
            KafkaStorageError: the home cannot be read, or none that takes partitions.
        """
        found: dict[TopicPartition, list[str]] = {}

        roots = [each.root for each in self.all]

        def look(directory: LogDirectory) -> None:
            lying = find_partitions(self.files, directory.root, topics, roots=roots)
            for topic_partition, path in lying.items():
                found.setdefault(topic_partition, []).append(path)

        self._for_each_online(look)
        return found

    def place(self, logs: Iterable[PlacedLog]) -> Callable[[], LogDirectory]:
        """Choose directories for new partitions: as in Kafka the one with the fewest has its turn.

        Args:
            logs: those that there are.

        Raises:
            KafkaStorageError: by the choice: none is there to take any.
        """
        if len(self.all) == 1:
            return lambda: self.home
        counts = Counter(os.path.dirname(log.directory) for log in logs)

        def choose() -> LogDirectory:
            takers = [each for each in self.online if not each.is_cordoned]
            if not takers:
                raise KafkaStorageError("no data directory is left that takes partitions")
            chosen = min(takers, key=lambda each: counts[each.root])
            counts[chosen.root] += 1
            return chosen

        return choose

    def check_exist(self) -> None:
        """Look whether they are where they were; one that is not has failed.

        Raises:
            KafkaStorageError: the home is gone, or has failed.
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
        """Take a directory out of use."""
        if directory.failure is None:
            directory.failure = error
            _logger.error("the data directory %s is offline: %s", directory.root, error.message)
            self._on_failure(directory)

    def release(self) -> None:
        """Give the locks back."""
        for each in self.all:
            with suppress(KafkaStorageError):
                each.release()


def check_none_is_missing(files: Files, home: str, roots: Sequence[str]) -> None:
    """Compare the directories of this start with those of the one before, and note them.

    Without that a broker started without one of its ``log.dirs`` would make the partitions in it anew, empty,
    and the next start with it would find them twice.

    Args:
        files: the file system.
        home: absolute path of the broker's home.
        roots: absolute paths of all directories of this start.

    Raises:
        KafkaStorageError: one with partitions is not among them.
    """
    path = f"{home}/{KNOWN_NAME}"
    data = files.read_bytes(path) or b""
    for line in data.decode(errors="replace").splitlines():
        root = os.path.normpath(os.path.join(home, line))
        if root not in roots and _holds_partitions(files, root, roots):
            raise KafkaStorageError(
                f"{root} holds partitions of this broker and is not among its log.dirs; name it there, or "
                "move it away if what is in it may be lost"
            )
    noted = "".join(f"{_relative(each, home)}\n" for each in roots if each != home).encode()
    if noted != data:
        files.write_atomic(path, noted)


def _holds_partitions(files: Files, root: str, roots: Sequence[str]) -> bool:
    is_ours = files.size_bytes(f"{root}/{META_NAME}") is not None
    return is_ours and bool(find_partitions(files, root, {}, roots=roots))


def _relative(root: str, home: str) -> str:
    """A directory below the home is found again when both have moved."""
    return os.path.relpath(root, home) if root.startswith(home + "/") else root
