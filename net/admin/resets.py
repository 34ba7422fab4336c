"""Where a group's committed offsets are to go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from splashdam.model.errors import IllegalArgumentError
from splashdam.model.values import TopicPartition
from splashdam.net.admin.groups import describe_group
from splashdam.net.admin.topics import list_offsets
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST

Offsets: TypeAlias = Mapping[TopicPartition, int]


class Target(NamedTuple):
    """The wanted position of a group: exactly one attribute is not None.

    Attributes:
        to: ``earliest`` or ``latest``.
        to_offset: this one.
        to_ms: the first record at or after this time, in milliseconds since the epoch.
        shift_by: so many records further; backwards if negative.
    """

    to: str | None = None
    to_offset: int | None = None
    to_ms: int | None = None
    shift_by: int | None = None

    async def offsets(
        self, client: ClusterClient, partitions: Iterable[TopicPartition], before: Offsets
    ) -> Offsets:
        """Return the offset of each partition, kept between the log start offset and the log end offset.

        Args:
            client: of the cluster.
            partitions: those to move.
            before: what is committed now.
        """
        asked = list(partitions)
        first, last = await list_offsets(client, asked, EARLIEST), await list_offsets(client, asked, LATEST)
        return {
            where: min(max(offset, first[where]), last[where])
            for where, offset in (await self._aimed(client, asked, before, first, last)).items()
        }

    async def _aimed(
        self,
        client: ClusterClient,
        partitions: Sequence[TopicPartition],
        before: Offsets,
        first: Offsets,
        last: Offsets,
    ) -> Offsets:
        if self.to is not None:
            return first if self.to == "earliest" else last
        if self.to_offset is not None:
            return dict.fromkeys(partitions, self.to_offset)
        if self.shift_by is not None:
            return {where: before.get(where, first[where]) + self.shift_by for where in partitions}
        assert self.to_ms is not None
        found = await list_offsets(client, partitions, self.to_ms)
        return {where: offset if offset >= 0 else last[where] for where, offset in found.items()}


async def check_empty(client: ClusterClient, group: str) -> None:
    """Refuse a group with members. A group that does not exist has no members, and a reset creates it.

    Raises:
        IllegalArgumentError: it has members.
    """
    found = await describe_group(client, group)
    if found is not None and found.members:
        count = len(found.members)
        members = "1 member" if count == 1 else f"{count} members"
        raise IllegalArgumentError(f"group {group!r} has {members}; stop its consumers, then reset it")
