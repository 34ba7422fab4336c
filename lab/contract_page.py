"""Writes the tables of docs/reference/contract.md: every behaviour through every client, on every cluster.

``python -m lab.contract_page run NAME JAVA`` checks one cluster, and stores the results in
``build/contract``. NAME is ``embedded``, or a version of Kafka whose jars are in ``KAFKA_JARS``; JAVA is the
version of Kafka whose Java clients take part. ``python -m lab.contract_page page NAME…`` writes the page from
stored results; its status is 1 if a behaviour is broken. `make contract` does both.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from support.kafka.contract_clusters import contract_cluster

from lab import ROOT
from lab.drivers.toolchains import all_drivers
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.testing.contract.available_clients import PYTHON_CLIENTS, available, opened
from splashdam.testing.contract.behaviours import all_behaviours
from splashdam.testing.contract.clients.splashdam_client import SplashdamClient
from splashdam.testing.contract.raw_connection import RawConnection
from splashdam.testing.contract.report import across
from splashdam.testing.contract.running import Result, Verdict, hold_all
from splashdam.testing.contract.skipped import ranges_table, skipped_table
from splashdam.wire.messages.api_versions import ApiVersionsRequest

PAGE = ROOT / "docs" / "reference" / "contract.md"
KEPT = ROOT / "build" / "contract"


def run(name: str, java_version: str) -> None:
    """Check one cluster through all available clients, and store the results."""
    java = [Path(os.environ["KAFKA_JARS"]) / java_version]
    drivers = all_drivers(java)
    names = (*PYTHON_CLIENTS, *drivers)
    makers = available(names, drivers, lambda client, why: print(f"without {client}: {why}"))
    with tempfile.TemporaryDirectory() as home, contract_cluster(name, Path(home)) as listeners:
        address = listeners[0].bootstrap_servers
        with opened(makers, address) as clients:
            results = hold_all(
                all_behaviours(), clients, SplashdamClient(address), address, listeners=listeners
            )
        ranges = ranges_at(address)
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{name}-ranges.json").write_text(json.dumps(ranges))
    kept = [[each.behaviour.name, each.client, each.verdict, each.why, each.seconds] for each in results]
    (KEPT / f"{name}.json").write_text(json.dumps(kept))
    for each in results:
        if each.verdict is Verdict.BROKEN:
            print(f"{name}: {each.behaviour.name}, {each.client}: {each.why}")


def ranges_at(address: str) -> dict[int, tuple[int, int]]:
    """Return the versions that a cluster serves, by API key."""
    with RawConnection(*parse_bootstrap_servers(address)[0]) as connection:
        answer = connection.ask(ApiVersionsRequest(), 0)
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def kept_ranges(name: str) -> dict[int, tuple[int, int]]:
    """Load the stored answer of `ranges_at` for a cluster."""
    found = json.loads((KEPT / f"{name}-ranges.json").read_text())
    return {int(key): (first, last) for key, (first, last) in found.items()}


def kept(name: str) -> list[Result]:
    """Load the stored results of a cluster; those of behaviours that are gone are left out."""
    behaviours = {each.name: each for each in all_behaviours()}
    return [
        Result(behaviours[behaviour], client, Verdict(verdict), why, seconds)
        for behaviour, client, verdict, why, seconds in json.loads((KEPT / f"{name}.json").read_text())
        if behaviour in behaviours
    ]


def write(names: Sequence[str]) -> int:
    """Write the page's tables from the stored results, and print a line that sums them up.

    Returns:
        The status of the command: 1 if a behaviour is broken on a cluster.
    """
    results = {name: kept(name) for name in names}
    parts = {
        "behaviours": across(results),
        "requests": ranges_table({name: kept_ranges(name) for name in names}),
        "skipped": skipped_table(),
    }
    text = PAGE.read_text()
    for part, table in parts.items():
        begin, end = f"<!-- {part}: make contract -->\n", f"<!-- end of {part} -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{table}\n{end}{after}"
    PAGE.write_text(text)
    verdicts = Counter(each.verdict for found in results.values() for each in found)
    counts = ", ".join(f"{verdicts[each]} {each.value}" for each in Verdict if verdicts[each])
    print(f"contract: on {' and '.join(names)}: {counts}")
    return int(verdicts[Verdict.BROKEN] > 0)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2], sys.argv[3])
    else:
        raise SystemExit(write(sys.argv[2:]))
