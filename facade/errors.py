"""All errors: the tree of ``model/errors.py``, and a class for each error code a producer or reader meets.

Each class has ``retriable``, ``abortable``, ``fatal`` and ``remedy``; a broker's also has its ``code``.
``for_code`` answers the class for any code. Every name of ``kafka.errors`` is here, too, those of 2.x
included: another name of the same class, or a class that nothing here raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from splashdam.model.broker_errors import (
    ClusterAuthorizationFailedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorruptMessageError,
    DuplicateSequenceNumberError,
    FencedLeaderEpochError,
    IllegalSaslStateError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidRequiredAcksError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTxnStateError,
    KafkaStorageError,
    LeaderNotAvailableError,
    MessageTooLargeError,
    NetworkExceptionError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    RecordListTooLargeError,
    ReplicaNotAvailableError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnknownLeaderEpochError,
    UnknownProducerIdError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    all_classes,
    error_class,
)
from splashdam.model.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerResponseError,
    BufferExhaustedError,
    BulkSendError,
    CannotConnectError,
    CannotListenError,
    FatalTransactionError,
    ForeignBytesError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidMetadataError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    ProtocolError,
    PurgedError,
    RetriableError,
    SaslError,
    SerializationError,
    SslAuthenticationError,
    TransactionAbortedError,
    TransactionFailedError,
    UnsupportedCodecError,
    WouldBlock,
    WrongListenerError,
)
from splashdam.model.kafka_python_errors import NEVER_RAISED, OTHER_NAMES, NoError

__all__ = [
    "AuthenticationError",
    "AuthorizationError",
    "BrokerResponseError",
    "BufferExhaustedError",
    "BulkSendError",
    "CannotConnectError",
    "CannotListenError",
    "ClusterAuthorizationFailedError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorruptMessageError",
    "DuplicateSequenceNumberError",
    "FatalTransactionError",
    "FencedLeaderEpochError",
    "ForeignBytesError",
    "IllegalArgumentError",
    "IllegalSaslStateError",
    "IllegalStateError",
    "InvalidMetadataError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidRequestError",
    "InvalidRequiredAcksError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTxnStateError",
    "KafkaConfigurationError",
    "KafkaConnectionError",
    "KafkaError",
    "KafkaStorageError",
    "KafkaTimeoutError",
    "LeaderNotAvailableError",
    "MessageTooLargeError",
    "NetworkExceptionError",
    "NoBrokersAvailable",
    "NoError",
    "NotCoordinatorError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderOrFollowerError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceNumberError",
    "ProducerFencedError",
    "ProtocolError",
    "PurgedError",
    "RecordListTooLargeError",
    "ReplicaNotAvailableError",
    "RequestTimedOutError",
    "RetriableError",
    "SaslAuthenticationFailedError",
    "SaslError",
    "SerializationError",
    "SslAuthenticationError",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionFailedError",
    "TransactionalIdAuthorizationFailedError",
    "UnknownLeaderEpochError",
    "UnknownProducerIdError",
    "UnknownServerError",
    "UnknownTopicIdError",
    "UnknownTopicOrPartitionError",
    "UnsupportedCodecError",
    "UnsupportedCompressionTypeError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
    "WouldBlock",
    "WrongListenerError",
    "for_code",
]


def for_code(code: int) -> type[BrokerResponseError]:
    """The class for a broker's error code: ``NoError`` for 0, ``UnknownServerError`` for an unknown one."""
    return error_class(code) if code else NoError


# The rest cannot be listed: classes that are made from a code, and kafka-python's other names.
_others = {**OTHER_NAMES, **NEVER_RAISED, **{kind.__name__: kind for kind in all_classes()}}
globals().update(_others)
__all__.extend(sorted(_others.keys() - set(__all__)))

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[KafkaError]:
        """One of the others."""
