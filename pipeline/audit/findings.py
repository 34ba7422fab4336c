"""What an audit looks at and what it finds: a stored batch, and a finding with its place, kind and level."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import attrs

from splashdam.model.values import TopicPartition
from splashdam.storage.inspect.verify import Level


class Kind(Enum):
    """What a finding is about."""

    GAP = "gap"
    DUPLICATE = "duplicate"
    CHECKSUM = "checksum"
    DAMAGE = "damage"
    SEQUENCE = "sequence"
    TRANSACTION = "transaction"
    FILE = "file"


@attrs.frozen
class AuditFinding:
    """A finding of the audit.

    Attributes:
        kind: its subject.
        level: an error makes the audit fail, a note does not.
        where: the partition, None for files outside of all partitions.
        path: of the file or directory.
        position: of the byte in the file, or None.
        offset: in the partition, or None.
        text: description.
    """

    kind: Kind
    level: Level
    where: TopicPartition | None
    path: str
    position: int | None
    offset: int | None
    text: str

    @property
    def is_error(self) -> bool:
        """Whether it makes the audit fail."""
        return self.level is Level.ERROR

    def __str__(self) -> str:
        place = self.path if self.position is None else f"{self.path}, byte {self.position}"
        offset = "" if self.offset is None else f" offset {self.offset}:"
        return f"{self.level.value}: {self.kind.value}: {place}:{offset} {self.text}"


MAX_SEQUENCE = 2**31 - 1
"""A producer's sequence numbers wrap around to 0 after it."""


class AuditedBatch(NamedTuple):
    """A stored batch of any message format.

    Attributes:
        path: of the file.
        position: of its first byte there.
        size_bytes: including its header.
        base_offset: of its first record, before compaction.
        last_offset: of its last one, before compaction.
        record_count: remaining records; -1 in a compressed wrapper of formats 0 and 1, which does not state
            it.
        codec: ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``.
        max_timestamp_ms: largest of its records, -1 for none.
        producer_id: -1 for none.
        producer_epoch: -1 for none.
        base_sequence: -1 for none, and in control batches.
        is_transactional: whether it belongs to a transaction, or ends one.
        is_control: whether it ends a transaction.
        crc_ok: whether its checksum is right; None if it was not checked.
        commits: of a control batch: whether it commits; None if unknown.
    """

    path: str
    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    record_count: int
    codec: str = "none"
    max_timestamp_ms: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    is_control: bool = False
    crc_ok: bool | None = True
    commits: bool | None = None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, -1 for none."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) & MAX_SEQUENCE

    def finding(self, kind: Kind, level: Level, where: TopicPartition, text: str) -> AuditFinding:
        """Return a finding that names this batch."""
        return AuditFinding(kind, level, where, self.path, self.position, self.base_offset, text)
