"""A Chromium, and a broker with its console on TCP. `make console-test` installs what drives it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.console.chromium import NAMES, SMALL, Complaints
from support.running import leftovers

from splashdam import EmbeddedBroker, KafkaProducer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for the tests of a file: while it is open, no asyncio test runs in this thread."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright: `make console-test` installs it"
    )
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium (Debian: chromium)")
    with leftovers.kept(), playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker, with a page."""
    with EmbeddedBroker(
        tmp_path / "data",
        fsync=False,
        config=SMALL,
        topics={"orders": 2, "users": 1},
        console_port=0,
    ) as running:
        yield running


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Iterator[KafkaProducer]:
    """A producer in the same process: its page is shown, too."""
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id="shop") as sending:
        yield sending


@pytest.fixture
def complaints() -> Complaints:
    """Of the page of this test."""
    return Complaints()


@pytest.fixture
def page(browser: Browser, complaints: Complaints) -> Iterator[Page]:
    """A tab with nothing in it; what it complains of fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(120_000)  # a busy machine is no failure
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
    yield opened
    context.close()
    assert complaints == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, which `make console-test` fetches."""
    path = os.environ.get("SPLASHDAM_AXE", "")
    if not path or not Path(path).exists():
        pytest.skip("axe-core was not fetched: `make console-test` does, with npm")
    return Path(path).read_text()
