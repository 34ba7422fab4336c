"""A program for each extra that uses it with no other extra installed; it needs no network and no Java."""

from __future__ import annotations

PROBES = {
    "compression": """
import tempfile
from splashdam import KafkaProducer
with tempfile.TemporaryDirectory() as data:
    for codec in ("snappy", "lz4", "zstd"):
        with KafkaProducer(bootstrap_servers=f"embedded:{data}", compression_type=codec) as producer:
            producer.send(codec, b"a" * 1000).get(timeout=30)
""",
    "arrow": """
import tempfile
import pyarrow
from splashdam import KafkaProducer
with tempfile.TemporaryDirectory() as data, KafkaProducer(bootstrap_servers=f"embedded:{data}") as producer:
    table = pyarrow.table({"value": [b"a", b"b"]})
    assert producer.send_arrow("rows", table).get(timeout=30).delivered == 2
""",
    "spark": """
import splashdam.pipeline
import splashdam.pipeline.local_source.data_source
import splashdam.pipeline.log_source.data_source
""",
    "delta": """
import splashdam.pipeline.jobs.latest
from splashdam.pipeline.tables.delta_table import deltalake_module
assert deltalake_module().DeltaTable
""",
    "iceberg": """
import splashdam.pipeline.jobs.ingest
import splashdam.pipeline.tables.iceberg_table
from pyiceberg.catalog import load_catalog
load_catalog("splashdam", type="sql", uri="sqlite:///:memory:").close()
""",
    "avro": """
import splashdam.pipeline.jobs.decode
from splashdam.pipeline.values.avro import fingerprint, parsed
schema = parsed('{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}', "R.avsc")
assert len(fingerprint(schema)) == 8
""",
    "otel": "import splashdam.client.observing.otel",
    "telemetry": """
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
import splashdam.client.observing.telemetry
""",
    "prometheus": "import splashdam.client.observing.prometheus",
    "proxy": "import splashdam.net.proxy",
    "console": """
import tempfile, urllib.request
import re2
from splashdam import EmbeddedBroker
with tempfile.TemporaryDirectory() as data, EmbeddedBroker(data, console_port=0) as broker:
    with urllib.request.urlopen(broker.console_link.partition("?")[0], timeout=30) as page:
        assert "splashdam" in page.read().decode()
""",
    "cli": """
import subprocess, sys
command = [sys.executable, "-m", "splashdam.cli", "broker", "--help"]
assert "Serve Kafka clients" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
""",
}
