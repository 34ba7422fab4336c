"""The one error tree: every failure says what happened, whether trying again helps, and what to do.

::

    KafkaError
    ├── KafkaConfigurationError, IllegalStateError, IllegalArgumentError, SerializationError   (the caller's)
    ├── ProtocolError ── ForeignBytesError                                    (bytes nobody should have sent)
    ├── UnsupportedCodecError                                                 (likewise)
    ├── AuthenticationError ── SslAuthenticationError, SaslError, WrongListenerError
    │                                                             (no trust; codes 33, 34 and 58, too)
    ├── AuthorizationError                     (no right to do it; a base of its code's class)
    ├── RetriableError
    │   ├── KafkaTimeoutError ── BufferExhaustedError, NoBrokersAvailable
    │   ├── KafkaConnectionError
    │   └── InvalidMetadataError                                 (retriable, and the metadata is out of date)
    ├── WouldBlock, BulkSendError, PurgedError
    ├── TransactionFailedError, TransactionAbortedError, FatalTransactionError
    └── BrokerResponseError ── one class per code                                (see ``broker_errors.py``)

Three class attributes sort every error: ``retriable`` (the same call may succeed later), ``abortable``
(inside a transaction: abort, then go on), ``fatal`` (this producer is finished; make a new one). ``remedy``
is what the caller can do. ``str(error)`` is the message, what caused it, and the remedy; nothing is said
twice.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, ClassVar, Protocol


class KafkaError(Exception):
    """Base of all errors of splashdam."""

    retriable: ClassVar[bool] = False
    abortable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False
    """Whether what the client knew of the cluster is out of date; kafka-python's name."""
    remedy: str = ""
    """What the caller can do about it; empty where each message says that itself."""

    @property
    def causes(self) -> tuple[BaseException, ...]:
        """What led to it, nearest first: the chain of ``__cause__``."""
        chain: list[BaseException] = []
        cause = self.__cause__
        while cause is not None and cause not in chain:
            chain.append(cause)
            cause = cause.__cause__
        return tuple(chain)

    def __str__(self) -> str:
        text = message_of(self)
        # Not those of others, which may hold secrets; where they may be shown, the message has them.
        causes = [cause for cause in self.causes if isinstance(cause, KafkaError)]
        for cause in causes:
            if message_of(cause) not in text:
                text = f"{text.rstrip('.')}; cause: {message_of(cause)}"
        remedy = self.remedy or next(filter(None, (cause.remedy for cause in causes)), "")
        if not remedy or remedy in text or _WHAT_TO_DO in text:
            return text
        text = text if text.endswith(("?", "!")) else f"{text.rstrip('.')}."
        return f"{text} {_WHAT_TO_DO} {remedy}."


_WHAT_TO_DO = "What to do:"


def message_of(error: KafkaError) -> str:
    """What an error says by itself, without causes and remedy: for texts that go on after it."""
    return super(KafkaError, error).__str__() or type(error).__name__


class KafkaConfigurationError(KafkaError, ValueError):
    """An option is unknown, illegal or contradicts another one."""


class IllegalStateError(KafkaError):
    """The call is not legal now, for example ``send`` after ``close``."""


class IllegalArgumentError(KafkaError, ValueError):
    """An argument is outside what the call accepts."""


class SerializationError(KafkaError):
    """A serializer returned something that is not bytes."""

    remedy = "let the serializer return bytes, bytearray, memoryview or None"


class ProtocolError(KafkaError):
    """Bytes that are not a legal Kafka message; the text names message, field and position."""

    remedy = "see that the address is that of a Kafka broker, with the security_protocol of its listener"


class ForeignBytesError(ProtocolError):
    """Bytes of another protocol than Kafka's, such as TLS or HTTP.

    Attributes:
        speaks: what the other side does, as the rest of a sentence about it.
        advice: what to do if that is a listener.
        is_tls: whether they are a record of TLS, which only a listener with TLS sends.
    """

    is_tls = False
    speaks = "does not speak Kafka's protocol"
    advice = "check the address"


class UnsupportedCodecError(KafkaError):
    """A batch names a codec that is unknown or whose library is not installed."""

    remedy = "install the codec's library (pip install splashdam[compression]), or choose another codec"


class AuthenticationError(KafkaError):
    """Client and broker do not trust each other: trying again with the same settings does not help.

    Semantics are those of Java's ``AuthenticationException``: what waits for the broker fails at once.
    """

    remedy = "check security_protocol and the credentials against the broker's listener"


class SslAuthenticationError(AuthenticationError):
    """The TLS handshake failed; the text names host, cause and remedy."""

    remedy = ""


class WrongListenerError(AuthenticationError):
    """What listens at the address speaks something else than the settings say: TLS, SASL, or neither.

    The text says which. It holds for that address: while another one may still turn out to be right, or is
    away, that is waited for.
    """

    remedy = ""


class SaslError(AuthenticationError):
    """The SASL exchange cannot go on: the broker is not who it should be, or there is no token to show."""


class RetriableError(KafkaError):
    """Failures that may pass when tried again."""

    retriable = True
    remedy = "try again: it may pass; if it lasts, look into the brokers' logs"


class InvalidMetadataError(RetriableError):
    """Retriable, and what the client knew of the cluster is out of date."""

    invalid_metadata = True


class AuthorizationError(KafkaError):
    """The principal has no right to do this: base of the classes of codes 29, 30, 31, 53 and 65."""

    remedy = "grant the principal the right it lacks"


class KafkaTimeoutError(RetriableError, TimeoutError):
    """Something did not happen in its time; the text says what and what was seen last."""

    remedy = "see that the brokers can be reached and keep up, or allow more time"


class NoBrokersAvailable(KafkaTimeoutError):
    """No broker of ``bootstrap_servers`` has answered within ``bootstrap_timeout_ms``; the text says why."""

    remedy = "check bootstrap_servers and security_protocol, or allow more time"


class BufferExhaustedError(KafkaTimeoutError):
    """``buffer_memory`` stayed full for ``max_block_ms``: records are made faster than they are delivered."""

    remedy = "send slower, raise buffer_memory, or find out why the broker does not take records"


class KafkaConnectionError(RetriableError):
    """A connection could not be made or was lost; the text names the address and the cause."""

    remedy = "check bootstrap_servers and the brokers' advertised.listeners, and that the broker runs"


class CannotConnectError(KafkaConnectionError):
    """There was no connection at all, since nobody listens there, or the name is none; the text says why."""


class CannotListenError(KafkaConnectionError):
    """A broker cannot listen at its address; the text says why."""

    remedy = "choose another host or port (0 takes a free port), or stop the program that has it"


class TransactionFailedError(KafkaError):
    """Something in the open transaction failed, ``__cause__`` says what: it can only be aborted now."""

    abortable = True
    remedy = "call abort_transaction(), then begin again"


class TransactionAbortedError(KafkaError):
    """The transaction was aborted before the record was sent: it is not in the log."""

    remedy = "send it again in the next transaction, if it is still wanted"


class FatalTransactionError(KafkaError):
    """The cluster's answer, which is ``__cause__``, leaves this producer without a way on."""

    fatal = True
    remedy = "close this producer and make a new one; what was not committed is aborted by the cluster"


class PurgedError(KafkaError):
    """``purge()`` has dropped the record; the text says whether it may have been written all the same."""

    abortable = True
    remedy = "send it again if it is wanted after all"


class WouldBlock(KafkaError):
    """``send_nowait`` would have to wait; ``what`` is ``"memory"`` or ``"metadata"``."""

    remedy = "call it again later, or call what waits"

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, message_of(self))


class _Counts(Protocol):
    """What a ``BulkReport`` has to say at least."""

    @property
    def count(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def pending(self) -> int: ...


class _Delivery(Protocol):
    """A ``BulkDelivery``, as far as an error has to know it: this room knows none above it."""

    def get(self, timeout: float | None = None) -> _Counts: ...
    def report(self) -> _Counts: ...
    def done(self) -> bool: ...
    def __await__(self) -> Generator[object, None, _Counts]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[object]: ...


class BulkSendError(KafkaError):
    """``send_many`` or ``send_arrow`` has ended before its last record.

    ``__cause__`` is what ``send`` would have raised for the record at fault. The records before it are queued
    and on their way; that one and those behind it are not.

    Attributes:
        index: number of the record at fault, from 0; so many are queued.
        delivery: the ``BulkDelivery`` of those; None in a copy that was pickled.
    """

    def __init__(self, message: str, index: int, delivery: _Delivery | None) -> None:
        super().__init__(message)
        self.index = index
        self.delivery = delivery

    @property
    def retriable(self) -> bool:  # type: ignore[override]  # of all other errors the class knows
        """Whether sending the rest later may help: as of the cause."""
        return isinstance(self.__cause__, KafkaError) and self.__cause__.retriable

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (message_of(self), self.index, None)  # another process has not sent these records
