"""The error tree: every error says what happened, whether a retry helps, and what to do.

::

    KafkaError
    ├── KafkaConfigurationError ── WrongSettingError                                       (the caller's)
    ├── IllegalStateError, IllegalArgumentError, SerializationError                         (likewise)
    ├── ProtocolError ── ForeignBytesError                                    (bytes nobody should have sent)
    ├── UnsupportedCodecError                                                 (likewise)
    ├── AuthenticationError ── SslAuthenticationError, SaslError, WrongListenerError
    │                                                             (no trust; codes 33, 34 and 58, too)
    ├── AuthorizationError                     (no right to do it; a base of its code's class)
    ├── ProducerFenced           (the producer's epoch is over; a base of the classes of codes 47 and 90)
    ├── RetriableError
    │   ├── KafkaTimeoutError ── BufferExhaustedError, NoBrokersAvailable
    │   ├── KafkaConnectionError ── NoBrokersAvailable, CannotConnectError
    │   └── InvalidMetadataError                                 (retriable, and the metadata is out of date)
    ├── WouldBlock, BulkSendError, PurgedError
    ├── TransactionFailedError, TransactionAbortedError, FatalTransactionError
    └── BrokerResponseError ── one class per code                                (see ``broker_errors.py``)

Three class attributes sort every error: ``retriable`` (the same call may succeed later), ``abortable``
(inside a transaction: abort, then go on), ``fatal`` (close this producer and make a new one). ``remedy``
says what the caller can do. ``str(error)`` is the message, its causes and the remedy, each once; ``told()``
says the same with other names for settings, such as a command's flags.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, ClassVar, Protocol, TypeVar

_T = TypeVar("_T")


class SettingText(str):
    """A text that names settings: the message of an error, or its remedy.

    As a string it has the names that programs write. A command line, which has flags instead, takes the text
    with its own names from `named`, and need not look for names in a message.

    ``SettingText("{0}={given!r}: must be JSON", "startingOffsets", given="x")``

    Args:
        template: for ``str.format``, with settings by number and other parts by name.
        settings: names, as programs write them.
        parts: whatever else the text has. Such texts, and errors, take the reader's names as well: so pass an
            error itself, and not its text.
    """

    _template: str
    _settings: tuple[str, ...]
    _parts: dict[str, object]

    def __new__(cls, template: str, *settings: str, **parts: object) -> SettingText:
        self = super().__new__(cls, template.format(*settings, **parts))
        self._template, self._settings, self._parts = template, settings, parts
        return self

    def named(self, name_of: Callable[[str], str]) -> str:
        """Return the text with the names that ``name_of`` gives to the settings."""
        parts = {name: told(part, name_of) for name, part in self._parts.items()}
        return self._template.format(*map(name_of, self._settings), **parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)  # the parts may be anything, and another process only reads the text


def told(what: _T, name_of: Callable[[str], str]) -> _T | str:
    """Return a `SettingText` or a `KafkaError` as text with the reader's names; anything else as it is."""
    if isinstance(what, KafkaError):
        return what.told(name_of)
    return what.named(name_of) if isinstance(what, SettingText) else what


class KafkaError(Exception):
    """Base of all errors of splashdam."""

    retriable: ClassVar[bool] = False
    abortable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False
    """Whether the client's metadata is out of date; kafka-python's name."""
    remedy: str = ""
    """What the caller can do about it; empty where the messages of the class say it themselves."""

    @property
    def causes(self) -> tuple[BaseException, ...]:
        """The chain of ``__cause__``, nearest first."""
        chain: list[BaseException] = []
        cause = self.__cause__
        while cause is not None and cause not in chain:
            chain.append(cause)
            cause = cause.__cause__
        return tuple(chain)

    def __str__(self) -> str:
        return self.told()

    def told(self, name_of: Callable[[str], str] = str) -> str:
        """Return the message, its causes and the remedy, each once.

        Args:
            name_of: returns what the reader calls a setting; by default its name in programs.
        """
        text = told(message_of(self), name_of)
        # Only our own errors: the text of a foreign error may hold a secret, such as a token.
        causes = [cause for cause in self.causes if isinstance(cause, KafkaError)]
        for cause in causes:
            if (message := told(message_of(cause), name_of)) not in text:
                text = f"{text.rstrip('.')}; cause: {message}"
        remedy = self.remedy or next(filter(None, (cause.remedy for cause in causes)), "")
        remedy = told(remedy, name_of)
        if not remedy or remedy in text or _WHAT_TO_DO in text:
            return text
        text = text if text.endswith(("?", "!")) else f"{text.rstrip('.')}."
        return f"{text} {_WHAT_TO_DO} {remedy}."


_WHAT_TO_DO = "What to do:"


def message_of(error: KafkaError) -> str:
    """Return the message alone, without causes and remedy, for texts that continue after it.

    It is a `SettingText` if the message names settings.
    """
    first = error.args[0] if len(error.args) == 1 else None
    return (
        first
        if isinstance(first, SettingText)
        else super(KafkaError, error).__str__() or type(error).__name__
    )


class KafkaConfigurationError(KafkaError, ValueError):
    """An option is unknown, illegal or contradicts another one."""


class WrongSettingError(KafkaConfigurationError):
    """A setting has a value that is refused: ``bootstrap_servers='h:x': 'h:x' has port 'x', …``.

    Args:
        setting: its name, as programs write it.
        problem: what is wrong, for messages that name the setting themselves.
        given: the value, as it is to be shown.

    Attributes:
        problem: as given.
    """

    def __init__(self, setting: str, problem: str, *, given: str) -> None:
        super().__init__(SettingText("{0}={given}: {problem}", setting, given=given, problem=problem))
        self.problem = problem
        self._made_of = setting, problem, given

    def __reduce__(self) -> tuple[Any, ...]:
        return _wrong_setting, self._made_of


def _wrong_setting(setting: str, problem: str, given: str) -> WrongSettingError:
    return WrongSettingError(setting, problem, given=given)


class IllegalStateError(KafkaError):
    """The call is not allowed in the present state, for example ``send`` after ``close``."""


class IllegalArgumentError(KafkaError, ValueError):
    """An argument is outside what the call accepts."""


class SerializationError(KafkaError):
    """A serializer returned something that is not bytes."""

    remedy = "let the serializer return bytes, bytearray, memoryview or None"


class ProtocolError(KafkaError):
    """The bytes are not a valid Kafka message; the text names message, field and position."""

    remedy: str = SettingText(
        "see that the address is that of a Kafka broker, with the {0} of its listener", "security_protocol"
    )


class ForeignBytesError(ProtocolError):
    """The bytes belong to another protocol, such as TLS or HTTP.

    Attributes:
        speaks: what the peer does; completes a sentence such as "the listener at host:port …".
        advice: what to do if the peer is a listener.
        is_tls: whether the bytes are a TLS record, which only a TLS listener sends.
    """

    is_tls = False
    speaks = "does not speak Kafka's protocol"
    advice = "check the address"


class UnsupportedCodecError(KafkaError):
    """A batch uses a codec that is unknown, or whose library is not installed."""

    remedy = "install the codec's library (pip install 'splashdam[compression]'), or choose another codec"


class AuthenticationError(KafkaError):
    """Authentication failed; a retry with the same settings does not help.

    As with Java's ``AuthenticationException``, everything that waits for the broker fails at once.
    """

    remedy: str = SettingText(
        "check {0} and the credentials against the broker's listener", "security_protocol"
    )


class SslAuthenticationError(AuthenticationError):
    """The TLS handshake failed; the text names host, cause and remedy."""

    remedy = ""


class WrongListenerError(AuthenticationError):
    """The listener uses another security protocol than ``security_protocol`` says: TLS, SASL, or neither.

    The text says which. The error concerns one address: as long as another bootstrap address may still work,
    the client keeps trying.
    """

    remedy = ""


class SaslError(AuthenticationError):
    """The client ended the SASL exchange: the broker did not prove its identity, or there is no token."""


class RetriableError(KafkaError):
    """A temporary failure: the same call may succeed later."""

    retriable = True
    remedy = "retry; if the error persists, check the brokers' logs"


class InvalidMetadataError(RetriableError):
    """Retriable, after a refresh of the client's metadata, which is out of date."""

    invalid_metadata = True


class AuthorizationError(KafkaError):
    """The principal lacks the permission: base of the classes of codes 29, 30, 31, 53 and 65."""

    remedy = "grant the principal the missing permission"


class ProducerFenced(KafkaError):
    """The producer's epoch is over: base of ``InvalidProducerEpochError`` and ``ProducerFencedError``.

    A newer producer has its ``transactional_id``, or a transaction took longer than its time-out. Brokers
    answer either with one code or with the other, by request and version. The name is aiokafka's.
    """

    remedy = "close this producer; make a new one if no other should have the transactional_id"


class KafkaTimeoutError(RetriableError, TimeoutError):
    """A timeout expired; the text says what was waited for and what was seen last."""

    remedy = "see that the brokers can be reached and keep up, or allow more time"


class BufferExhaustedError(KafkaTimeoutError):
    """``buffer_memory`` stayed full for ``max_block_ms``: records are sent faster than they are delivered."""

    remedy = "send slower, raise buffer_memory, or find out why the brokers do not accept records"


class KafkaConnectionError(RetriableError):
    """A connection could not be opened or was lost; the text names the address and the cause."""

    remedy: str = SettingText(
        "check {0} and the brokers' advertised.listeners, and that the broker runs", "bootstrap_servers"
    )


class NoBrokersAvailable(KafkaTimeoutError, KafkaConnectionError):
    """No broker of ``bootstrap_servers`` answered within ``bootstrap_timeout_ms``; the text says why."""

    remedy: str = SettingText(
        "check {0} and {1}, or allow more time", "bootstrap_servers", "security_protocol"
    )


class CannotConnectError(KafkaConnectionError):
    """The connection was refused, or the host name cannot be resolved; the text says why."""


class CannotListenError(KafkaConnectionError):
    """A broker cannot listen on its address; the text says why."""

    remedy = "choose another host or port (0 takes a free port), or stop the program that uses it"


class TransactionFailedError(KafkaError):
    """The open transaction failed, ``__cause__`` says why: it can only be aborted now."""

    abortable = True
    remedy = "call abort_transaction(), then begin a new transaction"


class TransactionAbortedError(KafkaError):
    """The transaction was aborted before the record was sent: it is not in the log."""

    remedy = "send the record again in the next transaction, if it is still needed"


class FatalTransactionError(KafkaError):
    """After the cluster's answer, which is ``__cause__``, this producer cannot continue."""

    fatal = True
    remedy = "close this producer and make a new one; the cluster aborts what was not committed"


class PurgedError(KafkaError):
    """``purge()`` dropped the record; the text says whether it may have been written nevertheless."""

    abortable = True
    remedy = "send the record again if it is still needed"


class WouldBlock(KafkaError):
    """``send_nowait`` would have to wait; ``what`` is ``"memory"`` or ``"metadata"``."""

    remedy = "call it again later, or call send(), which waits"

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, message_of(self))


class _Counts(Protocol):
    """The part of a ``BulkReport`` that errors use."""

    @property
    def count(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def pending(self) -> int: ...


class _Delivery(Protocol):
    """The part of a ``BulkDelivery`` that errors use; this room must not import ``client``."""

    def get(self, timeout: float | None = None) -> _Counts: ...
    def report(self) -> _Counts: ...
    def done(self) -> bool: ...
    def __await__(self) -> Generator[object, None, _Counts]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[object]: ...


class BulkSendError(KafkaError):
    """``send_many`` or ``send_arrow`` stopped before its last record.

    ``__cause__`` is what ``send`` would have raised for the record at fault. The records before it are queued
    and will be sent; the record at fault and those after it are not.

    Attributes:
        index: number of the record at fault, from 0; as many records are queued.
        delivery: the ``BulkDelivery`` of the queued records; None in an unpickled copy.
    """

    def __init__(self, message: str, index: int, delivery: _Delivery | None) -> None:
        super().__init__(message)
        self.index = index
        self.delivery = delivery

    @property
    def retriable(self) -> bool:  # type: ignore[override]  # a class attribute in all other errors
        """Whether sending the rest later may succeed: that of the cause."""
        return isinstance(self.__cause__, KafkaError) and self.__cause__.retriable

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (message_of(self), self.index, None)  # another process did not send these records
