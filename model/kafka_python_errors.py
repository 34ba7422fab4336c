"""Errors that programs for kafka-python import and that nothing here raises, so that their ``except`` clauses
go on working; and kafka-python's names, of 2.x and 3.x, for errors that have another name here.

Each class stands where kafka-python's does: who catches ``RetriableError`` catches the same.
"""

from __future__ import annotations

from typing import Any, Final

from splashdam.model.broker_errors import error_class
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import (
    AuthenticationError,
    BrokerResponseError,
    InvalidMetadataError,
    KafkaError,
    ProtocolError,
    RetriableError,
)

_NEVER_RAISED: Final[dict[str, tuple[type[KafkaError], ...]]] = {
    "AsyncProducerQueueFull": (KafkaError,),
    "Cancelled": (RetriableError,),
    "CommitFailedError": (KafkaError,),
    "CorrelationIdError": (RetriableError, ProtocolError),
    "FailedPayloadsError": (KafkaError,),
    "InvalidReceiveError": (ProtocolError,),
    "KafkaUnavailableError": (KafkaError,),
    "LogTruncationError": (KafkaError,),
    "MetadataEmptyBrokerList": (RetriableError,),
    "NoOffsetForPartitionError": (KafkaError,),
    "NodeNotReadyError": (RetriableError,),
    "QuotaViolationError": (KafkaError,),
    "StaleMetadata": (InvalidMetadataError,),
    "TooManyInFlightRequests": (RetriableError,),
    "UnknownBrokerIdError": (KafkaError,),
    "UnrecognizedBrokerVersion": (KafkaError,),
}

_CODES: Final[dict[str, int]] = {
    "AuthenticationMethodNotSupported": 33,
    "CorruptRecordError": 2,
    "CorruptRecordException": 2,
    "GroupCoordinatorNotAvailableError": 15,
    "GroupLoadInProgressError": 14,
    "IncompatibleBrokerVersion": 35,
    "InvalidConfigurationError": 40,
    "InvalidFetchRequestError": 4,
    "InvalidReplicationAssignmentError": 39,
    "MessageSizeTooLargeError": 10,
    "NotCoordinatorForGroupError": 16,
    "NotLeaderForPartitionError": 6,
    "StaleLeaderEpochCodeError": 11,
    "UnknownError": -1,
}


class NoError(BrokerResponseError):
    """What ``for_code`` answers for 0; nothing raises it."""

    code = ErrorCode.NONE
    remedy = "go on: it is none"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message,)


def _never_raised(name: str, bases: tuple[type[KafkaError], ...]) -> type[KafkaError]:
    text = "kafka-python's; nothing here raises it."
    remedy = "look at who raised it: splashdam does not"
    return type(name, bases, {"__doc__": text, "remedy": remedy, "__module__": __name__})


NEVER_RAISED: Final = {name: _never_raised(name, bases) for name, bases in _NEVER_RAISED.items()}
OTHER_NAMES: Final[dict[str, type[KafkaError]]] = {
    **{name: error_class(code) for name, code in _CODES.items()},
    "AuthenticationFailedError": AuthenticationError,
    "KafkaProtocolError": ProtocolError,
}
globals().update(NEVER_RAISED)  # where pickle looks for them
