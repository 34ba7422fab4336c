"""Admin clients that we did not write make ACLs, SCRAM users and quotas, and look at transactions."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern
from kafka.admin import ResourceType as Kind
from kafka.errors import TopicAuthorizationFailedError
from support.clients.foreign_clients import TIMEOUT_SECONDS

from splashdam import KafkaProducer
from splashdam.embedded_broker.configs.security import AUTHORIZER
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.errors import AuthorizationError


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Two listeners: everybody may do everything by the first one, users need ACLs on the other."""
    running = EmbeddedBroker(
        tmp_path_factory.mktemp("data"),
        fsync=False,
        listeners="PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        sasl_enabled_mechanisms="SCRAM-SHA-256",
        authorizer_class_name=AUTHORIZER,
        super_users="User:ANONYMOUS",
    )
    with running:
        yield running


def anna(broker: EmbeddedBroker) -> dict[str, object]:
    """How she comes, in kafka-python's options."""
    return {
        "bootstrap_servers": broker.bootstrap_servers_of("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "anna",
        "sasl_plain_password": "hunter2",
    }


def test_kafka_python(broker: EmbeddedBroker) -> None:
    """A user is made, may not write, is allowed to, and not any more."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        broker.users.add("anna", "hunter2", mechanisms=["SCRAM-SHA-256"])
        admin.create_topics({"t": {"num_partitions": 1, "replication_factor": 1}})
        producer = kafka.KafkaProducer(**anna(broker), enable_idempotence=False)
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send("t", b"a").get(TIMEOUT_SECONDS)
        writes = ACL(
            "User:anna", "*", ACLOperation.WRITE, ACLPermissionType.ALLOW, ResourcePattern(Kind.TOPIC, "t")
        )
        admin.create_acls([writes])
        assert producer.send("t", b"a").get(TIMEOUT_SECONDS).offset == 0
        producer.close()
        found, _ = admin.describe_acls(
            ACLFilter("User:anna", None, ACLOperation.ANY, ACLPermissionType.ANY, writes.resource_pattern)
        )
        assert found == [writes]
        with KafkaProducer(**anna(broker)) as ours:
            assert ours.send("t", b"a").get(TIMEOUT_SECONDS).offset == 1
            admin.delete_acls(
                [
                    ACLFilter(
                        "User:anna", "*", ACLOperation.ANY, ACLPermissionType.ANY, writes.resource_pattern
                    )
                ]
            )
            with pytest.raises(AuthorizationError):
                ours.send("t", b"a").get(TIMEOUT_SECONDS)
    finally:
        admin.close()


def test_confluent_kafka(broker: EmbeddedBroker) -> None:
    """The same by librdkafka: SCRAM users made by API, ACLs made, seen and deleted."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    made = UserScramCredentialUpsertion(
        "anna", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"hunter2"
    )
    for future in admin.alter_user_scram_credentials([made]).values():
        future.result(TIMEOUT_SECONDS)
    described = admin.describe_user_scram_credentials(["anna"])["anna"].result(TIMEOUT_SECONDS)
    assert [each.iterations for each in described.scram_credential_infos] == [8192]
    options = {
        "bootstrap.servers": broker.bootstrap_servers_of("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "anna",
        "sasl.password": "hunter2",
        "log_level": 0,
    }
    consumer = confluent_kafka.Consumer({**options, "group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    reads = AclBinding(
        ResourceType.TOPIC,
        "t",
        ResourcePatternType.LITERAL,
        "User:anna",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([reads]).values():
        future.result(TIMEOUT_SECONDS)
    every = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert admin.describe_acls(every).result(TIMEOUT_SECONDS) == [reads]
    assert [each.result(TIMEOUT_SECONDS) for each in admin.delete_acls([every]).values()] == [[reads]]
    consumer.close()
    gone = UserScramCredentialDeletion("anna", ScramMechanism.SCRAM_SHA_256)
    for future in admin.alter_user_scram_credentials([gone]).values():
        future.result(TIMEOUT_SECONDS)
    assert broker.users.names() == []
