"""Many records in one call: a list with `send_many`, the columns of an Arrow table with `send_arrow`.

`send_arrow` takes tables with Arrow's PyCapsule interface, so polars and DuckDB work as well as pyarrow here.
"""

from splashdam import KafkaProducer
from splashdam.errors import BulkSendError

try:
    import pyarrow
except ImportError:
    raise SystemExit("this example makes its table with pyarrow: pip install 'splashdam[arrow]'") from None

COUNT = 100_000

with KafkaProducer(bootstrap_servers="embedded:./data", linger_ms=5) as producer:
    # A list: one object is the delivery of all of its records, and gives the future of each one on demand.
    delivery = producer.send_many("readings", [b"%d" % number for number in range(COUNT)])
    report = delivery.get(timeout=60)
    print(
        f"{report.delivered:,} of {report.count:,} delivered; the last: {delivery[-1].get().topic_partition}"
    )

    # A table: keys and values go from its buffers into the batches, without a Python object per row.
    table = pyarrow.table(
        {
            "key": [f"sensor-{number % 50}" for number in range(COUNT)],
            "value": [f'{{"celsius": {20 + number % 7}}}' for number in range(COUNT)],
        }
    )
    report = producer.send_arrow("readings", table).get(timeout=60)
    print(f"{report.delivered:,} rows delivered")

    # If a record is refused, the error has its index and the delivery of the records before it.
    try:
        producer.send_many("readings", [b"good", b"good", "bad", b"good"])
    except BulkSendError as error:
        print(f"stopped at {error.index}: {error.__cause__}")
        if error.delivery is not None:  # an unpickled copy has none
            print(f"{error.delivery.get(timeout=60).delivered} delivered before it")
