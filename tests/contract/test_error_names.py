"""Clients of the contract report errors by Kafka's names, and other exceptions by their class."""

from __future__ import annotations

import errno
from importlib import import_module

import pytest

CLIENTS = {
    "kafka": ("kafka_python", "KafkaPythonClient"),
    "aiokafka": ("aiokafka_client", "AiokafkaClient"),
}


@pytest.mark.parametrize("package", CLIENTS)
def test_an_errno_of_the_system_is_not_taken_for_a_code_of_kafka(package: str) -> None:
    """ECONNREFUSED is 111, and so was the "error code" of a refused connection."""
    errors = pytest.importorskip(f"{package}.errors")
    module, name = CLIENTS[package]
    client = getattr(import_module(f"splashdam.testing.contract.clients.{module}"), name)("nowhere:1")
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
    assert client.name_of(refused) == "ConnectionRefusedError"
    assert client.name_of(errors.for_code(3)("t")) == "UNKNOWN_TOPIC_OR_PARTITION"
