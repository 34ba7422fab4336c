"""How a console is started: beside a broker, in a program, for a cluster; and when it is refused."""

from __future__ import annotations

import re
import socket
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner

from splashdam.cli.broker.broker import Serving
from splashdam.cli.commands import splashdam
from splashdam.console import console
from splashdam.console.console import ConsoleSettings
from splashdam.embedded_broker.broker import open_broker
from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.console import open_broker_console
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.errors import CannotListenError, IllegalStateError, KafkaConfigurationError
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles

LINK = re.compile(r"console: (http://127\.0\.0\.1:\d+)/\?token=\S{20,}\n")


def test_an_embedded_broker_has_a_page(capfd: pytest.CaptureFixture[str]) -> None:
    """On a free port; the link is on standard error, and an attribute."""
    with EmbeddedBroker(port=None, console_port=0, topics={"orders": 1}) as broker:
        link = broker.console_link
        with urllib.request.urlopen(link.partition("?")[0], timeout=60) as page:
            assert "orders" in page.read().decode()
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"console: {link}\n")


def test_a_broker_without_a_page_says_so() -> None:
    """With the argument that would give it one."""
    with EmbeddedBroker(port=None) as broker, pytest.raises(IllegalStateError, match="console_port"):
        _ = broker.console_link


def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    """The broker does not start without the page that was asked for."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = EmbeddedBroker(port=None, console_port=port)
        with pytest.raises(CannotListenError, match=f"cannot listen on 127.0.0.1:{port}"):
            broker.start()


async def test_the_command_prints_the_link_behind_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    """``listening on …`` stays the first line of standard output; the link is not there."""
    settings = BrokerSettings.from_options({}, None)
    serving = Serving(None, "127.0.0.1", 0, settings, {}, None, False, (ConsoleSettings(), None))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serving.run)
        err = out = ""
        while not LINK.search(err):
            await trio.sleep(0.01)
            captured = capsys.readouterr()
            out, err = out + captured.out, err + captured.err
        nursery.cancel_scope.cancel()
    assert re.fullmatch(r"listening on 127\.0\.0\.1:\d+\n", out)


@pytest.mark.parametrize("principal", [None, "User:alice"])
async def test_beside_an_authorizer_a_console_needs_a_principal(principal: str | None) -> None:
    """With its permissions the console asks; anonymous ones would show what ACLs forbid, or nothing."""
    network = MemoryNetwork()
    config: dict[str, Any] = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
    }
    async with open_broker(
        "/data", host="broker", port=9092, listen=network.listen, files=MemoryFiles(), config=config
    ) as broker:
        opening = open_broker_console(
            broker, ConsoleSettings(), principal=principal, listen=network.listen, token="t"
        )
        if principal is None:
            with pytest.raises(KafkaConfigurationError, match="name the principal"):
                await opening.__aenter__()
            return
        async with opening as opened:
            assert opened.token == "t"
        assert broker.interception.watch is None


def test_what_is_missing_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started."""
    missing = {"jinja2", "h11"}
    monkeypatch.setattr(console, "find_spec", lambda name: None if name in missing else find_spec(name))
    sentence = "the console needs h11 and jinja2; install with: pip install 'splashdam[console]'"
    with pytest.raises(KafkaConfigurationError, match=re.escape(sentence)):
        console.check_installed()
    done = CliRunner().invoke(splashdam, ["console", "-b", "127.0.0.1:1"])
    assert (done.exit_code, sentence in done.output) == (2, True)


def test_static_files_are_licensed_and_complete() -> None:
    """Each library in the folder is named with its version, and no page loads anything from elsewhere."""
    static = Path(console.__file__).parent / "static"
    licences = (static / "licences.txt").read_text()
    for path in static.glob("*.min.*"):
        assert path.name in licences
    for template in static.parent.joinpath("templates").glob("*.html"):
        text = template.read_text()
        assert not re.search(r'(?:src|href)="https?:|//cdn|<style|style="|\son\w+="', text), template.name
