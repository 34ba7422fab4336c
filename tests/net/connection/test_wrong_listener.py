"""The probe of a listener that ended a connection early."""

from __future__ import annotations

import pytest
import trio

from splashdam.model.broker_errors import NetworkExceptionError
from splashdam.model.errors import WrongListenerError
from splashdam.net.connection.wrong_listener import wrong_listener
from splashdam.net.memory import MemoryStream, memory_stream_pair


@pytest.mark.parametrize("name", ["kafka", "", ".kafka", "a..b", "x" * 300, "x\0y"])
async def test_a_name_that_tls_cannot_ask_for_is_probed_without_it(name: str, nursery: trio.Nursery) -> None:
    """A proxy may reach such a host. OpenSSL's error ended the producer's loop, as if it were a bug."""

    async def refuse(listener: MemoryStream) -> None:
        assert (await listener.receive_some(1))[0] == 0x16
        await listener.send_all(b"\x15\x03\x03\x00\x02\x02\x28")  # a TLS alert

    async def connect(host: str, port: int) -> MemoryStream:
        ours, theirs = memory_stream_pair()
        nursery.start_soon(refuse, theirs)
        return ours

    found = await wrong_listener(
        NetworkExceptionError("it is gone"), connect, name, 9092, requests_sent=1, authenticates=False
    )
    assert isinstance(found, WrongListenerError)
    assert "speaks TLS" in str(found)
    # The command line was told of an option of Python.
    assert found.told({"security_protocol": "-X"}.__getitem__).endswith("; set -X to SSL or SASL_SSL")
