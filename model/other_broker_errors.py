"""Codes that a producer or reader hardly ever meets: what each means, what to do, and whether it may pass.

The classes are made from this table by ``broker_errors.py``. An empty remedy is that of the base.
"""

from __future__ import annotations

from splashdam.model.error_codes import ErrorCode as Code
from splashdam.model.errors import AuthorizationError, InvalidMetadataError, RetriableError

_GROUP = "abort the transaction, and read on with the group's present members and generation"
_TOKEN = "check the delegation token and how the brokers are set up for tokens"
_ADMIN = "correct the request to the cluster's administration"
_QUORUM = "look into the logs of the controllers: it concerns brokers, not clients"

OTHER_ERRORS: dict[Code, tuple[str, str] | tuple[str, str, type]] = {
    Code.INVALID_FETCH_SIZE: ("The size asked for is not legal.", "ask for 1 byte or more"),
    Code.BROKER_NOT_AVAILABLE: ("The broker is not available.", "see that the broker runs"),
    Code.STALE_CONTROLLER_EPOCH: ("The controller has moved to another broker.", _QUORUM),
    Code.OFFSET_METADATA_TOO_LARGE: (
        "The text beside a committed offset is too long.",
        "shorten it, or raise offset.metadata.max.bytes at the broker",
    ),
    Code.ILLEGAL_GENERATION: ("The group has moved on to another generation.", _GROUP),
    Code.INCONSISTENT_GROUP_PROTOCOL: (
        "The group's members share no protocol.",
        "give all members of the group one assignor in common",
    ),
    Code.INVALID_GROUP_ID: ("The group id is not legal.", "set a group id that is not empty"),
    Code.UNKNOWN_MEMBER_ID: ("The coordinator does not know this member of the group.", _GROUP),
    Code.INVALID_SESSION_TIMEOUT: (
        "The session timeout is outside what the broker allows.",
        "keep it between group.min.session.timeout.ms and group.max.session.timeout.ms",
    ),
    Code.REBALANCE_IN_PROGRESS: ("The group is rebalancing.", _GROUP),
    Code.INVALID_COMMIT_OFFSET_SIZE: (
        "The offsets committed at once are too large.",
        "commit fewer offsets at once",
    ),
    Code.GROUP_AUTHORIZATION_FAILED: (
        "The principal may not use the group.",
        "grant the principal READ for the group",
        AuthorizationError,
    ),
    Code.INVALID_PARTITIONS: ("The number of partitions is not legal.", _ADMIN),
    Code.INVALID_REPLICATION_FACTOR: (
        "The replication factor is below 1 or above the number of brokers.",
        "lower the replication factor, or start more brokers",
    ),
    Code.INVALID_REPLICA_ASSIGNMENT: ("The assignment of replicas is not legal.", _ADMIN),
    Code.INVALID_CONFIG: ("A configuration is not legal.", _ADMIN),
    Code.NOT_CONTROLLER: ("The broker is not the controller.", "", RetriableError),
    Code.UNSUPPORTED_FOR_MESSAGE_FORMAT: (
        "The topic's message format does not support this.",
        "raise message.format.version at the topic, or set enable_idempotence=False and send no headers",
    ),
    Code.POLICY_VIOLATION: (
        "A policy of the cluster refuses the request.",
        "ask who runs the cluster what its policies allow",
    ),
    Code.INVALID_PRODUCER_ID_MAPPING: (
        "The transactional id belongs to another producer id by now.",
        "abort the transaction; who pauses longer than transactional.id.expiration.ms starts again",
    ),
    Code.INVALID_TRANSACTION_TIMEOUT: (
        "The transaction timeout is longer than the broker allows.",
        "lower transaction_timeout_ms, or raise transaction.max.timeout.ms at the broker",
    ),
    Code.CONCURRENT_TRANSACTIONS: (
        "The coordinator is still finishing the transaction before.",
        "",
        RetriableError,
    ),
    Code.TRANSACTION_COORDINATOR_FENCED: (
        "The transaction coordinator is no longer in charge.",
        "abort the transaction and begin a new one",
    ),
    Code.SECURITY_DISABLED: (
        "The broker has no security features switched on.",
        "set an authorizer up at the broker, or do not ask for its rules",
    ),
    Code.OPERATION_NOT_ATTEMPTED: (
        "Another part of the same request failed, so this one was not tried.",
        "abort the transaction; the other error says why",
    ),
    Code.LOG_DIR_NOT_FOUND: (
        "The broker has no such log directory.",
        "name one of the broker's log.dirs",
    ),
    Code.REASSIGNMENT_IN_PROGRESS: ("Partitions are being reassigned.", "wait until that is over"),
    Code.DELEGATION_TOKEN_AUTH_DISABLED: ("Delegation tokens are switched off.", _TOKEN),
    Code.DELEGATION_TOKEN_NOT_FOUND: ("The delegation token is not known.", _TOKEN),
    Code.DELEGATION_TOKEN_OWNER_MISMATCH: ("The principal does not own the delegation token.", _TOKEN),
    Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "Delegation tokens are not handed out over this connection.",
        _TOKEN,
    ),
    Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (
        "The principal may not use delegation tokens.",
        _TOKEN,
        AuthorizationError,
    ),
    Code.DELEGATION_TOKEN_EXPIRED: ("The delegation token has expired.", _TOKEN),
    Code.INVALID_PRINCIPAL_TYPE: ("The type of principal is not supported.", _TOKEN),
    Code.NON_EMPTY_GROUP: ("The group has members.", "stop the group's members first"),
    Code.GROUP_ID_NOT_FOUND: ("The group does not exist.", "check the group id"),
    Code.FETCH_SESSION_ID_NOT_FOUND: ("The fetch session is not known.", "", RetriableError),
    Code.INVALID_FETCH_SESSION_EPOCH: ("The epoch of the fetch session is not legal.", "", RetriableError),
    Code.LISTENER_NOT_FOUND: (
        "The leader has no listener of the name we connected through.",
        "give all brokers the same listeners",
        InvalidMetadataError,
    ),
    Code.TOPIC_DELETION_DISABLED: (
        "Topics cannot be deleted here.",
        "set delete.topic.enable at the brokers",
    ),
    Code.STALE_BROKER_EPOCH: ("The broker has registered anew meanwhile.", _QUORUM),
    Code.OFFSET_NOT_AVAILABLE: ("The new leader does not know the offset yet.", "", RetriableError),
    Code.MEMBER_ID_REQUIRED: (
        "The member joins the group again with the id it was given.",
        "join again with the member id of the answer",
    ),
    Code.PREFERRED_LEADER_NOT_AVAILABLE: ("The preferred leader is not available.", "", InvalidMetadataError),
    Code.GROUP_MAX_SIZE_REACHED: (
        "The group has as many members as it may have.",
        "raise group.max.size at the broker, or start fewer members",
    ),
    Code.FENCED_INSTANCE_ID: (
        "Another member with the same group.instance.id has taken over.",
        "give each member its own group.instance.id; abort the transaction",
    ),
    Code.ELIGIBLE_LEADERS_NOT_AVAILABLE: (
        "No replica that may lead is available.",
        "start the brokers that have the partition's replicas",
        InvalidMetadataError,
    ),
    Code.ELECTION_NOT_NEEDED: ("The partition has the right leader.", "", InvalidMetadataError),
    Code.NO_REASSIGNMENT_IN_PROGRESS: ("No partitions are being reassigned.", _ADMIN),
    Code.GROUP_SUBSCRIBED_TO_TOPIC: (
        "Offsets of a topic that the group reads cannot be deleted.",
        "stop the group's members first",
    ),
    Code.UNSTABLE_OFFSET_COMMIT: ("Offsets of an open transaction are not decided yet.", "", RetriableError),
    Code.THROTTLING_QUOTA_EXCEEDED: (
        "A quota is used up for now.",
        "try again later, or raise the principal's quota",
        RetriableError,
    ),
    Code.RESOURCE_NOT_FOUND: ("There is no such resource.", _ADMIN),
    Code.DUPLICATE_RESOURCE: ("The resource is named twice, or exists.", _ADMIN),
    Code.UNACCEPTABLE_CREDENTIAL: ("The credentials do not fulfil the broker's rules.", _ADMIN),
    Code.INCONSISTENT_VOTER_SET: ("The controllers disagree about who votes.", _QUORUM),
    Code.INVALID_UPDATE_VERSION: ("The version of the update is not legal.", _ADMIN),
    Code.FEATURE_UPDATE_FAILED: ("The finalized features cannot be updated.", _ADMIN),
    Code.PRINCIPAL_DESERIALIZATION_FAILURE: ("A forwarded principal cannot be read.", _QUORUM),
    Code.SNAPSHOT_NOT_FOUND: ("There is no such snapshot.", _QUORUM),
    Code.POSITION_OUT_OF_RANGE: ("The position is outside the snapshot.", _QUORUM),
    Code.DUPLICATE_BROKER_REGISTRATION: ("Another broker has this id.", _QUORUM),
    Code.BROKER_ID_NOT_REGISTERED: ("No broker with this id is registered.", _QUORUM),
    Code.INCONSISTENT_TOPIC_ID: (
        "The topic was deleted and made again meanwhile.",
        "",
        InvalidMetadataError,
    ),
    Code.INCONSISTENT_CLUSTER_ID: (
        "The request is meant for another cluster.",
        "set bootstrap_servers to brokers of one cluster",
    ),
    Code.TRANSACTIONAL_ID_NOT_FOUND: (
        "The coordinator does not know the transactional id.",
        "check transactional_id",
    ),
    Code.FETCH_SESSION_TOPIC_ID_ERROR: ("The fetch session mixes names and ids.", "", RetriableError),
    Code.INELIGIBLE_REPLICA: ("The replica may not become in sync.", _QUORUM),
    Code.NEW_LEADER_ELECTED: ("The change led to a new leader.", _QUORUM),
    Code.OFFSET_MOVED_TO_TIERED_STORAGE: (
        "The offset has moved to tiered storage.",
        "read it from the leader, not from a follower",
    ),
    Code.FENCED_MEMBER_EPOCH: ("The member's epoch is over.", _GROUP),
    Code.UNRELEASED_INSTANCE_ID: (
        "The group.instance.id is in use by another member.",
        "give each member its own group.instance.id",
    ),
    Code.UNSUPPORTED_ASSIGNOR: (
        "The group's coordinator does not know the assignor.",
        "choose one of the broker's group.consumer.assignors",
    ),
    Code.STALE_MEMBER_EPOCH: ("The member's epoch is older than the group's.", _GROUP),
    Code.MISMATCHED_ENDPOINT_TYPE: (
        "The address is that of a controller where a broker's is wanted, or the other way round.",
        "set bootstrap_servers to the brokers' listeners",
    ),
    Code.UNSUPPORTED_ENDPOINT_TYPE: ("The type of endpoint is not known.", _ADMIN),
    Code.UNKNOWN_CONTROLLER_ID: ("There is no such controller.", _ADMIN),
    Code.UNKNOWN_SUBSCRIPTION_ID: (
        "The broker's telemetry subscription has changed.",
        "ask for the subscription again",
    ),
    Code.TELEMETRY_TOO_LARGE: (
        "The metrics sent are larger than the broker takes.",
        "subscribe to fewer metrics, or raise telemetry.max.bytes at the broker",
    ),
    Code.INVALID_REGISTRATION: ("The broker's registration is not legal.", _QUORUM),
    Code.INVALID_RECORD_STATE: (
        "The shared record cannot be acknowledged in its state.",
        "go on with the records that the group hands out",
    ),
    Code.SHARE_SESSION_NOT_FOUND: ("The share session is not known.", "", RetriableError),
    Code.INVALID_SHARE_SESSION_EPOCH: ("The epoch of the share session is not legal.", "", RetriableError),
    Code.FENCED_STATE_EPOCH: ("The share coordinator knows a newer state.", _QUORUM),
    Code.INVALID_VOTER_KEY: ("The voter's key is not the one that is known.", _QUORUM),
    Code.DUPLICATE_VOTER: ("The voter is in the set already.", _QUORUM),
    Code.VOTER_NOT_FOUND: ("The voter is not in the set.", _QUORUM),
    Code.INVALID_REGULAR_EXPRESSION: (
        "The regular expression is not legal.",
        "write it as Google's RE2 reads it",
    ),
    Code.REBOOTSTRAP_REQUIRED: (
        "The brokers we know are no longer of use.",
        "connect through bootstrap_servers again, which the producer does by itself",
    ),
}
"""(meaning, remedy) and, for one that may pass, its base class."""
