"""The APIs by name, for editors and type checkers alone: at run time there is what the broker serves."""

from __future__ import annotations

from splashdam.testing.faults.faults import ApiFaults


class ApiNames:
    """One method for each API."""

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
