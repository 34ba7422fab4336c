"""Every behaviour through every client: against each real Kafka, and against the embedded broker."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.kafka.contract_clusters import contract_cluster
from support.kafka.kafka_jars import VERSIONS, classpath

from lab.drivers.toolchains import all_drivers
from splashdam.testing.contract.available_clients import PYTHON_CLIENTS, available, opened
from splashdam.testing.contract.behaviours import all_behaviours
from splashdam.testing.contract.clients.splashdam_client import SplashdamClient
from splashdam.testing.contract.report import remarks
from splashdam.testing.contract.running import Verdict, hold_all
from splashdam.testing.contract.vocabulary import Listener

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1800)]

YOURS = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
CLUSTERS = ("yours",) if YOURS else (*VERSIONS, "embedded")
JARS = Path(os.environ.get("KAFKA_JARS", "."))
JAVA = [JARS / version for version in VERSIONS[:1]]
"""The newest Java client is enough: older ones send older versions, as other clients do."""


@contextmanager
def cluster(which: str, home: Path) -> Iterator[list[Listener]]:
    """Its listeners; the first is for everything but the area security."""
    if which == "yours":
        assert YOURS is not None
        yield [Listener(YOURS)]
        return
    classpath(VERSIONS[0])  # drivers are fetched and built where a real Kafka may be, too
    with contract_cluster(which, home) as listeners:
        yield listeners


@contextmanager
def sockets_left_to_the_collector() -> Iterator[None]:
    """aiokafka and kafka-python do not close the sockets of refused connections; Python warns of each.

    All are collected at the end of the block, in which no local name may hold them: later they would be
    errors of another test.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed", ResourceWarning)
        try:
            yield
        finally:
            gc.collect()


def remarks_of_all_clients(which: str, home: Path) -> tuple[list[str], bool]:
    """Holds every behaviour through every client there is; returns remarks, and whether one is broken."""
    missing: dict[str, str] = {}
    with cluster(which, home) as listeners:
        address = listeners[0].bootstrap_servers
        drivers = all_drivers(JAVA)
        makers = available((*PYTHON_CLIENTS, *drivers), drivers, missing.__setitem__)
        with opened(makers, address) as clients:
            results = hold_all(
                all_behaviours(), clients, SplashdamClient(address), address, listeners=listeners
            )
    said = [f"{each.behaviour.name}, {each.client}: {each.verdict}: {each.why}" for each in remarks(results)]
    said += [f"without {name}: {why}" for name, why in missing.items()]
    return said, Verdict.BROKEN in {each.verdict for each in results}


@pytest.mark.parametrize("which", CLUSTERS)
def test_the_contract(which: str, tmp_path: Path) -> None:
    """It holds through every client that is to be had, or the client differs for a known reason."""
    with sockets_left_to_the_collector():
        said, is_broken = remarks_of_all_clients(which, tmp_path / "kafka")
    print(*said, sep="\n")
    assert not is_broken, "\n".join(said)
