"""Holds one connection to its client's quotas, request by request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from splashdam.embedded_broker.answering.answers import Dispatched, encode_answer
from splashdam.embedded_broker.quotas.client_quotas import Asking, ClientQuotas
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

    from splashdam.embedded_broker.answering.answers import Requester
    from splashdam.storage.files.log_file import FileSlice

_UNMETERED = frozenset(
    {SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY, WriteTxnMarkersRequest.API_KEY}
)
_FIRST_BROKERS_ADD = 4


class Charged(NamedTuple):
    """An answer as it is sent, and how long nothing more is read from the client."""

    parts: list[Part]
    mute_ms: int


class MeteredClient(Protocol):
    """Who is at the other end of a connection, as far as is known."""

    requester: Requester


class FetchedElsewhere(Protocol):
    """What takes back an answer to a fetch that is not sent (``FetchSessions`` does)."""

    def take_back(self, session_id: int, epoch: int, answered: Iterable[Any]) -> None:
        """As ``FetchSessions.take_back``."""
        ...


class Meter:
    """One connection's.

    Args:
        quotas: of the broker.
        client: at the other end.
        sessions: what the broker has told those who fetch.
    """

    def __init__(self, quotas: ClientQuotas, client: MeteredClient, sessions: FetchedElsewhere) -> None:
        self._quotas = quotas
        self._sessions = sessions
        self._client = client
        self._owed_ms = 0

    def limit(self, request: Request[Any], client_id: str | None) -> None:
        """Lets a fetch ask for no more than can ever be within its quota."""
        if isinstance(request, FetchRequest) and not _is_brokers(request, 0):
            most = self._quotas.most_fetched(self._asking(client_id))
            if most is not None:
                request.max_bytes = min(request.max_bytes, most)

    def record_mutations(self, count: int, client_id: str | None, *, is_strict: bool) -> None:
        """Counts partitions that are made or removed.

        Raises:
            BrokerResponseError: THROTTLING_QUOTA_EXCEEDED (89).
        """
        asking = self._asking(client_id)
        try:
            self._quotas.mutated(asking, count, is_strict=is_strict)
        except BrokerResponseError:
            self._owed_ms = self._quotas.owed_ms(asking)
            raise
        if not is_strict:
            self._owed_ms = self._quotas.owed_ms(asking)

    def charge(self, to: Dispatched, answer: Response | None) -> Charged:
        """Records a request that was handled, and encodes its answer.

        Args:
            to: the request.
            answer: None where none is sent.
        """
        parts = [] if answer is None else _encoded(answer, to)
        request, asking = to.request, self._asking(to.client_id)
        mutated_ms, self._owed_ms = self._owed_ms, 0
        if request is None or request.API_KEY in _UNMETERED or _is_brokers(request, to.version):
            return Charged(parts, 0)
        mute_ms = max(mutated_ms, self._quotas.worked(asking, to.spent_ms) if answer is not None else 0)
        if isinstance(request, ProduceRequest):
            mute_ms = max(mute_ms, self._quotas.produced(asking, to.size_bytes))
        elif isinstance(answer, FetchResponse):
            size_bytes = sum(records_size(part) for part in parts)
            mute_ms = max(mute_ms, self._quotas.fetched(asking, size_bytes))
            if mute_ms:
                self._quotas.take_back_fetched(asking, size_bytes)
                answer = self._withheld(cast("FetchRequest", request), answer, parts)
        if answer is None or not mute_ms:
            return Charged(parts, mute_ms)
        answer.throttle_time_ms = mute_ms  # type: ignore[attr-defined]  # all but SASL's have it
        return Charged(_encoded(answer, to), mute_ms)

    def _asking(self, client_id: str | None) -> Asking:
        return Asking(self._client.requester.principal.partition(":")[2], client_id or "")

    def _withheld(self, request: FetchRequest, answer: FetchResponse, parts: list[Part]) -> FetchResponse:
        """The empty answer in the place of one that comes too early."""
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
    """Whether a broker asks, not a client."""
    if isinstance(request, FetchRequest):
        return max(request.replica_id, request.replica_state.replica_id) >= 0
    if isinstance(request, OffsetForLeaderEpochRequest):
        return request.replica_id >= 0
    return isinstance(request, AddPartitionsToTxnRequest) and version >= _FIRST_BROKERS_ADD


def _encoded(answer: Response, to: Dispatched) -> list[Part]:
    return encode_answer(answer, version=to.version, correlation_id=to.correlation_id)
