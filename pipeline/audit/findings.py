"""What an audit finds: where, of which kind, and whether it is damage."""

from __future__ import annotations

from enum import Enum

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
    """One thing that the audit found.

    Attributes:
        kind: what it is about.
        level: an error, which makes the audit fail, or merely worth knowing.
        where: the partition, None for files beside all of them.
        path: of the file or directory.
        position: of the byte in the file, or None.
        offset: in the partition, or None.
        text: what it is.
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
