"""Why a batch is not sent yet."""

from __future__ import annotations

from splashdam.model.lifecycle import Stage


class Standing(Stage):
    """How the first batch of a partition stands: why it goes with the next request, or what it waits for.

    The sender decides in these terms. The value says it in words.
    """

    FULL = "full: it goes with the next request"
    CLOSED = "closed by a flush or by an earlier attempt: it goes with the next request"
    FOLLOWED = "full, with another batch behind it: it goes with the next request"
    LINGERED = "linger_ms is over: it goes with the next request"
    HURRIED = "a flush, a close or a wait for memory cuts linger_ms short: it goes with the next request"
    LINGERS = "not full: it lingers for more records until linger_ms is over"
    BACKS_OFF = "the last attempt failed: it is tried again after the backoff"
    NO_LEADER = "no leader of the partition is known: the metadata are asked for"
    MUTED = "another batch of it is in flight, and max_in_flight_requests_per_connection is 1"
    NO_PRODUCER_ID = "the producer has no producer id yet: a broker is asked for one"
    FIRST_IN_FLIGHT = "the partition's first batch is in flight: no other may overtake it"
    ALL_IN_FLIGHT = "five batches of it are in flight: brokers recognize no more of them as duplicates"
    EARLIER_RETRIES = "an earlier batch of the partition is tried again first"
    GAP = "an earlier batch was refused or lost: a new producer epoch comes first"
    NO_TRANSACTION = "no transaction is open"
    JOINS_TRANSACTION = "the partition is being added to the transaction"
    CONNECTS = "the connection to the leader is being opened"
    RECONNECTS = "the connection to the leader failed: it is opened again after the reconnect backoff"
    THROTTLED = "the leader throttles this client (a quota)"
    WRITES = "an earlier request is still being written to the leader"
    REQUESTS_FULL = "max_in_flight_requests_per_connection requests to the leader have no answer yet"

    @property
    def goes(self) -> bool:
        """Whether nothing holds the batch."""
        return self in _GOES


_GOES = frozenset({Standing.FULL, Standing.CLOSED, Standing.FOLLOWED, Standing.LINGERED, Standing.HURRIED})
