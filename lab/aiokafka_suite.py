"""Runs aiokafka's tests of its producer with ours in its place: ``python -m lab.aiokafka_suite CHECKOUT``.

aiokafka's source distribution holds no tests, so CHECKOUT is a checkout of its repository. The tests run
unchanged, in a copy, against ``splashdam broker``; the fixtures that start Kafka in Docker are replaced by
fixtures with the broker's address. In the test modules, each name that ``splashdam.aiokafka`` exports (the
producer and the errors) is replaced by that export; the consumers stay aiokafka's. The last line is the
score; the exit status is 1 if a test failed that `DIFFERS` does not list.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from lab.broker_process import Broker
from lab.suites import KAFKA_VERSION, score

TESTS = ("test_producer.py", "test_transactional_producer.py")
SETTINGS = {"num.partitions": "2", "transaction.state.log.num.partitions": "4"}

_EARLY = "fails at times: expects that the broker has not answered yet, a moment after the call"
_PATCHES = "replaces or reads attributes of aiokafka's client, sender or accumulator: "
DIFFERS = {
    "test_producer_notopic": _PATCHES + "its metadata",
    "test_producer_context_manager": _PATCHES + "`_sender`, `_closed`",
    "test_producer_start": _PATCHES + "`_closed`",
    "test_producer_send_leader_notfound": _PATCHES + "its metadata",
    "test_producer_send_timeout": _PATCHES + "`client.send`",
    "test_producer_send_error": _PATCHES + "`client.send`",
    "test_producer_correct_time_returned": _PATCHES + "`client.send`",
    "test_producer_send_empty_batch": _PATCHES + "`_sender`",
    "test_producer_send_reenque_resets_waiters": _PATCHES + "`client.send`",
    "test_producer_idempotence_configuration": _PATCHES + "`_sender`, `_txn_manager`",
    "test_producer_indempotence_no_duplicates": _PATCHES + "`client.send`",
    "test_producer_invalid_leader_retry_metadata": _PATCHES + "`_metadata`",
    "test_producer_leader_change_preserves_order": _PATCHES + "`_metadata`, `client.send`",
    "test_producer_sender_errors_propagate_to_producer": _PATCHES + "`_sender`",
    "test_producer_transactional_restart_reaquire_pid": _PATCHES + "`_txn_manager`",
    "test_producer_transactional_raise_out_of_sequence": _PATCHES + "`_txn_manager`",
    "test_producer_transactional_aborting_previous_failure": _PATCHES + "`_txn_manager`",
    "test_producer_transactional_cancel_txn_methods": _PATCHES + "`_txn_manager`",
    "test_producer_warn_unclosed": "an unreferenced producer closes itself, and warns only of lost records",
    "test_producer_send_noack": "expects None with acks=0; splashdam returns metadata with offset -1",
    "test_producer_flush_test": _EARLY,
    "test_producer_transactional_send_batch_outside_txn": _EARLY,
    "test_producer_arguments": "expects the wording of aiokafka's error messages",
}
"""Tests that fail for a known reason; docs/how-to/migration.md says what the differences mean for users."""

_CONFTEST = """
import asyncio, gc, os, pathlib
import pytest
from splashdam import aiokafka as ours


def pytest_collection_modifyitems(items):
    for module in {item.module for item in items}:
        for name in ours.__all__:
            if hasattr(module, name):
                setattr(module, name, getattr(ours, name))


@pytest.fixture(scope="class")
def setup_test_class(request):
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    host, port = os.environ["KAFKA_ADDRESS"].split(":")
    cls = request.cls
    cls.loop, cls.hosts, cls.kafka_version = loop, [f"{host}:{port}"], os.environ["KAFKA_VERSION"]
    cls.kafka_host, cls.kafka_port, cls.kafka_ssl_port = host, int(port), int(port)
    yield
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    asyncio.set_event_loop(None)
    gc.collect()
"""


def run_tests(tests: Path, address: str, report: Path) -> int:
    """Run the tests in a copy of ``tests``, and write the results to ``report`` as JUnit's XML.

    Returns:
        The status of pytest.
    """
    environment = os.environ | {"KAFKA_ADDRESS": address, "KAFKA_VERSION": KAFKA_VERSION}
    with tempfile.TemporaryDirectory(prefix="splashdam-aiokafka-") as folder:
        copy = Path(folder) / "tests"
        shutil.copytree(tests, copy)
        (copy / "conftest.py").write_text(_CONFTEST)
        command = [sys.executable, "-m", "pytest", *(f"tests/{name}" for name in TESTS), "-q", "--tb=short"]
        command += ["-p", "no:asyncio", "-p", "no:trio", "-p", "no:splashdam", "-W", "ignore"]
        command += ["-m", "not ssl", "--timeout", "60", "--junitxml", str(report)]
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a test failed for no known reason."""
    parser = argparse.ArgumentParser(prog="python -m lab.aiokafka_suite", description=__doc__)
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT", help="of aiokafka's repository")
    tests = parser.parse_args(arguments).checkout / "tests"
    if lacking := [name for name in TESTS if not (tests / name).is_file()]:
        parser.error(f"no checkout of aiokafka: {tests / lacking[0]} is missing")
    with tempfile.TemporaryDirectory(prefix="splashdam-suites-") as folder:
        broker = Broker(Path(folder) / "data", Path(folder) / "broker.log", SETTINGS)
        report = Path(folder) / "aiokafka.xml"
        broker.start()
        try:
            status = run_tests(tests, broker.address, report)
        finally:
            broker.kill()
        counts, surprises = score(report, DIFFERS, status)
    for name, why in DIFFERS.items():
        print(f"differs: {name}: {why}")
    for name in surprises:
        print(f"failed: {name}")
    summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(f"suites: aiokafka {version('aiokafka')}, with splashdam's producer: {summary}")
    return int(bool(surprises))


if __name__ == "__main__":
    raise SystemExit(main())
