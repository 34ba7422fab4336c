"""Every example runs as its reader would run it: as a program, in an empty folder, warnings being errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.running.house_tree import ROOT

EXAMPLES = ROOT / "examples"

SHOWN = {
    "bulk_arrow.py": "100,000 rows delivered",
    "quickstart.py": "1,000 records sent; the last is at offset 999 of greetings-0",
    "quickstart_trio.py": "1,000 records sent; the last is at offset 999 of greetings-0",
    "quickstart_asyncio.py": "1,000 records sent; the last is at offset 999 of greetings-0",
    "with_asyncio/worker.py": "200 words measured",
    "with_asyncio/tracing.py": "POST /orders/2: send orders, delivered at offset 2, one trace: True",
    "with_asyncio/fastapi_app.py": "the last record is at offset 20",
    "typed_records.py": "at offset 0",
    "callbacks_and_errors.py": "delivered at offsets [0, 1]",
    "interceptors.py": "{'delivered': 100, 'in batches': 101, 'PurgedError': 1}",
    "keys_and_partitions.py": "asked for 3, got 3",
    "inspect_log.py": "1,000 records, 0 findings",
    "security.py": "anna's record is at offset 0",
    "transactions.py": "five orders, five invoices, in spite of the fire",
    "observability.py": 'kafka_producer_record_send_total{client_id="shop"} 1000.0',
    "testing/contract_against_your_cluster.py": "4 holds, 0 differs, 0 broken, 0 left out",
    "three_brokers.py": "both orders are there, in order",
    "testing/local_broker_for_tests.py": "the three orders are there, in order",
}
"""Each example with a line of its output."""

NEEDED = {
    "with_asyncio/tracing.py": ["opentelemetry.sdk"],
    "with_asyncio/fastapi_app.py": ["fastapi", "httpx"],
}
"""The libraries of others without which an example is skipped."""

WARNINGS = ("-W", "error", "-W", "ignore:read_text is:DeprecationWarning", "-W", "ignore:open_text is")
"""All are errors but those of kafka-python, which reads its schemas through a deprecated call."""

SUITES = {"testing/test_with_faults.py": "5 passed"}
"""Examples that pytest runs."""

ON_SPARK = {"stream_to_delta.py"}
"""Run by tests/pipeline/test_example_programs.py, which has a session."""


def run(example: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *WARNINGS, str(EXAMPLES / example), *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def test_every_example_is_run_here() -> None:
    """A new example needs a line in the table above; `flights/` has tests of its own."""
    assert {
        str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py") if path.parent.name != "flights"
    } == SHOWN.keys() | SUITES.keys() | ON_SPARK


@pytest.mark.parametrize("example", SHOWN)
def test_example(example: str, tmp_path: Path) -> None:
    """The example ends well, says nothing on stderr and shows what it promises."""
    if "arrow" in example:
        pytest.importorskip("pyarrow")
    if "observability" in example:
        for library in ("opentelemetry.sdk", "opentelemetry.proto", "prometheus_client"):
            pytest.importorskip(library)
    for library in NEEDED.get(example, ()):
        pytest.importorskip(library)
    if example == "security.py":
        pytest.importorskip("trustme")
    done = run(example, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert SHOWN[example] in done.stdout.splitlines()


@pytest.mark.parametrize("example", SUITES)
def test_suite(example: str, tmp_path: Path) -> None:
    """The example's tests pass in a project of its own, without our configuration."""
    quiet = ("-q", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *quiet, str(EXAMPLES / example)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert SUITES[example] in done.stdout


def test_quickstart_twice(tmp_path: Path) -> None:
    """The log is still there the second time."""
    assert "offset 999 " in run("quickstart.py", tmp_path).stdout
    assert "offset 1999 " in run("quickstart.py", tmp_path).stdout
