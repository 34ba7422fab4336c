"""kafka-acls, kafka-configs (users, clients) and kafka-transactions, Kafka's own, on the embedded broker."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support.kafka.kafka_jars import config_command, need_tools, run_tool

from splashdam.embedded_broker.configs.security import AUTHORIZER
from splashdam.embedded_broker.embedded import EmbeddedBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


def test_acls_quotas_users_and_transactions(version: str, tmp_path: Path) -> None:
    """What each tool changes, it shows."""
    need_tools(version)
    configs = config_command(version)
    acls = "kafka.admin.AclCommand" if version.startswith("3.") else "org.apache.kafka.tools.AclCommand"
    with EmbeddedBroker(tmp_path, authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS") as broker:
        servers = ("--bootstrap-server", broker.bootstrap_servers)
        allow = ("--add", "--allow-principal", "User:anna", "--operation", "Read", "--topic", "orders")
        run_tool(version, acls, *servers, *allow, "--resource-pattern-type", "prefixed")
        listed = run_tool(version, acls, *servers, "--list")
        assert "name=orders, patternType=PREFIXED" in listed
        assert "(principal=User:anna, host=*, operation=READ, permissionType=ALLOW)" in listed

        user = ("--entity-type", "users", "--entity-name", "anna")
        scram = "SCRAM-SHA-256=[iterations=8192,password=hunter2]"
        run_tool(version, configs, *servers, "--alter", *user, "--add-config", scram)
        both = (*user, "--entity-type", "clients", "--entity-default")
        run_tool(version, configs, *servers, "--alter", *both, "--add-config", "producer_byte_rate=1024")
        assert broker.users.mechanisms_of("anna") == ["SCRAM-SHA-256"]
        shown = run_tool(version, configs, *servers, "--describe", *both)
        assert "user-principal 'anna', the default client-id are producer_byte_rate=1024.0" in shown

        options = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
        admin = AdminClient(options)
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(300)
        producer = confluent_kafka.Producer({**options, "transactional.id": "tx-1"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("orders", b"x")
        producer.flush(30)
        assert "Ongoing" in run_tool(version, TRANSACTIONS, *servers, "list")
        described = run_tool(version, TRANSACTIONS, *servers, "describe", "--transactional-id", "tx-1")
        assert "orders-0" in described
        where = ("--topic", "orders", "--partition", "0")
        producers = run_tool(version, TRANSACTIONS, *servers, "describe-producers", *where)
        assert producers.splitlines()[1].split()[-1] == "0"  # where its transaction begins
        run_tool(version, TRANSACTIONS, *servers, "find-hanging", "--broker-id", "1")
        producer.abort_transaction(30)
