"""Runs the tests of other Kafka clients against the embedded broker: ``make suites``.

kafka-python's source distribution has its integration tests, which take any broker's address. They run
unchanged against ``splashdam broker``, with the settings that they expect. Tests that cannot run, and those
with a known difference, are listed below with the reason. aiokafka's source distribution and kafkajs's npm
package have no such tests; ``lab.aiokafka_suite`` runs aiokafka's from a checkout. The last line is the
score; the status is 1 if a test failed that is not listed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

from lab import ROOT
from lab.broker_process import Broker

BUILD = ROOT / "build" / "suites"
UNSHIPPED = {
    "aiokafka": "its source distribution on PyPI holds no tests",
    "kafkajs": "its package on npm holds one unit test, which talks to no broker",
}
KAFKA_VERSION = "4.3.0"
"""The version that kafka-python infers from the API versions of the broker."""

SETTINGS = {
    "node.id": "0",
    "group.min.session.timeout.ms": "1000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "num.partitions": "4",
    "message.max.bytes": "1000012",
}
LEFT_OUT = {
    "test_sasl_integration": "starts Kafka brokers of its own",
    "test_ssl_integration": "starts Kafka brokers of its own",
}
DIFFERS = {
    "test_describe_configs_broker_resource_returns_configs": (
        "expects a server.properties that sets advertised.listeners; this broker got no such setting"
    ),
}
"""Tests that fail for a known reason."""

_RUN_TO_THE_END = (0, 1)
"""Statuses of pytest: all passed, some failed."""

# The source distribution lacks these files, though its tests import them. With a broker that runs already
# they have nothing to do.
_MISSING_FILES = {
    "test/__init__.py": "",
    "test/service.py": (
        "class ExternalService:\n"
        "    def __init__(self, host, port): pass\n"
        "    def open(self): pass\n"
        "    def stop(self): pass\n\n\n"
        "class SpawnedService: pass\n"
    ),
}


def fetched() -> Path:
    """Return the sources of the kafka-python that is installed, fetched once from PyPI."""
    release = version("kafka-python")
    folder = BUILD / f"kafka_python-{release}"
    if not folder.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        subprocess.run(
            [*pip, "--no-build-isolation", "-d", str(BUILD), f"kafka-python=={release}"], check=True
        )
        with tarfile.open(BUILD / f"{folder.name}.tar.gz") as archive:
            archive.extractall(BUILD, filter="data")
    for name, text in _MISSING_FILES.items():
        path = folder / name
        if not path.exists():
            path.write_text(text)
    return folder


def run_kafka_python(address: str, report: Path) -> int:
    """Run kafka-python's integration tests on a broker; write the results to ``report`` as JUnit's XML.

    Returns:
        The status of pytest.
    """
    environment = os.environ | {
        "KAFKA_URI": f"kafka://{address}",
        "KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_ROOT": str(BUILD),  # must exist, but nothing is run from it
    }
    command = [sys.executable, "-m", "pytest", "test/integration", "-q", "--tb=line", "-W", "ignore"]
    command += ["-o", "addopts=", "-o", "log_level=ERROR", "--timeout", "120", "--junitxml", str(report)]
    for name in LEFT_OUT:
        command += ["--ignore", f"test/integration/{name}.py"]
    return subprocess.run(command, cwd=fetched(), env=environment, check=False).returncode


def score(report: Path, differs: Collection[str], status: int) -> tuple[Counter[str], list[str]]:
    """Count the outcomes of a report, and list the tests that failed and are not known to differ.

    A suite of which no test passes has judged nothing: that counts as a failure. So does one that pytest did
    not run to its end, of which there may be no report.

    Args:
        report: JUnit's XML.
        differs: names of tests that fail for a known reason.
        status: of pytest.
    """
    counts: Counter[str] = Counter()
    surprises = [] if status in _RUN_TO_THE_END else [f"pytest ended with status {status}"]
    if not report.exists():
        return counts, surprises or ["there is no report"]
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.get("name", "")
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        if outcome == "failed" and name in differs:
            outcome = "known to differ"
        elif outcome == "failed":
            surprises.append(name)
        counts[outcome] += 1
    if not counts["passed"]:
        surprises.append("no test has passed")
    return counts, surprises


def main() -> int:
    """Run the command; return 1 if a test failed for no known reason."""
    argparse.ArgumentParser(prog="python -m lab.suites", description=__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="splashdam-suites-") as folder:
        broker = Broker(Path(folder) / "data", Path(folder) / "broker.log", SETTINGS)
        report = Path(folder) / "kafka-python.xml"
        broker.start()
        try:
            status = run_kafka_python(broker.address, report)
        finally:
            broker.kill()
        counts, surprises = score(report, DIFFERS, status)
    for name, why in {**LEFT_OUT, **DIFFERS, **UNSHIPPED}.items():
        print(f"left out: {name}: {why}")
    for name in surprises:
        print(f"failed: {name}")
    summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(f"suites: kafka-python {version('kafka-python')}: {summary}")
    return int(bool(surprises))


if __name__ == "__main__":
    raise SystemExit(main())
