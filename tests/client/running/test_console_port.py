"""``console_port``: a page that a producer serves, in a thread of its own."""

from __future__ import annotations

import os
import socket
import threading
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import splashdam.client.running.console as console_module
from splashdam import AsyncKafkaProducer, KafkaProducer
from splashdam.client.waiters import wait_in_thread
from splashdam.console.console import OpenConsole
from splashdam.model.errors import CannotListenError, IllegalStateError, KafkaConfigurationError
from splashdam.net.listen import tcp_listen


def producer(**options: Any) -> KafkaProducer:
    """A producer whose cluster nobody asks."""
    return KafkaProducer(bootstrap_servers="127.0.0.1:1", client_id="shop", **options)


def address_of(link: str) -> str:
    """The address without the token."""
    return link.partition("/?")[0]


def test_the_page_shows_the_producer_until_it_is_closed(capfd: pytest.CaptureFixture[str]) -> None:
    """Its link goes to standard error; the port is free again then."""
    with producer(console_port=0) as sending:
        assert capfd.readouterr().err == f"console: {sending.console_link}\n"
        address = address_of(sending.console_link)
        with urllib.request.urlopen(f"{address}/producers") as answer:
            assert "shop" in answer.read().decode()
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", int(address.rpartition(":")[2])))


def test_a_busy_port_is_an_error_and_leaves_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither a thread nor a producer."""
    with producer(console_port=0) as sending:
        port = int(address_of(sending.console_link).rpartition(":")[2])
        with pytest.raises(CannotListenError, match=f"127.0.0.1:{port}"):
            producer(console_port=port)


def test_without_the_option_there_is_no_page() -> None:
    """And the link says what to do."""
    with producer() as sending, pytest.raises(IllegalStateError, match="give it a console_port"):
        _ = sending.console_link


@pytest.mark.parametrize("port", [-1, 65_536, "8080", True, 1.5])
def test_what_is_no_port(port: Any) -> None:
    """Is refused before anything starts."""
    with pytest.raises(KafkaConfigurationError, match="console_port"):
        producer(console_port=port)


def test_a_forked_child_does_not_keep_the_port(capfd: pytest.CaptureFixture[str]) -> None:
    """The parent's page goes on, and its port is free when it has ended, though the child still runs."""
    reading, writing = os.pipe()
    with producer(console_port=0) as sending:
        address = address_of(sending.console_link)
        child = os.fork()
        if not child:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        with urllib.request.urlopen(f"{address}/producers") as answer:
            assert answer.status == 200
    try:
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", int(address.rpartition(":")[2])))
            free.listen()
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


def test_a_console_that_ends_slowly_does_not_block_the_loop_of_a_trio_application(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """``close`` joined the console's thread there, for up to a second."""
    tokens: list[trio.lowlevel.TrioToken] = []
    went_on: list[bool] = []

    @asynccontextmanager
    async def slow_console(*_: Any, **__: Any) -> AsyncIterator[OpenConsole]:
        loop_runs = threading.Event()
        try:
            yield OpenConsole(address="http://127.0.0.1:1", token="t")
        finally:
            tokens[0].run_sync_soon(loop_runs.set)
            went_on.append(loop_runs.wait(300))

    async def main() -> None:
        tokens.append(trio.lowlevel.current_trio_token())
        async with AsyncKafkaProducer(bootstrap_servers="127.0.0.1:1", console_port=0):
            pass
        assert went_on == [True]  # and the block has waited for it

    monkeypatch.setattr(console_module, "open_console", slow_console)
    monkeypatch.setattr(console_module, "END_SECONDS", 600)
    trio.run(main)


def test_ctrl_c_while_the_console_begins_leaves_no_listener(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nobody had an object to close, so the port was taken until the process ended."""
    waited: list[Any] = []

    def interrupted(latch: Any, timeout: float | None) -> bool:
        waited.append(latch)
        if len(waited) == 1:
            wait_in_thread(latch, timeout)
            raise KeyboardInterrupt
        return wait_in_thread(latch, timeout)

    listening: list[Any] = []

    async def noted(host: str, port: int) -> Any:
        listening.extend(await tcp_listen(host, port))
        return listening

    monkeypatch.setattr(console_module, "wait_in_thread", interrupted)
    monkeypatch.setattr(console_module, "tcp_listen", noted)
    with pytest.raises(KeyboardInterrupt):
        producer(console_port=0)
    assert [each.socket.fileno() for each in listening] == [-1]
