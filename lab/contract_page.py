"""Writes the tables of docs/reference/contract.md: every behaviour through every client, on every cluster.

``python -m lab.contract_page run CLUSTER NEWEST`` checks one cluster, and stores the results in
``build/contract``. CLUSTER is ``embedded``, or a version of Kafka whose jars are in ``KAFKA_JARS``; NEWEST is
the version of Kafka whose Java clients take part. ``python -m lab.contract_page page CLUSTER…`` writes the
page from stored results; its status is 1 if a behaviour is broken, 2 if there are no results. `make contract`
does both.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.kafka.contract_clusters import contract_cluster
from support.kafka.kafka_jars import why_missing

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
JAVA = "java"


class NoResultsError(Exception):
    """There is nothing to write of a cluster; the message says why."""


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
    return {int(key): (first, last) for key, (first, last) in _stored(f"{name}-ranges").items()}


def kept(name: str) -> list[Result]:
    """Load the stored results of a cluster; those of behaviours that are gone are left out."""
    behaviours = {each.name: each for each in all_behaviours()}
    return [
        Result(behaviours[behaviour], client, Verdict(verdict), why, seconds)
        for behaviour, client, verdict, why, seconds in _stored(name)
        if behaviour in behaviours
    ]


def _stored(stem: str) -> Any:
    path = KEPT / f"{stem}.json"
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise NoResultsError(f"{path}: {error.strerror}; `make contract` stores results there") from None
    except ValueError:
        raise NoResultsError(f"{path} is broken: remove it, and run `make contract`") from None


def missing_clients(results: Sequence[Result]) -> list[str]:
    """Return the clients that took part in none of these results, because they are not installed."""
    there = {each.client.partition(" ")[0] for each in results}
    return [each for each in (*PYTHON_CLIENTS, *all_drivers(()), JAVA) if each not in there]


def write(names: Sequence[str]) -> int:
    """Write the page's tables from the stored results, and print a line that sums them up.

    Returns:
        The status of the command: 1 if a behaviour is broken on a cluster.

    Raises:
        NoResultsError: a cluster has no results; the page stays as it is.
    """
    results = {name: kept(name) for name in names}
    for name, found in results.items():
        if not found:
            raise NoResultsError(f"the stored results of {name} are empty: run `make contract`")
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
    lacking = sorted({client for found in results.values() for client in missing_clients(found)})
    without = f"; without {', '.join(lacking)}" if lacking else ""
    print(f"contract: on {' and '.join(names)}: {counts}{without}")
    return int(verdicts[Verdict.BROKEN] > 0)


def _why_not(cluster: str) -> str | None:
    if not os.environ.get("KAFKA_JARS"):
        return "KAFKA_JARS is not set: it names the folder with Kafka's jars, which `make kafka` fetches"
    return None if cluster == "embedded" else why_missing(cluster)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a behaviour is broken."""
    parser = argparse.ArgumentParser(prog="python -m lab.contract_page", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="check one cluster, and store the results")
    runs.add_argument("cluster", metavar="CLUSTER", help="`embedded`, or a version of Kafka")
    runs.add_argument("newest", metavar="NEWEST", help="the version of Kafka's Java clients")
    pages = commands.add_parser("page", help="write the page from stored results")
    pages.add_argument("clusters", metavar="CLUSTER", nargs="+", help="as for `run`")
    given = parser.parse_args(arguments)
    if given.command == "run":
        if why := _why_not(given.cluster):
            parser.error(why)
        run(given.cluster, given.newest)
        return 0
    try:
        return write(given.clusters)
    except NoResultsError as error:
        parser.error(str(error))


if __name__ == "__main__":
    raise SystemExit(main())
