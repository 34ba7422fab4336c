"""Keys and values of ``__consumer_offsets``, as Kafka writes them. Format: docs/format/consumer-offsets.md.

Of records other than committed offsets only the key is parsed here.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.values import Buffer, TopicPartition
from splashdam.wire.primitives import IllegalBytes, read_uvarint

_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")
_TIMES = Struct(">qq")

OFFSET_KEY_VERSION = 1
_OFFSET_KEYS = range(OFFSET_KEY_VERSION + 1)
CLASSIC_GROUP_KEY_VERSION = 2
_GROUP_KEYS = (CLASSIC_GROUP_KEY_VERSION, 3, 4, 5, 6, 7, 8, 16)  # all but the first: of KIP-848
_EXPIRING_VERSION = 1
_WRITTEN_VERSION = 3
_FLEXIBLE_VERSION = 4


class OffsetKey(NamedTuple):
    """Key of a committed offset."""

    group_id: str
    topic_partition: TopicPartition

    def encoded(self) -> bytes:
        """Return the key as bytes."""
        return offset_key_start(self.group_id) + offset_key_end(self.topic_partition)


class GroupKey(NamedTuple):
    """Key of a record about a group's members.

    Attributes:
        version: version of the key, which is the kind of record.
        group_id: the group.
        data: the whole key; for some kinds it also names a member.
    """

    version: int
    group_id: str
    data: bytes


class CommittedOffset(NamedTuple):
    """An offset that a group has committed for a partition.

    Attributes:
        offset: of the next record to read.
        metadata: text from the consumer.
        leader_epoch: of the last record that was read, -1 if unknown.
        commit_timestamp_ms: wall clock, milliseconds since the epoch.
        expire_timestamp_ms: when it expires, if the commit asked for a retention of its own (before version
            5).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None

    def encoded(self) -> bytes:
        """Return the value as bytes."""
        if self.expire_timestamp_ms is not None:
            head = _INT16.pack(_EXPIRING_VERSION) + _INT64.pack(self.offset)
            times = _TIMES.pack(self.commit_timestamp_ms, self.expire_timestamp_ms)
            return head + _string(self.metadata) + times
        head = _INT16.pack(_WRITTEN_VERSION) + _INT64.pack(self.offset) + _INT32.pack(self.leader_epoch)
        return head + _string(self.metadata) + _INT64.pack(self.commit_timestamp_ms)


class NewOffset(NamedTuple):
    """An offset to commit, encoded but for the group's id, which is the same for all of a request.

    Attributes:
        committed: the offset.
        key_end: the part of its key after the group's id.
        value: of its record.
    """

    committed: CommittedOffset
    key_end: bytes
    value: bytes

    @classmethod
    def of(cls, topic_partition: TopicPartition, committed: CommittedOffset) -> NewOffset:
        """Encode an offset."""
        return cls(committed, offset_key_end(topic_partition), committed.encoded())


def offset_key_start(group_id: str) -> bytes:
    """Return the first part of the key, the same for all offsets of a group."""
    return _INT16.pack(OFFSET_KEY_VERSION) + _string(group_id)


def offset_key_end(topic_partition: TopicPartition) -> bytes:
    """Return the second part of the key."""
    return _string(topic_partition.topic) + _INT32.pack(topic_partition.partition)


def parse_key(data: Buffer) -> OffsetKey | GroupKey | None:
    """Parse a key; None for kinds of records that this broker ignores.

    Raises:
        CorruptMessageError: the bytes do not fit the version.
    """
    reader = _Reader(data)
    version = reader.number(_INT16)
    if version in _OFFSET_KEYS:
        group_id, topic = reader.string(), reader.string()
        return OffsetKey(group_id, TopicPartition(topic, reader.number(_INT32)))
    return GroupKey(version, reader.string(), bytes(data)) if version in _GROUP_KEYS else None


def parse_value(data: Buffer) -> CommittedOffset:
    """Parse the value of an offset's record, of any version up to 4; the topic id of version 4 is ignored.

    Raises:
        CorruptMessageError: the bytes do not fit the version.
    """
    reader = _Reader(data)
    version = reader.number(_INT16)
    if not 0 <= version <= _FLEXIBLE_VERSION:
        raise CorruptMessageError(f"a committed offset has the unknown version {version}")
    offset = reader.number(_INT64)
    leader_epoch = reader.number(_INT32) if version >= _WRITTEN_VERSION else -1
    metadata = reader.compact_string() if version >= _FLEXIBLE_VERSION else reader.string()
    commit_timestamp_ms = reader.number(_INT64)
    expire_timestamp_ms = reader.number(_INT64) if version == _EXPIRING_VERSION else -1
    return CommittedOffset(
        offset,
        metadata,
        leader_epoch,
        commit_timestamp_ms,
        None if expire_timestamp_ms == -1 else expire_timestamp_ms,
    )


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


class _Reader:
    """Reads fields from the front."""

    def __init__(self, data: Buffer) -> None:
        self._data = memoryview(data)
        self._position = 0

    def number(self, form: Struct) -> int:
        try:
            (value,) = form.unpack_from(self._data, self._position)
        except struct_error as error:
            raise CorruptMessageError(f"a record of __consumer_offsets is cut off: {error}") from error
        self._position += form.size
        found: int = value
        return found

    def string(self) -> str:
        return self._text(self.number(_INT16))

    def compact_string(self) -> str:
        try:
            length, self._position = read_uvarint(self._data, self._position)
        except (IllegalBytes, IndexError) as error:
            raise CorruptMessageError(f"a record of __consumer_offsets is cut off: {error}") from error
        return self._text(length - 1)

    def _text(self, length: int) -> str:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise CorruptMessageError(f"a record of __consumer_offsets has a string of {length} bytes")
        data, self._position = self._data[self._position : end], end
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptMessageError(
                f"a record of __consumer_offsets has a string that is not UTF-8: {error}"
            ) from error
