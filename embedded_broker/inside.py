"""What only the process of a broker knows: its clients, and the errors that it answers."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol

import trio

from splashdam.embedded_broker.execution.answers import ANYBODY, Address, Requester
from splashdam.embedded_broker.groups.offset_records import OffsetKey, parse_key, parse_value
from splashdam.embedded_broker.transactions.records import decode_key, decode_value
from splashdam.model.broker_errors import BrokerResponseError, CorruptMessageError, ErrorCode, error_for
from splashdam.model.views.log import Logs
from splashdam.net.clock import Clock
from splashdam.net.memory import MemoryStream, memory_stream_pair
from splashdam.record.record import Record
from splashdam.storage.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from splashdam.wire.answered_errors import errors_in
from splashdam.wire.message import Request, Response

if TYPE_CHECKING:
    from splashdam.embedded_broker.groups.group import Group
    from splashdam.embedded_broker.serving.registry import Client
    from splashdam.model.views.cluster import ClientView, RebalanceView

_ORDINARY = frozenset({ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS})
"""Every consumer is answered so now and then, and goes on."""

_FAILED_KEPT = 64
"""Clients that were answered errors are remembered, since many leave just because of them; this many."""

CONSOLE = "splashdam-console"
"""Client id of the console's own connections."""


class ServesClients(Protocol):
    """A broker's server."""

    def clients(self) -> list[Client]:
        """Return the clients of all connections."""
        ...

    def adopt(self, stream: trio.abc.Stream, *, requester: Requester, address: Address) -> None:
        """Serve a stream, in a task of the server's own."""
        ...


class FindsGroups(Protocol):
    """A broker's coordinator of groups."""

    def find(self, group_id: str) -> Group | None:
        """Return a group; None if it does not exist."""
        ...


class BrokerInside:
    """Looks into a broker; also a `Watch` that notes the errors of answers. Belongs to the broker's loop.

    Args:
        server: serves the clients.
        groups: of the broker.
        clock: likewise.
        requester: who looks.
        logs: of the broker; None where ACLs decide who reads what.
    """

    def __init__(
        self,
        server: ServesClients,
        groups: FindsGroups,
        clock: Clock,
        requester: Requester = ANYBODY,
        logs: Logs | None = None,
    ) -> None:
        self.logs = logs
        self._server = server
        self._groups = groups
        self._clock = clock
        self._requester = requester
        self._failed: OrderedDict[int, Client] = OrderedDict()  # the last one that failed at the end

    async def connect(self, host: str, port: int) -> MemoryStream:
        """Connect to the broker (a `Connect`); it answers as if it had been reached at this address."""
        await trio.lowlevel.checkpoint()
        ours, theirs = memory_stream_pair()
        self._server.adopt(theirs, requester=self._requester, address=Address(host, port))
        return ours

    def clients(self) -> list[ClientView]:
        """Return the connections of clients, the oldest first, without the console's own.

        The last of those that were answered errors and have left are among them.
        """
        connected = {each.number: each for each in self._server.clients() if each.client_id != CONSOLE}
        found = {number: self._view(each, is_connected=True) for number, each in connected.items()}
        for number, each in self._failed.items():
            if number not in connected:
                found[number] = self._view(each, is_connected=False)
        return [found[number] for number in sorted(found)]

    def requests(self) -> int:
        """Return how many requests have arrived from clients that are connected now, the console left out."""
        return sum(each.requests for each in self._server.clients() if each.client_id != CONSOLE)

    def last_rebalance(self, group_id: str) -> RebalanceView | None:
        """Return the last rebalance of a group that this broker coordinates."""
        try:
            group = self._groups.find(group_id)
        except BrokerResponseError:  # another broker coordinates it
            return None
        last = None if group is None or group.membership is None else group.membership.last_rebalance
        if last is None:
            return None
        from splashdam.model.views.cluster import RebalanceView

        return RebalanceView(timestamp_ms=last.timestamp_ms, generation=last.generation, reason=last.reason)

    def _view(self, client: Client, *, is_connected: bool) -> ClientView:
        from splashdam.model.views.cluster import ClientView

        return ClientView(
            number=client.number,
            client_id=client.client_id,
            software=client.software,
            address=client.name,
            principal=client.requester.principal,
            requests=client.requests,
            errors=client.errors,
            last_error=client.last_error,
            is_connected=is_connected,
        )

    def answered(self, client: Client, request: type[Request[Any]], answer: Response) -> None:
        """Note the first error in an answer."""
        found = ((code, where) for code, where in errors_in(answer) if code not in _ORDINARY)
        code, where = next(found, (0, ""))
        if code and client.client_id != CONSOLE:
            from splashdam.model.views.cluster import AnsweredError

            client.errors += 1
            self._failed[client.number] = client
            self._failed.move_to_end(client.number)
            if len(self._failed) > _FAILED_KEPT:
                self._failed.popitem(last=False)
            client.last_error = AnsweredError(
                code=ErrorCode(error_for(code).code).name,
                request=request.__name__.removesuffix("Request"),
                where=where,
                timestamp_ms=self._clock.wall_ms(),
            )


def decode_internal(topic: str, record: Record) -> dict[str, Any] | None:
    """Return what a record of an internal topic says; None for other topics, and kinds that are not known."""
    try:
        if topic == CONSUMER_OFFSETS:
            return _of_offsets(record)
        if topic == TRANSACTION_STATE:
            return _of_transactions(record)
    except CorruptMessageError:
        return None
    return None


def _of_offsets(record: Record) -> dict[str, Any] | None:
    key = parse_key(record.key or b"")
    if isinstance(key, OffsetKey):
        fields: dict[str, Any] = {
            "group": key.group_id,
            "topic": key.topic_partition.topic,
            "partition": key.topic_partition.partition,
        }
        if record.value is None:
            return {**fields, "offset": None}
        committed = parse_value(record.value)
        fields |= {"offset": committed.offset, "leaderEpoch": committed.leader_epoch}
        return {**fields, "metadata": committed.metadata, "commitTimestamp": committed.commit_timestamp_ms}
    if key is None:
        return None
    kind = _GROUP_RECORDS.get(key.version, f"record {key.version}")
    size = None if record.value is None else len(record.value)
    return {"group": key.group_id, "record": kind, "bytes": size}


_GROUP_RECORDS = {
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    16: "ConsumerGroupRegularExpression",
}
"""Kafka's names of the records about groups, by the versions of their keys."""


def _of_transactions(record: Record) -> dict[str, Any] | None:
    transactional_id = decode_key(record.key or b"")
    if transactional_id is None:
        return None
    if record.value is None:
        return {"transactionalId": transactional_id, "state": None}
    found = decode_value(transactional_id, record.value)
    return {
        "transactionalId": transactional_id,
        "state": found.state.name,
        "producerId": found.producer_id,
        "producerEpoch": found.producer_epoch,
        "partitions": sorted(map(str, found.partitions)),
        "lastUpdate": found.last_update_ms,
    }
