"""Kafka's own load tool, the class of ``kafka-producer-perf-test``: its command, and what it prints."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from broker.running import default_jars

from splashdam.cli.measuring.scenarios import Scenario
from splashdam.cli.measuring.task import TUNED_REQUEST_BYTES, values
from splashdam.cli.measuring.turns import TIMEOUT_SECONDS, Destination, MeasurementError, Run

MAIN_CLASS = "org.apache.kafka.tools.ProducerPerformance"
JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)
"""The options that Kafka's own scripts start every program with, but for the log."""

HEAP = "-Xmx512M"
"""That of the script ``kafka-producer-perf-test.sh``."""

_SUMMARY = re.compile(r"^(\d+) steady state records sent, ([\d.]+) records/sec \(", re.MULTILINE)


def properties(scenario: Scenario) -> dict[str, str]:
    """Return the producer's settings: those that the other clients get, by Kafka's names."""
    return {
        "acks": "all",
        "enable.idempotence": "true",
        "linger.ms": f"{scenario.linger_ms:g}",
        "batch.size": str(scenario.batch_bytes),
        "max.request.size": str(TUNED_REQUEST_BYTES),
    }


def command(
    version: str, scenario: Scenario, destination: Destination, records: int, payloads: Path
) -> list[str]:
    """Return the command that sends so many records of a file, as fast as it can.

    The first record is a warm-up: the clock starts when the producer knows the topic, as with every client.
    """
    settings = [f"{name}={value}" for name, value in properties(scenario).items()]
    return [
        *("java", HEAP, *JVM, "-cp", f"{default_jars()}/{version}/*", MAIN_CLASS),
        *("--bootstrap-server", destination.bootstrap, "--topic", destination.topic),
        *("--num-records", str(records), "--warmup-records", "1", "--throughput", "-1"),
        *("--payload-file", str(payloads), "--command-property", *settings),
    ]


def parsed(printed: str) -> tuple[int, float]:
    """Return the number of records after the warm-up, and their rate, which the tool prints last.

    Raises:
        MeasurementError: there is no such line.
    """
    found = _SUMMARY.findall(printed)
    if not found:
        raise MeasurementError(f"kafka-producer-perf-test printed no rate:\n{printed.strip()[-3000:]}")
    count, rate = found[-1]
    return int(count), float(rate)


def measure(version: str, scenario: Scenario, destination: Destination, records: int) -> Run:
    """Run the tool, and return its rate.

    Raises:
        MeasurementError: it failed, or another number of records arrived than it was told to send.
    """
    with tempfile.NamedTemporaryFile(prefix="splashdam-bench-") as payloads:
        payloads.write(b"\n".join(values(scenario.size)))
        payloads.flush()
        printed = _run(command(version, scenario, destination, records, Path(payloads.name)))
    count, rate = parsed(printed)
    arrived = destination.counts()["records"]
    if not records == count + 1 == arrived:
        what = f"kafka-producer-perf-test was told to send {records:,} records"
        raise MeasurementError(f"{what}, it counted {count + 1:,}, {arrived:,} arrived")
    return {
        "count": count,
        "records": arrived,
        "records_per_second": rate,
        "megabytes_per_second": rate * scenario.size / 1e6,
        "options": properties(scenario),
        "version": version,
    }


def _run(arguments: Sequence[str]) -> str:
    english = {**os.environ, "LC_ALL": "C"}  # in other languages its numbers have a decimal comma
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, env=english
        )
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(f"kafka-producer-perf-test was not done within {TIMEOUT_SECONDS} s") from error
    if done.returncode != 0:
        raise MeasurementError(f"kafka-producer-perf-test failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout
