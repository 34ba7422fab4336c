"""The files in the root of a data directory that say whose it is. Format: docs/format/log-directory.md."""

from __future__ import annotations

import os
from contextlib import suppress

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
_REPLACED_NAMES = frozenset(
    {
        META_NAME,
        CLEAN_SHUTDOWN_NAME,
        REGISTRY_NAME,
        RECOVERY_POINT_NAME,
        HIGH_WATERMARK_NAME,
        LOG_START_NAME,
        CLEANER_OFFSET_NAME,
        "producer-ids-checkpoint",
        "splashdam-log-dirs",
    }
)
_CLEAN_SHUTDOWN = b'{"version":0,"brokerEpoch":-1}'


@attrs.frozen
class DirectoryIdentity:
    """What ``meta.properties`` says; the ids are 22 characters of base64url."""

    cluster_id: str
    node_id: int
    directory_id: str


def claim_directory(files: Files, root: str, node_id: int, cluster_id: str) -> None:
    """Make a directory, if it is new, that of one broker of a cluster.

    Raises:
        KafkaStorageError: it is another broker's, or that of another cluster.
    """
    for made in files.make_directory(root):
        files.sync_directory(os.path.dirname(made))
    found = load_identity(files, root, node_id=node_id, cluster_id=cluster_id)
    if (found.node_id, found.cluster_id) != (node_id, cluster_id):
        raise KafkaStorageError(
            f"{root} belongs to node {found.node_id} of cluster {found.cluster_id}, and not to node {node_id}"
            f" of cluster {cluster_id}; start that cluster, or use another directory"
        )


def load_identity(
    files: Files, root: str, *, node_id: int, cluster_id: str | None = None
) -> DirectoryIdentity:
    """Read ``meta.properties``; a directory without one gets a new identity with ``node_id``.

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
        raise unusable_file_error(path, f"is of version {version}, known are 0 and 1")
    node = values.get("node.id" if version == "1" else "broker.id", "")
    found_id = whole_number_of(node, MAX_INT)
    if found_id is None:
        raise unusable_file_error(path, "names no node id")
    return DirectoryIdentity(
        values.get("cluster.id") or format_uuid(new_uuid()),
        found_id,
        values.get("directory.id") or format_uuid(new_uuid()),
    )


def check_exists(files: Files, root: str) -> None:
    """Look whether a data directory in use is where it was; a disk that does not say counts as yes.

    Raises:
        KafkaStorageError: it was removed.
    """
    is_there = True
    with suppress(KafkaStorageError):
        is_there = files.size_bytes(f"{root}/{META_NAME}") is not None
    if not is_there:
        raise KafkaStorageError(
            f"{root} was removed while the broker used it; what it took since then is lost. "
            "Stop a broker before its directory is moved or removed"
        )


def take_clean_shutdown(files: Files, root: str) -> bool:
    """Whether the last broker closed the directory in order; from now on it has not, until it does again."""
    path = f"{root}/{CLEAN_SHUTDOWN_NAME}"
    was_clean = files.size_bytes(path) is not None
    if was_clean:
        files.unlink(path)
        files.sync_directory(root)
    return was_clean


def remove_half_written(files: Files, root: str) -> None:
    """Remove what interrupted replacements of the root's files left; other files are not ours.

    Raises:
        KafkaStorageError: one could not be removed.
    """
    for name, is_directory in files.list_directory(root):
        if not is_directory and name.endswith(TEMPORARY) and name.removesuffix(TEMPORARY) in _REPLACED_NAMES:
            files.unlink(f"{root}/{name}")


def mark_clean_shutdown(files: Files, root: str) -> None:
    """Write the marker; everything else is on disk by now."""
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
