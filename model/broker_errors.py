"""Errors a broker answers with: a class for each code a producer or reader meets, made from the code else.

Classes carry the name Kafka gives the code. Sorting into retriable, abortable and fatal is that of the Java
producer (``Errors.java``, ``Sender``, ``TransactionManager``): what is neither retriable nor fatal spoils the
transaction it happens in, and nothing else. A coordinator's answer may mean more.
"""

from __future__ import annotations

from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerResponseError,
    InvalidMetadataError,
    RetriableError,
)
from splashdam.model.other_broker_errors import OTHER_ERRORS


class UnknownServerError(BrokerResponseError):
    """The broker failed unexpectedly while it processed the request."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR
    remedy = "look into the broker's log"


class OffsetOutOfRangeError(BrokerResponseError):
    """The offset is below the log start offset or above the end of the log."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE
    remedy = "read from the earliest or the latest offset"


class CorruptMessageError(BrokerResponseError, RetriableError):
    """The record batch failed its checksum or is otherwise damaged."""

    code = ErrorCode.CORRUPT_MESSAGE
    remedy = "send it again; if it lasts, something between here and the broker changes bytes"


class UnknownTopicOrPartitionError(BrokerResponseError, InvalidMetadataError):
    """This broker does not host the topic or partition."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    remedy = "create the topic, or let the broker create it (auto.create.topics.enable)"


class LeaderNotAvailableError(BrokerResponseError, InvalidMetadataError):
    """The partition has no leader at the moment."""

    code = ErrorCode.LEADER_NOT_AVAILABLE


class NotLeaderOrFollowerError(BrokerResponseError, InvalidMetadataError):
    """The broker is not the leader of the partition."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class RequestTimedOutError(BrokerResponseError, RetriableError):
    """The request was not answered in time; its records may be in the log."""

    code = ErrorCode.REQUEST_TIMED_OUT


class ReplicaNotAvailableError(BrokerResponseError, InvalidMetadataError):
    """The replica is not available on this broker."""

    code = ErrorCode.REPLICA_NOT_AVAILABLE


class MessageTooLargeError(BrokerResponseError):
    """The record or batch is larger than the limit."""

    code = ErrorCode.MESSAGE_TOO_LARGE
    remedy = "send smaller records, or raise max_request_size here and max.message.bytes at the topic"


class NetworkExceptionError(BrokerResponseError, InvalidMetadataError):
    """The connection was lost before the answer came; the records may be in the log."""

    code = ErrorCode.NETWORK_EXCEPTION


class CoordinatorLoadInProgressError(BrokerResponseError, RetriableError):
    """The coordinator is loading its state."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailableError(BrokerResponseError, RetriableError):
    """No coordinator is available."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinatorError(BrokerResponseError, RetriableError):
    """The broker is not the coordinator."""

    code = ErrorCode.NOT_COORDINATOR


class InvalidTopicError(BrokerResponseError):
    """The topic name is not legal: 1 to 249 of letters, digits, '.', '_' and '-', not '.' or '..'."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION
    remedy = "send to a topic with a legal name"


class RecordListTooLargeError(BrokerResponseError):
    """The batch is larger than a segment of the log."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE
    remedy = "lower batch_size, or raise segment.bytes at the topic"


class NotEnoughReplicasError(BrokerResponseError, RetriableError):
    """Fewer replicas are in sync than min.insync.replicas; nothing was written."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS
    remedy = "see that the topic has min.insync.replicas brokers up and in sync; then send again"


class NotEnoughReplicasAfterAppendError(BrokerResponseError, RetriableError):
    """Written, but fewer replicas are in sync than min.insync.replicas."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    remedy = "see that the topic has min.insync.replicas brokers up and in sync; sending again may duplicate"


class InvalidRequiredAcksError(BrokerResponseError):
    """acks is not 0, 1 or -1 (all)."""

    code = ErrorCode.INVALID_REQUIRED_ACKS
    remedy = 'set acks to 0, 1 or "all"'


class TopicAuthorizationFailedError(BrokerResponseError, AuthorizationError):
    """The principal may not use the topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    remedy = "grant the principal WRITE (and CREATE, where it should create the topic)"


class ClusterAuthorizationFailedError(BrokerResponseError, AuthorizationError):
    """The principal may not use the cluster, for example to write idempotently."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    fatal = True
    remedy = "grant the principal IDEMPOTENT_WRITE, or set enable_idempotence=False"


class InvalidTimestampError(BrokerResponseError):
    """A record's timestamp is outside what the topic accepts."""

    code = ErrorCode.INVALID_TIMESTAMP
    remedy = "correct timestamp_ms, or raise message.timestamp.before.max.ms or .after.max.ms at the topic"


class UnsupportedSaslMechanismError(BrokerResponseError, AuthenticationError):
    """The broker does not offer the SASL mechanism."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
    remedy = "set sasl_mechanism to one that the broker offers, or add it to its sasl.enabled.mechanisms"


class IllegalSaslStateError(BrokerResponseError, AuthenticationError):
    """A request came at a moment at which authentication does not allow it."""

    code = ErrorCode.ILLEGAL_SASL_STATE
    remedy = "set security_protocol to that of the broker's listener"


class SaslAuthenticationFailedError(BrokerResponseError, AuthenticationError):
    """The broker does not accept the credentials."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED
    remedy = "check user name, password or token, and that the broker knows the user for this mechanism"


class UnsupportedVersionError(BrokerResponseError):
    """The broker does not speak a version of this request that the client speaks."""

    code = ErrorCode.UNSUPPORTED_VERSION
    remedy = "update the broker, or give up the option that needs the newer request"
    fatal = True


class TopicAlreadyExistsError(BrokerResponseError):
    """A topic with this name exists."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS
    remedy = "use the topic, or choose another name"


class InvalidRequestError(BrokerResponseError):
    """The request contradicts itself."""

    code = ErrorCode.INVALID_REQUEST
    remedy = "look into the broker's log, which says what it did not like"


class OutOfOrderSequenceNumberError(BrokerResponseError):
    """The broker expected another sequence number from this producer."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    remedy = "send the record again; records that were acknowledged may have been lost in the cluster"


class DuplicateSequenceNumberError(BrokerResponseError):
    """The broker has this batch already."""

    code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    remedy = "nothing: it is in the log"


class InvalidProducerEpochError(BrokerResponseError):
    """The producer's epoch is older than one the broker has seen."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH
    remedy = "abort the transaction; if another producer has this transactional_id, give each its own"


class InvalidTxnStateError(BrokerResponseError):
    """The producer's transaction is not in a state that allows this."""

    code = ErrorCode.INVALID_TXN_STATE
    remedy = "abort the transaction and begin a new one"


class TransactionalIdAuthorizationFailedError(BrokerResponseError, AuthorizationError):
    """The principal may not use the transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    remedy = "grant the principal WRITE and DESCRIBE for the transactional_id, and make a new producer"
    fatal = True


class KafkaStorageError(BrokerResponseError, InvalidMetadataError):
    """The broker could not read or write its log, for example because the disk is full."""

    code = ErrorCode.KAFKA_STORAGE_ERROR
    remedy = "look into the broker's log, which names the file and the cause; make room if its disk is full"


class UnknownProducerIdError(BrokerResponseError):
    """The broker no longer knows this producer id."""

    code = ErrorCode.UNKNOWN_PRODUCER_ID
    remedy = "send the record again; the topic removes records faster than it is written (retention.ms)"


class FencedLeaderEpochError(BrokerResponseError, InvalidMetadataError):
    """The request carries an older leader epoch than the broker's."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpochError(BrokerResponseError, RetriableError):
    """The request carries a newer leader epoch than the broker's."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class UnsupportedCompressionTypeError(BrokerResponseError):
    """The codec is not allowed in this version of the request, or not known to the broker."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    remedy = "set compression_type to a codec that the broker knows"


class InvalidRecordError(BrokerResponseError):
    """The broker refuses a record of the batch; the others are safe to send again."""

    code = ErrorCode.INVALID_RECORD
    remedy = "correct the record: its bytes are damaged, or settings of the topic (cleanup.policy) refuse it"


class ProducerFencedError(BrokerResponseError):
    """A newer producer with the same transactional id has taken over."""

    code = ErrorCode.PRODUCER_FENCED
    remedy = "make a new producer, and give each producer that runs at the same time its own transactional_id"
    fatal = True


class UnknownTopicIdError(BrokerResponseError, InvalidMetadataError):
    """No topic has this id."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class TransactionAbortableError(BrokerResponseError):
    """The transaction failed and must be aborted."""

    code = ErrorCode.TRANSACTION_ABORTABLE
    remedy = "abort the transaction and begin a new one"


def _by_code() -> dict[int, type[BrokerResponseError]]:
    classes = {kind.code: kind for kind in BrokerResponseError.__subclasses__()}
    for code in ErrorCode:
        if code is not ErrorCode.NONE and code not in classes:
            classes[code] = _class_for(code)
    return {int(code): kind for code, kind in classes.items()}


def _class_for(code: ErrorCode) -> type[BrokerResponseError]:
    words = code.name.removesuffix("_ERROR").removesuffix("_EXCEPTION").split("_")
    meaning, remedy, *bases = OTHER_ERRORS[code]
    body: dict[str, object] = {"code": code, "__doc__": meaning, "__module__": __name__}
    if remedy:
        body["remedy"] = remedy
    return type("".join(word.title() for word in words) + "Error", (BrokerResponseError, *bases), body)


_CLASSES = _by_code()


def all_classes() -> tuple[type[BrokerResponseError], ...]:
    """The class of each code."""
    return tuple(_CLASSES.values())


def error_class(code: int) -> type[BrokerResponseError]:
    """The class for a broker's error code; an unknown code is an ``UnknownServerError``.

    Raises:
        ValueError: ``code`` is 0, which is no error.
    """
    if code == ErrorCode.NONE:
        raise ValueError("code 0 is no error")
    return _CLASSES.get(code, UnknownServerError)


def error_for(code: int, message: str = "") -> BrokerResponseError:
    """An instance for a broker's error code, with the broker's own text where it sent one."""
    kind = error_class(code)
    if kind is UnknownServerError and code != ErrorCode.UNKNOWN_SERVER_ERROR:
        return kind(f"the broker answered with error code {code}, which is unknown here. {message}".strip())
    return kind(message)
