"""Faults on demand: ``broker.faults.produce(topic="t", error="REQUEST_TIMED_OUT")``."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from splashdam.embedded_broker.serving.dispatch import Interception
from splashdam.embedded_broker.serving.registry import registered_apis
from splashdam.testing.faults.fault import Action, Fault, RequestFilter, When, error_code
from splashdam.testing.faults.interceptor import FaultInterceptor, Refusals, api_of
from splashdam.testing.faults.messages import can_name_topics

if TYPE_CHECKING:
    from splashdam.testing.faults.request_log import RequestLog


class ApiFaults:
    """Sets faults of one API, or of all APIs, when it is called."""

    def __init__(self, interceptor: FaultInterceptor, api: str | None) -> None:
        self._interceptor = interceptor
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
        """Set a fault for requests that arrive from now on, until it has happened ``times`` times.

        Where several faults are due, delays add up, and the one set first ends the request.

        Args:
            error: answer with this error, by Kafka's name or code, without handling the request. With
                ``topic`` or ``partition`` the other partitions of the request are handled as usual.
            after: handle the request first, then answer with the error.
            delay_ms: milliseconds that the request waits first; later requests of its connection wait, too.
            drop: close the connection ``"before"`` or ``"after"`` the request is handled.
            cut_after_bytes: send this many bytes of the answer, its size field included, then close.
            throttle_ms: throttle time in the answer, in milliseconds.
            black_hole: go on reading from the connection, and answer nothing on it any more.
            topic: match requests that name this topic, or a topic like ``"orders-*"``.
            partition: match requests that name this partition.
            client_id: match this client id, or one like ``"billing-*"``.
            broker: match requests to the broker with this node id.
            on_call: number of the first matching request that it happens to, counted from 1.
            times: how often it happens; None for every time.
            probability: chance of each matching request, drawn from ``seed``.
            seed: of the random draws; equal seeds give equal draws.
            from_brokers: match the requests of followers, too.

        Raises:
            ValueError: the arguments do nothing, contradict each other, or name an unknown error.
        """
        which = RequestFilter(self._api, topic, partition, client_id, broker)
        if which.names_places and self._api is not None and not can_name_topics(_requests()[self._api]):
            raise ValueError(f"requests of {self._api} name no topics: leave out topic and partition")
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
            remove=self._interceptor.remove,
        )
        self._interceptor.add(fault)
        return fault


class ApiNames:
    """The methods of `Faults`, one for each API, for type checkers and editors."""

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

    All methods may be called from any thread. Without a fault and with the log off, requests take their usual
    path through the broker.

    Args:
        interception: the ``interception`` of the broker or cluster.

    Attributes:
        any_request: sets faults of all APIs; of ApiVersions, too, which every client sends first.
        requests: the request log; off until started.
    """

    def __init__(self, interception: Interception) -> None:
        self._interceptor = FaultInterceptor(interception)
        self.any_request = ApiFaults(self._interceptor, None)

    @property
    def requests(self) -> RequestLog:
        """The request log."""
        return self._interceptor.log

    def refuse_connections(self, *, times: int | None = None, broker: int | None = None) -> Refusals:
        """Close new connections as soon as they are made; existing ones stay.

        Args:
            times: number of connections; None for all, until it is removed.
            broker: node id of the broker that closes them; None for all brokers.
        """
        refusals = Refusals(self._interceptor, times, broker)
        self._interceptor.add_refusals(refusals)
        return refusals

    @property
    def unhit(self) -> list[Fault | Refusals]:
        """The faults that have happened to no request, removed ones included.

        A test that ends with an unhit fault has not tested what it names: ``assert not faults.unhit``.
        """
        return self._interceptor.unhit()

    def clear(self) -> None:
        """Remove every fault; the log stays as it is."""
        self._interceptor.clear()

    def __getattr__(self, name: str) -> ApiFaults:
        if name.startswith("_") or name not in _requests():
            close = difflib.get_close_matches(name, _requests(), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise AttributeError(f"the broker serves no API {name!r}{hint}")
        return ApiFaults(self._interceptor, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_requests()})


def _requests() -> dict[str, type]:
    return {api_of(api.request): api.request for api in registered_apis().values()}
