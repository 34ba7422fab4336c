"""How a test says what is to go wrong: ``broker.faults.produce(topic="t", error="REQUEST_TIMED_OUT")``."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from splashdam.embedded_broker.serving.dispatch import Interception
from splashdam.embedded_broker.serving.registry import registered_apis
from splashdam.testing.faults.fault import Action, Fault, When, Which, error_code
from splashdam.testing.faults.places import speaks_of_topics
from splashdam.testing.faults.switchboard import Refusals, Switchboard, api_of

if TYPE_CHECKING:
    from splashdam.testing.faults.request_log import RequestLog


class ApiFaults:
    """Sets faults of one API, or of all; what it returns is called."""

    def __init__(self, board: Switchboard, api: str | None) -> None:
        self._board = board
        self._api = api

    def __call__(
        self,
        *,
        error: int | str | None = None,
        after: bool = False,
        delay_ms: float = 0,
        drop: When | None = None,
        cut_after_bytes: int | None = None,
        throttle_ms: int = 0,
        black_hole: bool = False,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        broker: int | None = None,
        on_call: int = 1,
        times: int | None = None,
        probability: float = 1.0,
        seed: int = 0,
        from_brokers: bool = False,
    ) -> Fault:
        """Sets a fault, for what arrives from now on, until it has happened ``times`` times or is removed.

        Where several faults are due, delays add up, and the one set first ends the request.

        Args:
            error: the answer says this, by Kafka's name or number, and nothing is done. With ``topic`` or
                ``partition`` the other places of the request are handled and answered truly.
            after: everything is done, and then the answer says the error.
            delay_ms: how long the request, and what follows on its connection, waits before anything else.
            drop: the connection is closed ``"before"`` or ``"after"`` the request is handled.
            cut_after_bytes: so many bytes of the answer (size included) are sent, then the end.
            throttle_ms: what the answer tells the client to wait.
            black_hole: the connection is read on, and nothing on it is answered any more.
            topic: of requests that name this topic, or one like ``"orders-*"``.
            partition: of requests that name this partition.
            client_id: of clients with this name, or one like ``"billing-*"``.
            broker: of requests to the broker with this node id.
            on_call: the first of these requests that it happens to, counted from 1.
            times: how often it happens; None: every time.
            probability: of each, drawn from ``seed``.
            seed: the same draws every time.
            from_brokers: whether other brokers' requests, as followers, are meant too.

        Raises:
            ValueError: it says nothing, contradicts itself, or names what is not there.
        """
        which = Which(self._api, topic, partition, client_id, broker)
        if which.is_about_places and self._api is not None and not speaks_of_topics(_requests()[self._api]):
            raise ValueError(f"requests of {self._api} name no topics; leave out topic and partition")
        action = Action(
            error=None if error is None else error_code(error),
            after=after,
            delay_ms=delay_ms,
            drop=drop,
            cut_after_bytes=cut_after_bytes,
            throttle_ms=throttle_ms,
            black_hole=black_hole,
        )
        fault = Fault(
            which,
            action,
            on_call=on_call,
            times=times,
            probability=probability,
            seed=seed,
            from_brokers=from_brokers,
            remove=self._board.remove,
        )
        self._board.add(fault)
        return fault


class ApiNames:
    """One method for each API: what type checkers and editors know of `Faults`."""

    add_offsets_to_txn: ApiFaults
    add_partitions_to_txn: ApiFaults
    alter_client_quotas: ApiFaults
    alter_configs: ApiFaults
    alter_partition_reassignments: ApiFaults
    alter_replica_log_dirs: ApiFaults
    alter_user_scram_credentials: ApiFaults
    api_versions: ApiFaults
    consumer_group_describe: ApiFaults
    consumer_group_heartbeat: ApiFaults
    create_acls: ApiFaults
    create_partitions: ApiFaults
    create_topics: ApiFaults
    delete_acls: ApiFaults
    delete_groups: ApiFaults
    delete_records: ApiFaults
    delete_topics: ApiFaults
    describe_acls: ApiFaults
    describe_client_quotas: ApiFaults
    describe_cluster: ApiFaults
    describe_configs: ApiFaults
    describe_groups: ApiFaults
    describe_log_dirs: ApiFaults
    describe_producers: ApiFaults
    describe_quorum: ApiFaults
    describe_topic_partitions: ApiFaults
    describe_transactions: ApiFaults
    describe_user_scram_credentials: ApiFaults
    elect_leaders: ApiFaults
    end_txn: ApiFaults
    fetch: ApiFaults
    find_coordinator: ApiFaults
    get_telemetry_subscriptions: ApiFaults
    heartbeat: ApiFaults
    incremental_alter_configs: ApiFaults
    init_producer_id: ApiFaults
    join_group: ApiFaults
    leave_group: ApiFaults
    list_config_resources: ApiFaults
    list_groups: ApiFaults
    list_offsets: ApiFaults
    list_partition_reassignments: ApiFaults
    list_transactions: ApiFaults
    metadata: ApiFaults
    offset_commit: ApiFaults
    offset_delete: ApiFaults
    offset_fetch: ApiFaults
    offset_for_leader_epoch: ApiFaults
    produce: ApiFaults
    push_telemetry: ApiFaults
    sasl_authenticate: ApiFaults
    sasl_handshake: ApiFaults
    sync_group: ApiFaults
    txn_offset_commit: ApiFaults
    write_txn_markers: ApiFaults


class Faults(ApiNames):
    """The faults of a broker or cluster: one method for each API that it serves, by its name in snake case.

    All methods may be called from any thread. While there is no fault, and no log, requests take the same
    way as without this.

    Args:
        interception: of the brokers concerned.

    Attributes:
        any_request: sets faults of all APIs, ApiVersions too, with which every client begins.
        requests: the log of what was asked; off until started.
    """

    def __init__(self, interception: Interception) -> None:
        self._board = Switchboard(interception)
        self.any_request = ApiFaults(self._board, None)

    @property
    def requests(self) -> RequestLog:
        """What the brokers were asked."""
        return self._board.log

    def refuse_connections(self, *, times: int | None = None, broker: int | None = None) -> Refusals:
        """Closes new connections as soon as they are made; those that are there stay.

        Args:
            times: how many; None: all, until it is removed.
            broker: by the broker with this node id; None: by all.
        """
        refusals = Refusals(self._board, times, broker)
        self._board.add_refusals(refusals)
        return refusals

    @property
    def unhit(self) -> list[Fault | Refusals]:
        """The faults that were set and have happened to no request, those that were removed since included.

        A test that ends with one has not tested what it says: ``assert not faults.unhit``.
        """
        return self._board.unhit()

    def clear(self) -> None:
        """Removes every fault; the log stays as it is."""
        self._board.clear()

    def __getattr__(self, name: str) -> ApiFaults:
        if name.startswith("_") or name not in _requests():
            close = difflib.get_close_matches(name, _requests(), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise AttributeError(f"the broker serves no API {name!r}{hint}")
        return ApiFaults(self._board, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_requests()})


def _requests() -> dict[str, type]:
    return {api_of(api.request): api.request for api in registered_apis().values()}
