"""docs/reference/contract.md says of every request of Kafka whether it is served, and why not."""

from __future__ import annotations

import pytest
from support.running.house_tree import ROOT

from splashdam import EmbeddedBroker
from splashdam.testing.contract.raw_connection import RawConnection
from splashdam.testing.contract.skipped import OTHER_VERSIONS, SKIPPED, ranges_table, skipped_table
from splashdam.wire.messages.api_versions import ApiVersionsRequest

KEYS = range(95)
"""Those of Kafka 4.4."""

TELEMETRY = {71, 72}
"""Served only where a receiver of clients' metrics is configured, as Kafka does."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> set[int]:
    with EmbeddedBroker(tmp_path_factory.mktemp("served"), fsync=False) as broker:
        host, _, port = broker.bootstrap_servers.partition(":")
        with RawConnection(host, int(port)) as conn:
            return {each.api_key for each in conn.ask(ApiVersionsRequest(), 0).api_keys}


def test_every_request_is_served_or_left_out(served: set[int]) -> None:
    """No request is in both lists."""
    assert served.isdisjoint(SKIPPED)
    assert served | SKIPPED.keys() | TELEMETRY == set(KEYS)
    assert set(OTHER_VERSIONS) <= served


def test_the_page_is_up_to_date() -> None:
    """`make contract` writes what is left out from here."""
    assert skipped_table() in (ROOT / "docs" / "reference" / "contract.md").read_text()


def test_ranges() -> None:
    """A line for each request that somebody serves."""
    table = ranges_table({"ours": {0: (0, 13)}, "theirs": {0: (0, 12), 57: (0, 2)}})
    assert table.splitlines()[2:] == ["| 0 | Produce | 0-13 | 0-12 |", "| 57 | UpdateFeatures |  | 0-2 |"]
