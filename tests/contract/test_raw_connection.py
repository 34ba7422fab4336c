"""What speaks the protocol itself: which behaviours it meets, and what it makes of silent brokers."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from splashdam.testing.contract import raw_connection
from splashdam.testing.contract.behaviour import Behaviour, BrokenPromise, Run
from splashdam.testing.contract.raw_connection import ProtocolClient, RawConnection, retried
from splashdam.testing.contract.running import Verdict, hold_all
from splashdam.testing.contract.vocabulary import NOT_IN_CLIENT, PROTOCOL, Client, Refused
from splashdam.wire.header import encode_response
from splashdam.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from splashdam.wire.messages.heartbeat import HeartbeatResponse
from splashdam.wire.messages.list_groups import ListGroupsRequest


@contextmanager
def answering(*answers: bytes) -> Iterator[RawConnection]:
    """With a broker that says this, whatever it is asked, and then closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                for each in answers:
                    peer.recv(1000)
                    peer.sendall(each)
                peer.recv(1000)

        thread = threading.Thread(target=serve)
        thread.start()
        with RawConnection(*server.getsockname()) as conn:
            yield conn
        thread.join()


def versions(number: int) -> bytes:
    listed = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, min_version=0, max_version=3)])
    return b"".join(bytes(each) for each in encode_response(listed, version=0, correlation_id=number))


def test_versions_are_asked_for_once() -> None:
    """The newest that both know; what the broker does not offer is left out of the contract."""
    with answering(versions(1)) as conn:
        assert conn.version_of(ApiVersionsRequest) == 3
        with pytest.raises(Refused, match="does not offer ListGroupsRequest") as caught:
            conn.version_of(ListGroupsRequest)
    assert caught.value.name == NOT_IN_CLIENT


def test_a_broker_that_closes() -> None:
    """Is a promise broken, unless that was the promise."""
    with (
        answering() as conn,
        pytest.raises(BrokenPromise, match="ApiVersionsResponse the broker closed"),
    ):
        conn.ask(ApiVersionsRequest(), 0)
    with answering() as conn:
        conn.send_bytes(b"\xff" * 4)
        conn.expect_closed("size -1")
    with answering(struct.pack(">i", 2) + b"no") as conn:
        conn.send_bytes(b"\xff" * 4)
        with pytest.raises(BrokenPromise, match="b'no'"):
            conn.expect_closed("size -1")


def test_a_silent_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is waited for, and not for ever."""
    monkeypatch.setattr(raw_connection, "_ANSWER_SECONDS", 0.02)
    with answering(b"") as conn, pytest.raises(BrokenPromise, match=r"no answer within 0\.02 s"):
        conn.ask(ApiVersionsRequest(), 0)


def test_passing_errors_are_met_by_asking_again() -> None:
    """A coordinator that loads, and a transaction that ends; no other error."""
    answers = [HeartbeatResponse(error_code=code) for code in (14, 51, 25, 0)]
    found = retried(lambda: answers.pop(0), lambda each: each.error_code)
    assert found.error_code == 25


def test_raw_connections_run_only_protocol_behaviours() -> None:
    """Behaviours that speak are for what speaks, and no others are."""

    class Other(Client):
        name, version, ops = "other", "1", frozenset({"produce"})

    def check(run: Run) -> None:
        """Nothing."""

    speaks = Behaviour("protocol", "speaks", "It speaks.", frozenset({PROTOCOL}), check)
    produces = Behaviour("produce", "produces", "It produces.", frozenset({"produce"}), check)
    results = hold_all([speaks, produces], [Other(), ProtocolClient("host:1")], Other(), "host:1")
    assert [(each.behaviour.name, each.client.partition(" ")[0]) for each in results] == [
        ("speaks", "protocol"),
        ("produces", "other"),
    ]
    assert {each.verdict for each in results} == {Verdict.HOLDS}
