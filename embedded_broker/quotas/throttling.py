"""Applies the client's quotas to one connection, request by request: throttle times and muting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from splashdam.embedded_broker.execution.answers import Dispatched
from splashdam.embedded_broker.quotas.client_quotas import ClientQuotas, QuotaClient
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.wire.fields import Part
from splashdam.wire.message import Request, Response
from splashdam.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from splashdam.wire.messages.fetch import FetchRequest, FetchResponse
from splashdam.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from splashdam.wire.messages.produce import ProduceRequest
from splashdam.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest
from splashdam.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from splashdam.wire.primitives import records_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from splashdam.embedded_broker.execution.answers import Requester
    from splashdam.storage.files.log_file import FileSlice

_UNMETERED = frozenset(
    {SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY, WriteTxnMarkersRequest.API_KEY}
)
_FIRST_BROKERS_ADD = 4


class Charged(NamedTuple):
    """What quotas make of a request.

    Attributes:
        answer: sent instead of the encoded one, because it tells the throttle time; None: nothing changes.
        mute_ms: for this long nothing more is read from the connection.
    """

    answer: Response | None
    mute_ms: int


class MeteredClient(Protocol):
    """The client of a connection."""

    requester: Requester


class FetchedElsewhere(Protocol):
    """Undoes the effect of a Fetch answer that is not sent (``FetchSessions`` does)."""

    def take_back(self, session_id: int, epoch: int, answered: Iterable[Any]) -> None: ...


class Meter:
    """Applies quotas to one connection.

    Args:
        quotas: of the broker.
        client: of the connection.
        sessions: fetch sessions of the broker.
    """

    def __init__(self, quotas: ClientQuotas, client: MeteredClient, sessions: FetchedElsewhere) -> None:
        self._quotas = quotas
        self._sessions = sessions
        self._client = client
        self._owed_ms = 0

    def limit(self, request: Request[Any], client_id: str | None) -> None:
        """Limit the size of a Fetch to what can be within its quota."""
        if isinstance(request, FetchRequest) and not _is_brokers(request, 0):
            most = self._quotas.most_fetched(self._quota_client(client_id))
            if most is not None:
                request.max_bytes = min(request.max_bytes, most)

    def record_mutations(self, count: int, client_id: str | None, *, is_strict: bool) -> None:
        """Record created or deleted partitions.

        Raises:
            BrokerResponseError: THROTTLING_QUOTA_EXCEEDED (89).
        """
        client = self._quota_client(client_id)
        try:
            self._quotas.mutated(client, count, is_strict=is_strict)
        except BrokerResponseError:
            self._owed_ms = self._quotas.owed_ms(client)
            raise
        if not is_strict:
            self._owed_ms = self._quotas.owed_ms(client)

    def charge(self, to: Dispatched, answer: Response | None, parts: list[Part]) -> Charged:
        """Record a handled request.

        Args:
            to: the request.
            answer: None if none is sent.
            parts: the encoded answer; encoding a large one is no work for the loop, so the caller does it.
        """
        request, client = to.request, self._quota_client(to.client_id)
        mutated_ms, self._owed_ms = self._owed_ms, 0
        if request is None or request.API_KEY in _UNMETERED or _is_brokers(request, to.version):
            return Charged(None, 0)
        mute_ms = max(mutated_ms, self._quotas.worked(client, to.spent_ms) if answer is not None else 0)
        if isinstance(request, ProduceRequest):
            mute_ms = max(mute_ms, self._quotas.produced(client, to.size_bytes))
        elif isinstance(answer, FetchResponse):
            size_bytes = sum(records_size(part) for part in parts)
            mute_ms = max(mute_ms, self._quotas.fetched(client, size_bytes))
            if mute_ms:
                # As in Kafka: the bytes are not sent, so they do not count.
                self._quotas.take_back_fetched(client, size_bytes)
                answer = self._withheld(cast("FetchRequest", request), answer, parts)
        if answer is None or not mute_ms:
            return Charged(None, mute_ms)
        answer.throttle_time_ms = mute_ms  # type: ignore[attr-defined]  # all but SASL's have it
        return Charged(answer, mute_ms)

    def _quota_client(self, client_id: str | None) -> QuotaClient:
        return QuotaClient(self._client.requester.principal.partition(":")[2], client_id or "")

    def _withheld(self, request: FetchRequest, answer: FetchResponse, parts: list[Part]) -> FetchResponse:
        """Return the empty answer that is sent instead of one that exceeds the quota, as in Kafka."""
        for part in parts:
            if not isinstance(part, bytes | bytearray | memoryview):
                cast("FileSlice", part).close()
        answered = [
            key
            for topic in answer.responses
            for each in topic.partitions
            for key in ((topic.topic_id, each.partition_index), (topic.topic, each.partition_index))
        ]
        self._sessions.take_back(answer.session_id, request.session_epoch, answered)
        return FetchResponse(session_id=answer.session_id if request.session_epoch > 0 else 0)


def _is_brokers(request: Request[Any], version: int) -> bool:
    """Whether the request comes from a broker, which has no quotas."""
    if isinstance(request, FetchRequest):
        return max(request.replica_id, request.replica_state.replica_id) >= 0
    if isinstance(request, OffsetForLeaderEpochRequest):
        return request.replica_id >= 0
    return isinstance(request, AddPartitionsToTxnRequest) and version >= _FIRST_BROKERS_ADD
