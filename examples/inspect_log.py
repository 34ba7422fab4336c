"""Reads the files of a log from a program: what is in them, and whether they are sound.

`splashdam dump-log` and `splashdam verify-log` show the same on the command line.
"""

from __future__ import annotations

from pathlib import Path

from splashdam import KafkaProducer
from splashdam.storage.inspect.dump import dump_file
from splashdam.storage.inspect.verify import Totals, verify_partition

with KafkaProducer(bootstrap_servers="embedded:./data", compression_type="gzip") as producer:
    for number in range(1_000):
        producer.send("greetings", b"hello %d" % number, partition=0)

directory = Path("data", "greetings-0")
for log in sorted(directory.glob("*.log")):
    for entry in dump_file(str(log)):
        print(f"offsets {entry['baseOffset']} to {entry['lastOffset']}: {entry['size']:,} bytes, "
              f"{entry['compresscodec']}, checksum {'right' if entry['isvalid'] else 'wrong'}")  # fmt: skip

totals = Totals()
findings = list(verify_partition(str(directory), totals))
for finding in findings:
    print(finding.level.value, finding.path, finding.text)
print(f"{totals.records:,} records, {len(findings)} findings")
