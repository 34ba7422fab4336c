"""Errors that a broker answers with: Kafka's codes, and a class for each of them, in the order of the codes.

Classes have Kafka's name of the code; the docstring says what it means and is the message where the broker
sends none; ``remedy`` says what to do. Which errors are retriable, abortable and fatal follows the Java
producer (``Errors.java``, ``Sender``, ``TransactionManager``): an error that is neither retriable nor fatal
fails the open transaction, and nothing else. From a coordinator, a code may mean more.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar

from splashdam.model.errors import (
    AuthenticationError,
    AuthorizationError,
    InvalidMetadataError,
    KafkaError,
    ProducerFenced,
    RetriableError,
    SettingText,
)


class ErrorCode(IntEnum):
    """Kafka's error codes by Kafka's names, as they are sent in responses."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129


class BrokerResponseError(KafkaError):
    """A broker responded with an error code."""

    code: ClassVar[int] = -1
    errno: ClassVar[int] = -1
    """kafka-python's name of ``code``."""

    def __init_subclass__(cls) -> None:
        cls.errno = int(cls.code)
        cls.abortable = not (cls.retriable or cls.fatal or cls.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER)

    def __init__(self, message: str = "") -> None:
        kind = type(self)
        self.message = message or (kind.__doc__ or "").strip()
        code = f"[{kind.code} {kind.__name__}]"
        text = f"{code} {self.message}"
        if isinstance(message, SettingText):
            text = SettingText("{code} {message}", code=code, message=message)
        super().__init__(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return error_for, (int(self.code), self.message)


_GROUP = "abort the transaction, and continue with the group's present members and generation"
_TOKEN = "check the delegation token and the brokers' configuration for delegation tokens"
_ADMIN = "correct the administrative request"
_QUORUM = "check the controllers' logs: the error concerns brokers, not clients"


class UnknownServerError(BrokerResponseError):
    """The broker failed unexpectedly while it processed the request."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR
    remedy = "check the broker's log"


class OffsetOutOfRangeError(BrokerResponseError):
    """The offset is below the log start offset or above the end of the log."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE
    remedy = "read from the earliest or the latest offset"


class CorruptMessageError(BrokerResponseError, RetriableError):
    """The record batch failed its checksum or is otherwise damaged."""

    code = ErrorCode.CORRUPT_MESSAGE
    remedy = "send it again; if the error persists, something between client and broker changes bytes"


class UnknownTopicOrPartitionError(BrokerResponseError, InvalidMetadataError):
    """This broker does not host the topic or partition."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    remedy = "create the topic, or let the broker create it (auto.create.topics.enable)"


class InvalidFetchSizeError(BrokerResponseError):
    """The requested size is not valid."""

    code = ErrorCode.INVALID_FETCH_SIZE
    remedy = "request 1 byte or more"


class LeaderNotAvailableError(BrokerResponseError, InvalidMetadataError):
    """The partition has no leader at the moment."""

    code = ErrorCode.LEADER_NOT_AVAILABLE


class NotLeaderOrFollowerError(BrokerResponseError, InvalidMetadataError):
    """The broker is not the leader of the partition."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class RequestTimedOutError(BrokerResponseError, RetriableError):
    """The request was not answered in time; its records may be in the log."""

    code = ErrorCode.REQUEST_TIMED_OUT


class BrokerNotAvailableError(BrokerResponseError):
    """The broker is not available."""

    code = ErrorCode.BROKER_NOT_AVAILABLE
    remedy = "check that the broker is running"


class ReplicaNotAvailableError(BrokerResponseError, InvalidMetadataError):
    """The replica is not available on this broker."""

    code = ErrorCode.REPLICA_NOT_AVAILABLE


class MessageTooLargeError(BrokerResponseError):
    """The record or batch is larger than the limit."""

    code = ErrorCode.MESSAGE_TOO_LARGE
    remedy = "send smaller records, or raise max_request_size here and max.message.bytes at the topic"


class StaleControllerEpochError(BrokerResponseError):
    """The controller has moved to another broker."""

    code = ErrorCode.STALE_CONTROLLER_EPOCH
    remedy = _QUORUM


class OffsetMetadataTooLargeError(BrokerResponseError):
    """The metadata of a committed offset is too long."""

    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
    remedy = "shorten it, or raise offset.metadata.max.bytes at the broker"


class NetworkExceptionError(BrokerResponseError, InvalidMetadataError):
    """The connection was lost before the response arrived; the records may be in the log."""

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
    """The topic name is not valid: 1 to 249 of letters, digits, '.', '_' and '-', not '.' or '..'."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION
    remedy = "send to a topic with a valid name"


class RecordListTooLargeError(BrokerResponseError):
    """The batch is larger than a segment of the log."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE
    remedy = "lower batch_size, or raise segment.bytes at the topic"


class NotEnoughReplicasError(BrokerResponseError, RetriableError):
    """Fewer replicas are in sync than min.insync.replicas; nothing was written."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS
    remedy = "get min.insync.replicas replicas of the partition in sync, then send again"


class NotEnoughReplicasAfterAppendError(BrokerResponseError, RetriableError):
    """Written, but fewer replicas are in sync than min.insync.replicas."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    remedy = "get min.insync.replicas replicas of the partition in sync; sending again may write duplicates"


class InvalidRequiredAcksError(BrokerResponseError):
    """acks is not 0, 1 or -1 (all)."""

    code = ErrorCode.INVALID_REQUIRED_ACKS
    remedy = 'set acks to 0, 1 or "all"'


class IllegalGenerationError(BrokerResponseError):
    """The group has moved on to another generation."""

    code = ErrorCode.ILLEGAL_GENERATION
    remedy = _GROUP


class InconsistentGroupProtocolError(BrokerResponseError):
    """The group's members share no protocol."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    remedy = "give all members of the group one assignor in common"


class InvalidGroupIdError(BrokerResponseError):
    """The group id is not valid."""

    code = ErrorCode.INVALID_GROUP_ID
    remedy = "set a group id that is not empty"


class UnknownMemberIdError(BrokerResponseError):
    """The coordinator does not know this member of the group."""

    code = ErrorCode.UNKNOWN_MEMBER_ID
    remedy = _GROUP


class InvalidSessionTimeoutError(BrokerResponseError):
    """The session timeout is outside the range that the broker allows."""

    code = ErrorCode.INVALID_SESSION_TIMEOUT
    remedy = "keep it between group.min.session.timeout.ms and group.max.session.timeout.ms"


class RebalanceInProgressError(BrokerResponseError):
    """The group is rebalancing."""

    code = ErrorCode.REBALANCE_IN_PROGRESS
    remedy = _GROUP


class InvalidCommitOffsetSizeError(BrokerResponseError):
    """The offsets committed at once are too large."""

    code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    remedy = "commit fewer offsets at once"


class TopicAuthorizationFailedError(BrokerResponseError, AuthorizationError):
    """The principal lacks a permission on the topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    remedy = "grant the principal WRITE on the topic (and CREATE, if it should create the topic)"


class GroupAuthorizationFailedError(BrokerResponseError, AuthorizationError):
    """The principal lacks a permission on the group."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    remedy = "grant the principal READ on the group"


class ClusterAuthorizationFailedError(BrokerResponseError, AuthorizationError):
    """The principal lacks a permission on the cluster, for example to write idempotently."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    fatal = True
    remedy = "grant the principal IDEMPOTENT_WRITE, or set enable_idempotence=False"


class InvalidTimestampError(BrokerResponseError):
    """A record's timestamp is outside the range that the topic accepts."""

    code = ErrorCode.INVALID_TIMESTAMP
    remedy = "correct timestamp_ms, or raise message.timestamp.before.max.ms or .after.max.ms at the topic"


class UnsupportedSaslMechanismError(BrokerResponseError, AuthenticationError):
    """The broker does not offer the SASL mechanism."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
    remedy = "set sasl_mechanism to one that the broker offers, or add it to its sasl.enabled.mechanisms"


class IllegalSaslStateError(BrokerResponseError, AuthenticationError):
    """The request is not allowed in the present state of authentication."""

    code = ErrorCode.ILLEGAL_SASL_STATE
    remedy = "set security_protocol to that of the broker's listener"


class UnsupportedVersionError(BrokerResponseError):
    """The broker supports no version of this request that the client supports."""

    code = ErrorCode.UNSUPPORTED_VERSION
    remedy = "upgrade the broker, or do without the option that needs the newer request"
    fatal = True


class TopicAlreadyExistsError(BrokerResponseError):
    """A topic with this name exists."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS
    remedy = "use the topic, or choose another name"


class InvalidPartitionsError(BrokerResponseError):
    """The number of partitions is not valid."""

    code = ErrorCode.INVALID_PARTITIONS
    remedy = _ADMIN


class InvalidReplicationFactorError(BrokerResponseError):
    """The replication factor is below 1 or above the number of brokers."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR
    remedy = "lower the replication factor, or start more brokers"


class InvalidReplicaAssignmentError(BrokerResponseError):
    """The replica assignment is not valid."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    remedy = _ADMIN


class InvalidConfigError(BrokerResponseError):
    """The configuration is not valid."""

    code = ErrorCode.INVALID_CONFIG
    remedy = _ADMIN


class NotControllerError(BrokerResponseError, RetriableError):
    """The broker is not the controller."""

    code = ErrorCode.NOT_CONTROLLER


class InvalidRequestError(BrokerResponseError):
    """The request contradicts itself."""

    code = ErrorCode.INVALID_REQUEST
    remedy = "check the broker's log, which says what is wrong with the request"


class UnsupportedForMessageFormatError(BrokerResponseError):
    """The topic's message format does not support this."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    remedy = "raise message.format.version at the topic, or set enable_idempotence=False and send no headers"


class PolicyViolationError(BrokerResponseError):
    """A policy of the cluster rejects the request."""

    code = ErrorCode.POLICY_VIOLATION
    remedy = "ask the operators of the cluster what its policies allow"


class OutOfOrderSequenceNumberError(BrokerResponseError):
    """The broker expected another sequence number from this producer."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    remedy = "send the record again; records that were acknowledged may have been lost in the cluster"


class DuplicateSequenceNumberError(BrokerResponseError):
    """The broker already has this batch."""

    code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    remedy = "nothing: the batch is in the log"


class InvalidProducerEpochError(BrokerResponseError, ProducerFenced):
    """The producer epoch is older than one that the broker has seen."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH
    remedy = (
        "in a transaction, abort it; if that raises ProducerFencedError, another producer has taken over:"
        " close this one. Without transactions, send the record again"
    )


class InvalidTxnStateError(BrokerResponseError):
    """The producer's transaction is not in a state that allows this."""

    code = ErrorCode.INVALID_TXN_STATE
    remedy = "abort the transaction and begin a new one"


class InvalidProducerIdMappingError(BrokerResponseError):
    """The transactional id now belongs to another producer id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    remedy = "abort the transaction; ids expire after transactional.id.expiration.ms without transactions"


class InvalidTransactionTimeoutError(BrokerResponseError):
    """The transaction timeout is longer than the broker allows."""

    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
    remedy = "lower transaction_timeout_ms, or raise transaction.max.timeout.ms at the broker"


class ConcurrentTransactionsError(BrokerResponseError, RetriableError):
    """The coordinator is still completing the previous transaction."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionCoordinatorFencedError(BrokerResponseError):
    """The broker is no longer the coordinator of this transaction."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    remedy = "abort the transaction and begin a new one"


class TransactionalIdAuthorizationFailedError(BrokerResponseError, AuthorizationError):
    """The principal lacks a permission on the transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    remedy = "grant the principal WRITE and DESCRIBE on the transactional_id, and make a new producer"
    fatal = True


class SecurityDisabledError(BrokerResponseError):
    """The broker has no security features enabled."""

    code = ErrorCode.SECURITY_DISABLED
    remedy = "configure an authorizer at the broker, or do without ACL requests"


class OperationNotAttemptedError(BrokerResponseError):
    """Another part of the same request failed, so this one was not tried."""

    code = ErrorCode.OPERATION_NOT_ATTEMPTED
    remedy = "abort the transaction; the other error says why"


class KafkaStorageError(BrokerResponseError, InvalidMetadataError):
    """The broker could not read or write its log, for example because the disk is full."""

    code = ErrorCode.KAFKA_STORAGE_ERROR
    remedy = "check the broker's log, which names file and cause; free space if its disk is full"


class LogDirNotFoundError(BrokerResponseError):
    """The broker has no such log directory."""

    code = ErrorCode.LOG_DIR_NOT_FOUND
    remedy = "name one of the broker's log.dirs"


class SaslAuthenticationFailedError(BrokerResponseError, AuthenticationError):
    """The broker does not accept the credentials."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED
    remedy = "check user name, password or token, and that the broker has the user for this mechanism"


class UnknownProducerIdError(BrokerResponseError):
    """The broker no longer knows this producer id."""

    code = ErrorCode.UNKNOWN_PRODUCER_ID
    remedy = "send the record again; retention (retention.ms) removed all of this producer's records"


class ReassignmentInProgressError(BrokerResponseError):
    """Partitions are being reassigned."""

    code = ErrorCode.REASSIGNMENT_IN_PROGRESS
    remedy = "wait until the reassignment is complete"


class DelegationTokenAuthDisabledError(BrokerResponseError):
    """Delegation tokens are disabled."""

    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    remedy = _TOKEN


class DelegationTokenNotFoundError(BrokerResponseError):
    """The delegation token is not known."""

    code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    remedy = _TOKEN


class DelegationTokenOwnerMismatchError(BrokerResponseError):
    """The principal does not own the delegation token."""

    code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    remedy = _TOKEN


class DelegationTokenRequestNotAllowedError(BrokerResponseError):
    """Delegation tokens cannot be requested over this connection."""

    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    remedy = _TOKEN


class DelegationTokenAuthorizationFailedError(BrokerResponseError, AuthorizationError):
    """The principal lacks the permission to use delegation tokens."""

    code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    remedy = _TOKEN


class DelegationTokenExpiredError(BrokerResponseError):
    """The delegation token has expired."""

    code = ErrorCode.DELEGATION_TOKEN_EXPIRED
    remedy = _TOKEN


class InvalidPrincipalTypeError(BrokerResponseError):
    """The type of principal is not supported."""

    code = ErrorCode.INVALID_PRINCIPAL_TYPE
    remedy = _TOKEN


class NonEmptyGroupError(BrokerResponseError):
    """The group has members."""

    code = ErrorCode.NON_EMPTY_GROUP
    remedy = "stop the group's members first"


class GroupIdNotFoundError(BrokerResponseError):
    """The group does not exist."""

    code = ErrorCode.GROUP_ID_NOT_FOUND
    remedy = "check the group id"


class FetchSessionIdNotFoundError(BrokerResponseError, RetriableError):
    """The fetch session is not known."""

    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidFetchSessionEpochError(BrokerResponseError, RetriableError):
    """The epoch of the fetch session is not the expected one."""

    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class ListenerNotFoundError(BrokerResponseError, InvalidMetadataError):
    """The leader has no listener with the name of the one that the client uses."""

    code = ErrorCode.LISTENER_NOT_FOUND
    remedy = "configure the same listeners on all brokers"


class TopicDeletionDisabledError(BrokerResponseError):
    """Topic deletion is disabled."""

    code = ErrorCode.TOPIC_DELETION_DISABLED
    remedy = "set delete.topic.enable at the brokers"


class FencedLeaderEpochError(BrokerResponseError, InvalidMetadataError):
    """The request carries an older leader epoch than the broker's."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpochError(BrokerResponseError, RetriableError):
    """The request carries a newer leader epoch than the broker's."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class UnsupportedCompressionTypeError(BrokerResponseError):
    """The codec is not allowed in this version of the request, or is unknown to the broker."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    remedy = "set compression_type to a codec that the broker supports"


class StaleBrokerEpochError(BrokerResponseError):
    """The broker has registered again since."""

    code = ErrorCode.STALE_BROKER_EPOCH
    remedy = _QUORUM


class OffsetNotAvailableError(BrokerResponseError, RetriableError):
    """The new leader does not know the offset yet."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class MemberIdRequiredError(BrokerResponseError):
    """The member must join the group again with the member id of this response."""

    code = ErrorCode.MEMBER_ID_REQUIRED
    remedy = "join again with the member id of the response"


class PreferredLeaderNotAvailableError(BrokerResponseError, InvalidMetadataError):
    """The preferred leader is not available."""

    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class GroupMaxSizeReachedError(BrokerResponseError):
    """The group has reached its maximum number of members."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED
    remedy = "raise group.max.size at the broker, or start fewer members"


class FencedInstanceIdError(BrokerResponseError):
    """Another member with the same group.instance.id has taken over."""

    code = ErrorCode.FENCED_INSTANCE_ID
    remedy = "give each member its own group.instance.id; abort the transaction"


class EligibleLeadersNotAvailableError(BrokerResponseError, InvalidMetadataError):
    """No replica that may become leader is available."""

    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    remedy = "start the brokers that host the partition's replicas"


class ElectionNotNeededError(BrokerResponseError, InvalidMetadataError):
    """The partition already has the right leader."""

    code = ErrorCode.ELECTION_NOT_NEEDED


class NoReassignmentInProgressError(BrokerResponseError):
    """No partitions are being reassigned."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    remedy = _ADMIN


class GroupSubscribedToTopicError(BrokerResponseError):
    """The offsets of a topic that the group consumes cannot be deleted."""

    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    remedy = "stop the group's members first"


class InvalidRecordError(BrokerResponseError):
    """The broker rejects a record of the batch; the others can be sent again."""

    code = ErrorCode.INVALID_RECORD
    remedy = "correct the record: it is damaged, or the topic (cleanup.policy=compact) requires a key"


class UnstableOffsetCommitError(BrokerResponseError, RetriableError):
    """The offsets belong to a transaction that is still open."""

    code = ErrorCode.UNSTABLE_OFFSET_COMMIT


class ThrottlingQuotaExceededError(BrokerResponseError, RetriableError):
    """A quota is exceeded for now."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    remedy = "try again later, or raise the principal's quota"


class ProducerFencedError(BrokerResponseError, ProducerFenced):
    """A newer producer with the same transactional id has taken over."""

    code = ErrorCode.PRODUCER_FENCED
    remedy = "make a new producer, and give each producer that runs at the same time its own transactional_id"
    fatal = True


class ResourceNotFoundError(BrokerResponseError):
    """The resource does not exist."""

    code = ErrorCode.RESOURCE_NOT_FOUND
    remedy = _ADMIN


class DuplicateResourceError(BrokerResponseError):
    """The resource is named twice, or already exists."""

    code = ErrorCode.DUPLICATE_RESOURCE
    remedy = _ADMIN


class UnacceptableCredentialError(BrokerResponseError):
    """The credentials do not meet the broker's requirements."""

    code = ErrorCode.UNACCEPTABLE_CREDENTIAL
    remedy = _ADMIN


class InconsistentVoterSetError(BrokerResponseError):
    """The controllers disagree about the set of voters."""

    code = ErrorCode.INCONSISTENT_VOTER_SET
    remedy = _QUORUM


class InvalidUpdateVersionError(BrokerResponseError):
    """The version of the update is not valid."""

    code = ErrorCode.INVALID_UPDATE_VERSION
    remedy = _ADMIN


class FeatureUpdateFailedError(BrokerResponseError):
    """The finalized features cannot be updated."""

    code = ErrorCode.FEATURE_UPDATE_FAILED
    remedy = _ADMIN


class PrincipalDeserializationFailureError(BrokerResponseError):
    """The principal of a forwarded request cannot be deserialized."""

    code = ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    remedy = _QUORUM


class SnapshotNotFoundError(BrokerResponseError):
    """The snapshot does not exist."""

    code = ErrorCode.SNAPSHOT_NOT_FOUND
    remedy = _QUORUM


class PositionOutOfRangeError(BrokerResponseError):
    """The position is outside the snapshot."""

    code = ErrorCode.POSITION_OUT_OF_RANGE
    remedy = _QUORUM


class UnknownTopicIdError(BrokerResponseError, InvalidMetadataError):
    """No topic has this id."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class DuplicateBrokerRegistrationError(BrokerResponseError):
    """Another broker has this id."""

    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    remedy = _QUORUM


class BrokerIdNotRegisteredError(BrokerResponseError):
    """No broker with this id is registered."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED
    remedy = _QUORUM


class InconsistentTopicIdError(BrokerResponseError, InvalidMetadataError):
    """The topic was deleted and created again since."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


class InconsistentClusterIdError(BrokerResponseError):
    """The request is for another cluster."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID
    remedy = "set bootstrap_servers to brokers of one cluster"


class TransactionalIdNotFoundError(BrokerResponseError):
    """The coordinator does not know the transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    remedy = "check transactional_id"


class FetchSessionTopicIdError(BrokerResponseError, RetriableError):
    """The fetch session mixes topic names and topic ids."""

    code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


class IneligibleReplicaError(BrokerResponseError):
    """The replica may not become in sync."""

    code = ErrorCode.INELIGIBLE_REPLICA
    remedy = _QUORUM


class NewLeaderElectedError(BrokerResponseError):
    """The change caused the election of a new leader."""

    code = ErrorCode.NEW_LEADER_ELECTED
    remedy = _QUORUM


class OffsetMovedToTieredStorageError(BrokerResponseError):
    """The offset has moved to tiered storage."""

    code = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    remedy = "read it from the leader, not from a follower"


class FencedMemberEpochError(BrokerResponseError):
    """The coordinator has fenced the member's epoch."""

    code = ErrorCode.FENCED_MEMBER_EPOCH
    remedy = _GROUP


class UnreleasedInstanceIdError(BrokerResponseError):
    """The group.instance.id is in use by another member."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID
    remedy = "give each member its own group.instance.id"


class UnsupportedAssignorError(BrokerResponseError):
    """The group's coordinator does not know the assignor."""

    code = ErrorCode.UNSUPPORTED_ASSIGNOR
    remedy = "choose one of the broker's group.consumer.assignors"


class StaleMemberEpochError(BrokerResponseError):
    """The member's epoch is older than the group's."""

    code = ErrorCode.STALE_MEMBER_EPOCH
    remedy = _GROUP


class MismatchedEndpointTypeError(BrokerResponseError):
    """The address is that of a controller where a broker's is wanted, or the other way round."""

    code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
    remedy = "set bootstrap_servers to the brokers' listeners"


class UnsupportedEndpointTypeError(BrokerResponseError):
    """The type of endpoint is unknown."""

    code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    remedy = _ADMIN


class UnknownControllerIdError(BrokerResponseError):
    """No controller has this id."""

    code = ErrorCode.UNKNOWN_CONTROLLER_ID
    remedy = _ADMIN


class UnknownSubscriptionIdError(BrokerResponseError):
    """The broker's telemetry subscription has changed."""

    code = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    remedy = "request the subscription again"


class TelemetryTooLargeError(BrokerResponseError):
    """The metrics are larger than the broker accepts."""

    code = ErrorCode.TELEMETRY_TOO_LARGE
    remedy = "subscribe to fewer metrics, or raise telemetry.max.bytes at the broker"


class InvalidRegistrationError(BrokerResponseError):
    """The broker's registration is not valid."""

    code = ErrorCode.INVALID_REGISTRATION
    remedy = _QUORUM


class TransactionAbortableError(BrokerResponseError):
    """The transaction failed and must be aborted."""

    code = ErrorCode.TRANSACTION_ABORTABLE
    remedy = "abort the transaction and begin a new one"


class InvalidRecordStateError(BrokerResponseError):
    """The record of a share group cannot be acknowledged in its state."""

    code = ErrorCode.INVALID_RECORD_STATE
    remedy = "continue with the records that the group delivers"


class ShareSessionNotFoundError(BrokerResponseError, RetriableError):
    """The share session is not known."""

    code = ErrorCode.SHARE_SESSION_NOT_FOUND


class InvalidShareSessionEpochError(BrokerResponseError, RetriableError):
    """The epoch of the share session is not the expected one."""

    code = ErrorCode.INVALID_SHARE_SESSION_EPOCH


class FencedStateEpochError(BrokerResponseError):
    """The share coordinator has a newer state epoch."""

    code = ErrorCode.FENCED_STATE_EPOCH
    remedy = _QUORUM


class InvalidVoterKeyError(BrokerResponseError):
    """The voter's key does not match the known one."""

    code = ErrorCode.INVALID_VOTER_KEY
    remedy = _QUORUM


class DuplicateVoterError(BrokerResponseError):
    """The voter is in the set already."""

    code = ErrorCode.DUPLICATE_VOTER
    remedy = _QUORUM


class VoterNotFoundError(BrokerResponseError):
    """The voter is not in the set."""

    code = ErrorCode.VOTER_NOT_FOUND
    remedy = _QUORUM


class InvalidRegularExpressionError(BrokerResponseError):
    """The regular expression is not valid."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION
    remedy = "use the syntax of RE2"


class RebootstrapRequiredError(BrokerResponseError):
    """The client must connect again through its bootstrap servers."""

    code = ErrorCode.REBOOTSTRAP_REQUIRED
    remedy = "connect through bootstrap_servers again; producers do so by themselves"


_CLASSES = {int(kind.code): kind for kind in BrokerResponseError.__subclasses__()}


def error_class(code: int) -> type[BrokerResponseError]:
    """Return the class for an error code; ``UnknownServerError`` for an unknown code.

    Raises:
        ValueError: ``code`` is 0, which is no error.
    """
    if code == ErrorCode.NONE:
        raise ValueError("code 0 is no error")
    return _CLASSES.get(code, UnknownServerError)


def error_for(code: int, message: str = "") -> BrokerResponseError:
    """Return an error for a code, with the broker's message if there is one."""
    kind = error_class(code)
    if kind is UnknownServerError and code != ErrorCode.UNKNOWN_SERVER_ERROR:
        return kind(f"the broker sent error code {code}, which this client does not know. {message}".strip())
    return kind(message)
