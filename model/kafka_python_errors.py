"""What programs for kafka-python import, so that their ``except`` clauses go on working.

First kafka-python's names, of 2.x and 3.x, for errors that have another name here; then errors that nothing
here raises. Each class stands where kafka-python's does: who catches ``RetriableError`` catches the same.
"""

from __future__ import annotations

from typing import Any

from splashdam.model.broker_errors import (
    BrokerResponseError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorruptMessageError,
    ErrorCode,
    InvalidConfigError,
    InvalidFetchSizeError,
    InvalidReplicaAssignmentError,
    MessageTooLargeError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    StaleControllerEpochError,
    UnknownServerError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from splashdam.model.errors import (
    AuthenticationError,
    InvalidMetadataError,
    KafkaError,
    ProtocolError,
    RetriableError,
)

AuthenticationFailedError = AuthenticationError
AuthenticationMethodNotSupported = UnsupportedSaslMechanismError
CorruptRecordError = CorruptMessageError
CorruptRecordException = CorruptMessageError
GroupCoordinatorNotAvailableError = CoordinatorNotAvailableError
GroupLoadInProgressError = CoordinatorLoadInProgressError
IncompatibleBrokerVersion = UnsupportedVersionError
InvalidConfigurationError = InvalidConfigError
InvalidFetchRequestError = InvalidFetchSizeError
InvalidReplicationAssignmentError = InvalidReplicaAssignmentError
KafkaProtocolError = ProtocolError
MessageSizeTooLargeError = MessageTooLargeError
NotCoordinatorForGroupError = NotCoordinatorError
NotLeaderForPartitionError = NotLeaderOrFollowerError
StaleLeaderEpochCodeError = StaleControllerEpochError
UnknownError = UnknownServerError


class NoError(BrokerResponseError):
    """What ``for_code`` answers for 0; nothing raises it."""

    code = ErrorCode.NONE
    remedy = "go on: it is none"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message,)


class _NeverRaised(KafkaError):
    """kafka-python's; nothing here raises it."""

    remedy = "look at who raised it: splashdam does not"


class AsyncProducerQueueFull(_NeverRaised):
    """kafka-python's; nothing here raises it."""


class Cancelled(_NeverRaised, RetriableError):
    """kafka-python's; nothing here raises it."""


class CommitFailedError(_NeverRaised):
    """kafka-python's; nothing here raises it."""


class CorrelationIdError(_NeverRaised, RetriableError, ProtocolError):
    """kafka-python's; nothing here raises it."""


class FailedPayloadsError(_NeverRaised):
    """kafka-python's; nothing here raises it."""


class InvalidReceiveError(_NeverRaised, ProtocolError):
    """kafka-python's; nothing here raises it."""


class KafkaUnavailableError(_NeverRaised):
    """kafka-python's; nothing here raises it."""


class LogTruncationError(_NeverRaised):
    """kafka-python's; nothing here raises it."""


class MetadataEmptyBrokerList(_NeverRaised, RetriableError):
    """kafka-python's; nothing here raises it."""


class NoOffsetForPartitionError(_NeverRaised):
    """kafka-python's; nothing here raises it."""


class NodeNotReadyError(_NeverRaised, RetriableError):
    """kafka-python's; nothing here raises it."""


class QuotaViolationError(_NeverRaised):
    """kafka-python's; nothing here raises it."""


class StaleMetadata(_NeverRaised, InvalidMetadataError):
    """kafka-python's; nothing here raises it."""


class TooManyInFlightRequests(_NeverRaised, RetriableError):
    """kafka-python's; nothing here raises it."""


class UnknownBrokerIdError(_NeverRaised):
    """kafka-python's; nothing here raises it."""


class UnrecognizedBrokerVersion(_NeverRaised):
    """kafka-python's; nothing here raises it."""
