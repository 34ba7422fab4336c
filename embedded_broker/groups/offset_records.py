"""Keys and values of ``__consumer_offsets``, as Kafka writes them. Format: docs/format/consumer-offsets.md.

Other kinds of records than committed offsets are known by their key alone: they stay in the log as they are.
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
    """What one offset was committed for."""

    group_id: str
    topic_partition: TopicPartition

    def encoded(self) -> bytes:
        """The key of its record."""
        return offset_key_start(self.group_id) + offset_key_end(self.topic_partition)


class GroupKey(NamedTuple):
    """What a record says of a group besides offsets: its members, and in which generation they are.

    Attributes:
        version: the kind of record.
        group_id: whose it is.
        data: the whole key, which for some kinds names a member behind the group.
    """

    version: int
    group_id: str
    data: bytes


class CommittedOffset(NamedTuple):
    """How far a group has read a partition.

    Attributes:
        offset: the one to read next.
        metadata: what the consumer wants to know of it later.
        leader_epoch: of the last record that was read, -1 if the consumer does not say.
        commit_timestamp_ms: wall clock, milliseconds since the epoch.
        expire_timestamp_ms: when it is forgotten, where the consumer asked for a retention of its own.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None

    def encoded(self) -> bytes:
        """The value of its record."""
        if self.expire_timestamp_ms is not None:
            head = _INT16.pack(_EXPIRING_VERSION) + _INT64.pack(self.offset)
            times = _TIMES.pack(self.commit_timestamp_ms, self.expire_timestamp_ms)
            return head + _string(self.metadata) + times
        head = _INT16.pack(_WRITTEN_VERSION) + _INT64.pack(self.offset) + _INT32.pack(self.leader_epoch)
        return head + _string(self.metadata) + _INT64.pack(self.commit_timestamp_ms)


class NewOffset(NamedTuple):
    """An offset that is to be committed, with its record but for the group's id, which may be long.

    Attributes:
        committed: what it says.
        key_end: what stands in its key behind the group's id.
        value: of its record.
    """

    committed: CommittedOffset
    key_end: bytes
    value: bytes

    @classmethod
    def of(cls, topic_partition: TopicPartition, committed: CommittedOffset) -> NewOffset:
        """Encodes it."""
        return cls(committed, offset_key_end(topic_partition), committed.encoded())


def offset_key_start(group_id: str) -> bytes:
    """What the keys of all offsets of a group begin with."""
    return _INT16.pack(OFFSET_KEY_VERSION) + _string(group_id)


def offset_key_end(topic_partition: TopicPartition) -> bytes:
    """What follows in the key of one of them."""
    return _string(topic_partition.topic) + _INT32.pack(topic_partition.partition)


def parse_key(data: Buffer) -> OffsetKey | GroupKey | None:
    """What a record is about; None for kinds that this broker leaves alone.

    Raises:
        CorruptMessageError: it is not what its version says.
    """
    reader = _Reader(data)
    version = reader.number(_INT16)
    if version in _OFFSET_KEYS:
        group_id, topic = reader.string(), reader.string()
        return OffsetKey(group_id, TopicPartition(topic, reader.number(_INT32)))
    return GroupKey(version, reader.string(), bytes(data)) if version in _GROUP_KEYS else None


def parse_value(data: Buffer) -> CommittedOffset:
    """The value of an offset's record, of any version up to 4; the topic id of version 4 is left out.

    Raises:
        CorruptMessageError: it is not what its version says.
    """
    reader = _Reader(data)
    version = reader.number(_INT16)
    if not 0 <= version <= _FLEXIBLE_VERSION:
        raise CorruptMessageError(f"a committed offset of the unknown version {version}")
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
    """Takes one thing after the other from the front."""

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
            raise CorruptMessageError(f"a record of __consumer_offsets has a text of {length} bytes")
        data, self._position = self._data[self._position : end], end
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptMessageError(
                f"a record of __consumer_offsets has a text that is none: {error}"
            ) from error
