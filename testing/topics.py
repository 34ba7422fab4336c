"""Topics for tests, made by Kafka's protocol, so that one broker and several are asked alike."""

from __future__ import annotations

import socket

from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import KafkaConnectionError
from splashdam.wire.framing import FrameDecoder
from splashdam.wire.header import decode_response, encode_request
from splashdam.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

_VERSION = 5
_TIMEOUT_S = 30.0
_MAX_ANSWER_BYTES = 1 << 20


def create_topic(bootstrap_servers: str, name: str, partitions: int = -1) -> None:
    """Makes a topic; returns once it is there.

    Args:
        bootstrap_servers: ``host:port`` of a broker that asks for no password.
        name: of the topic.
        partitions: how many; -1 as the broker's settings say, as the replicas are.

    Raises:
        KafkaConnectionError: the broker cannot be reached, or has closed the connection.
        ValueError: the broker refuses the topic; the text says why.
    """
    host, _, port = bootstrap_servers.partition(",")[0].rpartition(":")
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1)
    asked = CreateTopicsRequest(topics=[topic], timeout_ms=int(_TIMEOUT_S * 1000))
    frame = encode_request(asked, version=_VERSION, correlation_id=1, client_id="splashdam-testing")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_S) as connection:
            connection.sendall(b"".join(frame))
            answer = _answer(connection)
    except OSError as error:
        raise KafkaConnectionError(f"creating topic {name} at {host}:{port}: {error}") from error
    for result in answer.topics:
        if result.error_code:
            reason = result.error_message or ErrorCode(result.error_code).name
            raise ValueError(f"topic {name} was not created: {reason}")


def _answer(connection: socket.socket) -> CreateTopicsResponse:
    decoder = FrameDecoder(_MAX_ANSWER_BYTES)
    while data := connection.recv(1 << 16):
        for frame in decoder.feed(data):
            _, answer = decode_response(frame, CreateTopicsResponse, _VERSION)
            return answer
    raise ConnectionError("the broker has closed the connection")
