"""kafka-python's names of errors, so that the ``except`` clauses of programs written for it keep working.

First the names of kafka-python 2.x and 3.x for errors that have another name here; then errors that splashdam
never raises. Their bases are those of kafka-python: ``except RetriableError`` catches the same errors.
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
    """What ``for_code`` returns for code 0; it is never raised."""

    code = ErrorCode.NONE
    remedy = "nothing: code 0 is no error"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message,)


class _NeverRaised(KafkaError):
    """Base of kafka-python's errors that splashdam never raises."""

    remedy = "find out which library raised it: splashdam does not"


class AsyncProducerQueueFull(_NeverRaised):
    """For compatibility with kafka-python; never raised."""


class Cancelled(_NeverRaised, RetriableError):
    """For compatibility with kafka-python; never raised."""


class CommitFailedError(_NeverRaised):
    """For compatibility with kafka-python; never raised."""


class CorrelationIdError(_NeverRaised, RetriableError, ProtocolError):
    """For compatibility with kafka-python; never raised."""


class FailedPayloadsError(_NeverRaised):
    """For compatibility with kafka-python; never raised."""


class InvalidReceiveError(_NeverRaised, ProtocolError):
    """For compatibility with kafka-python; never raised."""


class KafkaUnavailableError(_NeverRaised):
    """For compatibility with kafka-python; never raised."""


class LogTruncationError(_NeverRaised):
    """For compatibility with kafka-python; never raised."""


class MetadataEmptyBrokerList(_NeverRaised, RetriableError):
    """For compatibility with kafka-python; never raised."""


class NoOffsetForPartitionError(_NeverRaised):
    """For compatibility with kafka-python; never raised."""


class NodeNotReadyError(_NeverRaised, RetriableError):
    """For compatibility with kafka-python; never raised."""


class QuotaViolationError(_NeverRaised):
    """For compatibility with kafka-python; never raised."""


class StaleMetadata(_NeverRaised, InvalidMetadataError):
    """For compatibility with kafka-python; never raised."""


class TooManyInFlightRequests(_NeverRaised, RetriableError):
    """For compatibility with kafka-python; never raised."""


class UnknownBrokerIdError(_NeverRaised):
    """For compatibility with kafka-python; never raised."""


class UnrecognizedBrokerVersion(_NeverRaised):
    """For compatibility with kafka-python; never raised."""
