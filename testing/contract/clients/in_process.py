"""The base of the clients in this process: each operation of the contract is a method."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from splashdam.model.broker_errors import ErrorCode
from splashdam.testing.contract.vocabulary import NOT_IN_CLIENT, Client, Listener, Refused, decoded

_PREFIX = "do_"

CLIENT_ID = "contract"
API_TIMEOUT_MS = 20_000
"""How long a client may retry an operation."""


class ProduceCall(NamedTuple):
    """The arguments of ``produce``, as `Client.produce` passes them; keys and values are base64."""

    topic: str
    records: Sequence[dict[str, Any]]
    acks: str
    idempotent: bool
    compression: str
    transactional_id: str | None
    commit: bool
    create: bool

    def options(self) -> dict[str, Any]:
        """Return the options that have the same names in kafka-python, aiokafka and splashdam."""
        return {
            "acks": "all" if self.acks == "all" else int(self.acks),
            "enable_idempotence": self.idempotent or self.transactional_id is not None,
            "compression_type": None if self.compression == "none" else self.compression,
            "transactional_id": self.transactional_id,
            "linger_ms": 20,
            "request_timeout_ms": API_TIMEOUT_MS // 4,
        }


class InProcessClient(Client):
    """Run the operation ``op`` as the method ``do_<op>``; arguments and results are JSON values.

    Args:
        bootstrap_servers: addresses of the cluster.
        security: options for TLS and SASL, as `Listener.security`.

    Attributes:
        logger: name of the client's logger. It is silenced: errors are part of the results.
    """

    logger = "splashdam"

    def __init__(self, bootstrap_servers: str, security: Mapping[str, Any] | None = None) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.security = security or {}
        # Refusals are expected here; without a handler Python would print each to standard error.
        logging.getLogger(self.logger).addHandler(logging.NullHandler())
        self.ops = frozenset(name.removeprefix(_PREFIX) for name in dir(self) if name.startswith(_PREFIX))

    def twin(self, listener: Listener | None = None) -> Client:
        return type(self)(*(listener or Listener(self.bootstrap_servers, self.security)))

    def call(self, op: str, /, **args: Any) -> Any:
        do = getattr(self, _PREFIX + op, None)
        if do is None:
            raise Refused(NOT_IN_CLIENT, op)
        with self.refusals():
            return do(**args)

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Turn the client's exceptions into `Refused`."""
        try:
            yield
        except Refused:
            raise
        except Exception as error:  # each client has exceptions of its own, without a common base
            raise Refused(self.name_of(error), str(error)) from error

    def name_of(self, error: BaseException) -> str:
        """Return Kafka's name of an error; the exception's class name if no broker reported it."""
        return type(error).__name__


class BlockingClient(InProcessClient):
    """A client whose producer has kafka-python's interface: kafka-python itself, and splashdam."""

    @abstractmethod
    def producer(self, **options: Any) -> Any:
        """Create a ``KafkaProducer`` for the cluster."""

    def do_produce(self, **args: Any) -> list[dict[str, Any]]:
        """KafkaProducer.send."""
        call = ProduceCall(**args)
        producer = self.producer(
            **call.options(),
            delivery_timeout_ms=API_TIMEOUT_MS // 2,
            max_block_ms=API_TIMEOUT_MS // 2,
            allow_auto_create_topics=call.create,
        )
        try:
            if call.transactional_id is not None:
                producer.init_transactions()
                producer.begin_transaction()
            sent = [self._send(producer, call.topic, each) for each in call.records]
            producer.flush(API_TIMEOUT_MS / 1000)
            outcomes = [self._outcome(each) for each in sent]
            if call.transactional_id is not None:
                _end_transaction(producer, call.commit)
            return outcomes
        finally:
            producer.close(timeout=1)

    def do_send_offsets(
        self, group: str, topic: str, offset: int, transactional_id: str, commit: bool
    ) -> None:
        """KafkaProducer.send_offsets_to_transaction."""
        producer = self.producer(transactional_id=transactional_id)
        try:
            producer.init_transactions()
            producer.begin_transaction()
            self.send_offsets(producer, group, topic, offset)
            _end_transaction(producer, commit)
        finally:
            producer.close(timeout=1)

    @abstractmethod
    def send_offsets(self, producer: Any, group: str, topic: str, offset: int) -> None:
        """Add a group's offset for partition 0 to the open transaction."""

    def _send(self, producer: Any, topic: str, record: dict[str, Any]) -> Any:
        try:
            return producer.send(topic, **record_fields(record))
        except Exception as error:  # any exception is this record's outcome
            return error

    def _outcome(self, sent: Any) -> dict[str, Any]:
        if isinstance(sent, Exception):
            return self._failed(sent)
        try:
            metadata = sent.get(timeout=API_TIMEOUT_MS / 1000)
        except Exception as error:  # as above
            return self._failed(error)
        return {"partition": metadata.partition, "offset": metadata.offset}

    def _failed(self, error: Exception) -> dict[str, Any]:
        return {"error": self.name_of(error), "text": str(error)}


def _end_transaction(producer: Any, commit: bool) -> None:
    end = producer.commit_transaction if commit else producer.abort_transaction
    end()


def record_fields(record: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``send`` for a record, by kafka-python's names."""
    return {
        "value": decoded(record["value"]),
        "key": decoded(record["key"]),
        "headers": [(name, decoded(value)) for name, value in record["headers"]],
        "partition": record["partition"],
        "timestamp_ms": record["timestamp_ms"],
    }


def cluster_facts(cluster_id: str, controller: int, brokers: Sequence[int]) -> dict[str, Any]:
    """Return the result of ``describe_cluster``."""
    return {"cluster_id": cluster_id, "controller": controller, "brokers": sorted(brokers)}


def name_of_code(code: int) -> str:
    """Return Kafka's name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"ERROR_{code}"
