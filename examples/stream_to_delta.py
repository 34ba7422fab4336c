"""A topic becomes a Delta table, each record once. Run it: python examples/stream_to_delta.py

Needs pip install 'splashdam[spark,delta]' and Java 17 or later. The stream reads all records there are, and
ends; the second run continues where the first one stopped. If the first run were killed after its commit to
the table, the second would find the micro-batch in the table's log, and not write it again.
"""

import json
import tempfile

from deltalake import DeltaTable

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.pipeline import spark_session
from splashdam.pipeline.tables import open_table
from splashdam.pipeline.tables.streaming import into_table, table_schema


def send(servers: str, first: int, count: int) -> None:
    """Send orders as JSON."""
    orders = [json.dumps({"order": number, "price": number * 0.5}) for number in range(first, first + count)]
    with KafkaProducer(bootstrap_servers=servers) as producer:
        producer.send_many("orders", [order.encode() for order in orders]).get(timeout=30)


def run_stream(servers: str, folder: str) -> None:
    """Write all new records into the table. To run for ever: trigger(processingTime="5 seconds")."""
    spark = spark_session("orders")
    rows = (
        spark.readStream.format("kafka-local")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("partition", "offset", "from_json(cast(value as string), 'order long, price double') o")
        .select("partition", "offset", "o.*")
    )
    table = open_table("delta", f"{folder}/orders", schema=table_schema(rows))
    query = into_table(rows, table).option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()


with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(f"{folder}/log") as broker:
    for first, count in ((0, 1_000), (1_000, 500)):
        send(broker.bootstrap_servers, first, count)
        run_stream(broker.bootstrap_servers, folder)
        table = DeltaTable(f"{folder}/orders").to_pyarrow_table()
        orders = set(table["order"].to_pylist())
        print(f"{table.num_rows:,} rows, {len(orders):,} different orders")
