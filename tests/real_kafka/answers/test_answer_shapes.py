"""The same requests to the newest Kafka and to ours, in every version: null and empty in the same places."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.kafka.answer_questions import (
    DIFFERENT,
    DIFFERENT_WHERE_REFUSED,
    EXCUSED,
    PASSWORD,
    USER,
    guarded_notes,
    open_notes,
    unasked,
)
from support.kafka.answer_shapes import Shape, differences, unexplained
from support.kafka.kafka_jars import MEASURE, kafka_broker
from support.running.ports import free_port

from splashdam.embedded_broker.configs.security import AUTHORIZER
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.testing.contract.available_clients import EMBEDDED_CONFIG

pytestmark = pytest.mark.timeout(300)

GUARDED = {
    **EMBEDDED_CONFIG,
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
}
_LISTENERS = ("PLAINTEXT:PLAINTEXT", "SASL_PLAINTEXT:SASL_PLAINTEXT", "CONTROLLER:PLAINTEXT")
_PLAIN = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


def kafkas_guard(plain: int, sasl: int, controller: int) -> dict[str, str]:
    """Settings of a Kafka with a listener for who may do everything, and one for a user who may not."""
    told = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        **GUARDED,
        "listeners": f"{told},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": told,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": ",".join(_LISTENERS),
        _PLAIN: f'{module} required user_{USER}="{PASSWORD}";',
    }


def our_open_notes(home: Path) -> dict[str, Shape]:
    """Notes on our broker without an authorizer."""
    with EmbeddedBroker(home, config=EMBEDDED_CONFIG, fsync=False) as ours:
        return open_notes(ours.bootstrap_servers)


def our_guarded_notes(home: Path) -> dict[str, Shape]:
    """Notes on our broker with an authorizer."""
    listeners = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
    ours = EmbeddedBroker(home, config={**GUARDED, "listeners": listeners}, fsync=False)
    ours.users.add(USER, PASSWORD)
    with ours:
        return guarded_notes(*map(ours.bootstrap_servers_of, ("PLAINTEXT", "SASL_PLAINTEXT")))


@pytest.mark.kafka
def test_null_and_empty_are_where_kafka_has_them(tmp_path: Path) -> None:
    """Error codes are the same, too."""
    with kafka_broker(MEASURE, tmp_path / "kafka", EMBEDDED_CONFIG) as broker:
        theirs = open_notes(broker.bootstrap_servers)
    assert unexplained(differences(our_open_notes(tmp_path / "ours"), theirs), DIFFERENT) == []


@pytest.mark.kafka
def test_they_are_where_clients_are_refused(tmp_path: Path) -> None:
    """With Kafka's authorizer: ACLs are made by a super user, everything is asked by a user without any."""
    plain, sasl, controller = free_port(), free_port(), free_port()
    with kafka_broker(MEASURE, tmp_path / "kafka", kafkas_guard(plain, sasl, controller)):
        theirs = guarded_notes(f"127.0.0.1:{plain}", f"127.0.0.1:{sasl}")
    found = differences(our_guarded_notes(tmp_path / "ours"), theirs)
    assert unexplained(found, DIFFERENT_WHERE_REFUSED) == []


def test_every_text_and_list_of_every_answer_is_asked_for(tmp_path: Path) -> None:
    """Whatever may be null, too; or it is excused. A new API or field wants a question."""
    notes = {**our_open_notes(tmp_path / "open"), **our_guarded_notes(tmp_path / "guarded")}
    assert sorted(unasked(notes)) == sorted(EXCUSED)
