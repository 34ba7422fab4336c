"""``meta.properties`` and the clean shutdown marker of a data directory.

Format: docs/format/log-directory.md.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import attrs

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.options import MAX_INT
from splashdam.storage.directories.checkpoints import (
    CLEANER_OFFSET_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
    whole_number_of,
)
from splashdam.storage.directories.partition_metadata import format_uuid, new_uuid
from splashdam.storage.files.disk import TEMPORARY, Files
from splashdam.storage.files.log_file import unusable_file_error

META_NAME = "meta.properties"
REGISTRY_NAME = "splashdam-topics.json"
CLEAN_SHUTDOWN_NAME = ".kafka_cleanshutdown"
PRODUCER_IDS_NAME = "producer-ids-checkpoint"
_REPLACED_NAMES = frozenset(
    {
        META_NAME,
        CLEAN_SHUTDOWN_NAME,
        REGISTRY_NAME,
        RECOVERY_POINT_NAME,
        HIGH_WATERMARK_NAME,
        LOG_START_NAME,
        CLEANER_OFFSET_NAME,
        PRODUCER_IDS_NAME,
        "splashdam-log-dirs",
        "splashdam-meta.json",
    }
)
_CLEAN_SHUTDOWN = b'{"version":0,"brokerEpoch":-1}'


@attrs.frozen
class DirectoryIdentity:
    """The content of ``meta.properties``; ids are 22 characters of base64url."""

    cluster_id: str
    node_id: int
    directory_id: str


def claim_directory(files: Files, root: str, node_id: int, cluster_id: str) -> None:
    """Give a new directory the identity of a broker; check that of an existing one.

    Raises:
        KafkaStorageError: it belongs to another broker or cluster.
    """
    for made in files.make_directory(root):
        files.sync_directory(os.path.dirname(made))
    found = load_identity(files, root, node_id=node_id, cluster_id=cluster_id)
    if (found.node_id, found.cluster_id) != (node_id, cluster_id):
        raise KafkaStorageError(
            f"{root} belongs to node {found.node_id} of cluster {found.cluster_id}, not to node {node_id}"
            f" of cluster {cluster_id}; start that cluster, or use another directory"
        )


def load_identity(
    files: Files, root: str, *, node_id: int, cluster_id: str | None = None
) -> DirectoryIdentity:
    """Read ``meta.properties``; give a directory without it a new identity with ``node_id``.

    Raises:
        KafkaStorageError: the file cannot be read or understood.
    """
    path = f"{root}/{META_NAME}"
    data = files.read_bytes(path)
    if data is None:
        identity = DirectoryIdentity(cluster_id or format_uuid(new_uuid()), node_id, format_uuid(new_uuid()))
        files.write_atomic(path, _encode(identity))
        return identity
    values = _parse_properties(data)
    version = values.get("version")
    if version not in ("0", "1"):
        raise unusable_file_error(path, f"has version {version}; supported are 0 and 1")
    node = values.get("node.id" if version == "1" else "broker.id", "")
    found_id = whole_number_of(node, MAX_INT)
    if found_id is None:
        raise unusable_file_error(path, "has no node id")
    return DirectoryIdentity(
        values.get("cluster.id") or format_uuid(new_uuid()),
        found_id,
        values.get("directory.id") or format_uuid(new_uuid()),
    )


def check_exists(files: Files, root: str) -> None:
    """Check that a data directory in use still exists; if the disk cannot tell, assume that it does.

    Without this a broker whose directory was removed would go on acknowledging records into open files that
    nobody can read again.

    Raises:
        KafkaStorageError: it was removed.
    """
    is_there = True
    with suppress(KafkaStorageError):
        is_there = files.size_bytes(f"{root}/{META_NAME}") is not None
    if not is_there:
        raise KafkaStorageError(
            f"{root} was removed while the broker used it; records written since then are lost. "
            "Stop a broker before moving or removing its directory"
        )


def data_directory_of(path: Path) -> Path | None:
    """Return the data directory that a path on disk is, or is in; None if it is in no broker's."""
    place = path.resolve()
    # Not `is_file`, which raises where a folder may not be looked into.
    return next((each for each in (place, *place.parents) if os.path.isfile(each / META_NAME)), None)


def take_clean_shutdown(files: Files, root: str) -> bool:
    """Remove the clean shutdown marker; return whether it was there."""
    path = f"{root}/{CLEAN_SHUTDOWN_NAME}"
    was_clean = files.size_bytes(path) is not None
    if was_clean:
        # Durably, before anything else changes: a marker that survives a crash would skip recovery.
        files.unlink(path)
        files.sync_directory(root)
    return was_clean


def remove_half_written(files: Files, root: str) -> None:
    """Remove the temporary files of interrupted ``write_atomic`` calls; other files are not the broker's.

    Raises:
        KafkaStorageError: a file could not be removed.
    """
    for name, is_directory in files.list_directory(root):
        if not is_directory and name.endswith(TEMPORARY) and name.removesuffix(TEMPORARY) in _REPLACED_NAMES:
            files.unlink(f"{root}/{name}")


def mark_clean_shutdown(files: Files, root: str) -> None:
    """Write the clean shutdown marker, as the very last step: it says that recovery is not needed."""
    files.write_atomic(f"{root}/{CLEAN_SHUTDOWN_NAME}", _CLEAN_SHUTDOWN)


def _encode(identity: DirectoryIdentity) -> bytes:
    return (
        "#\n"
        f"cluster.id={identity.cluster_id}\n"
        f"directory.id={identity.directory_id}\n"
        f"node.id={identity.node_id}\n"
        "version=1\n"
    ).encode()


def _parse_properties(data: bytes) -> dict[str, str]:
    lines = (line.strip() for line in data.decode(errors="replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith(("#", "!")))
    return {name.strip(): value.strip() for name, _, value in pairs}
