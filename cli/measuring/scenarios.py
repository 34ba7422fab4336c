"""The table of all comparisons: a row for each scenario."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import attrs

from splashdam.cli.measuring.task import TUNED_BATCH_BYTES, Task

Kind: TypeAlias = Literal["throughput", "latency", "cold start", "distance", "machine"]

OURS = "splashdam"

LATENCY_RECORDS = 2_100
"""Records of a latency run: two seconds at 1,000 a second, after the warm-up; a small scale has fewer."""
_FEWEST_LATENCY_RECORDS = 200


@attrs.frozen
class Contender:
    """One client in one scenario.

    Attributes:
        label: its name in the tables.
        client: the distribution.
        call: its way to send, a key of ``CALLS`` in the client's file.
        records: number of records in a full run at 100 B, which takes about a second.
        needs: modules that it imports.
        pure: whether splashdam runs with the Python twin of its kernel.
        absent: why it cannot be measured here, beside missing modules; "" if it can.
    """

    label: str
    client: str
    call: str
    records: int
    needs: tuple[str, ...] = ()
    pure: bool = False
    absent: str = ""

    @property
    def ours(self) -> bool:
        return self.client == OURS


@attrs.frozen(kw_only=True)
class Scenario:
    """One comparison.

    Attributes:
        name: for the command line and for the goals.
        title: heading of its table.
        contenders: the first is splashdam; the others are compared with it.
        kind: decides which figures it has.
        size: bytes of a value.
        key_bytes: bytes of a key, 0 for none.
        compression: codec.
        tuned: whether all clients get the same batch size, linger and request size, or keep their defaults.
        linger_ms: if tuned.
        batch_bytes: if tuned.
        partitions: of the topic, where the comparison makes its own.
        per_second: pace of a latency run; 0: each record follows when the last one is acknowledged.
        short: number of contenders, from the first, in the short run; 0 leaves the scenario out.
        note: printed below its table.
    """

    name: str
    title: str
    contenders: Sequence[Contender]
    kind: Kind = "throughput"
    size: int = 100
    key_bytes: int = 0
    compression: str = "none"
    tuned: bool = True
    linger_ms: float = 5.0
    batch_bytes: int = TUNED_BATCH_BYTES
    partitions: int = 4
    per_second: float = 1_000
    short: int = 0
    note: str = ""

    def task(self, contender: Contender, scale: float = 1.0) -> Task:
        """Return the task of a contender; ``scale`` is a factor on the number of records."""
        return Task(
            client=contender.client,
            call=contender.call,
            size=self.size,
            count=self._count(contender, scale),
            key_bytes=self.key_bytes,
            compression=self.compression,
            tuned=self.tuned,
            linger_ms=self.linger_ms,
            batch_bytes=self.batch_bytes,
            partitions=self.partitions,
            per_second=self.per_second,
        )

    def _count(self, contender: Contender, scale: float) -> int:
        if self.kind == "latency":
            return max(_FEWEST_LATENCY_RECORDS, min(LATENCY_RECORDS, int(10 * LATENCY_RECORDS * scale)))
        return max(1, int(self.full_count(contender) * scale))

    def full_count(self, contender: Contender) -> float:
        """Return the number of records of a full run; not of a latency run, whose time is limited."""
        if self.kind == "distance":
            return contender.records
        return contender.records * next(share for size, share in _SHARES if self.size >= size)


_SHARES = ((10_000, 0.08), (1_000, 0.4), (0, 1.0))
"""Factors on the number of records, by the smallest size to which they apply: of large records fewer."""

SEND = Contender("splashdam send()", OURS, "send", 2_000_000)
KEEP = Contender("splashdam send(), futures kept", OURS, "keep", 1_000_000)
CALLBACK = Contender("splashdam callback", OURS, "callback", 1_000_000)
MANY = Contender("splashdam send_many()", OURS, "send_many", 4_000_000)
ARROW = Contender("splashdam send_arrow()", OURS, "send_arrow", 4_000_000, needs=("pyarrow",))
PURE = Contender("splashdam send(), Python twin", OURS, "send", 400_000, pure=True)
PACED = Contender("splashdam callback", OURS, "paced", 0)
BLOCKING = Contender("splashdam send().get()", OURS, "blocking", 0)
AWAITING = Contender("splashdam await send()", OURS, "awaiting", 0)

KAFKA_PYTHON = ("kafka",)
KP_SEND = Contender("kafka-python send()", "kafka-python", "send", 60_000, KAFKA_PYTHON)
KP_KEEP = Contender("kafka-python send(), futures kept", "kafka-python", "keep", 60_000, KAFKA_PYTHON)
KP_CALLBACK = Contender("kafka-python callback", "kafka-python", "callback", 50_000, KAFKA_PYTHON)
KP_PACED = Contender("kafka-python callback", "kafka-python", "paced", 0, KAFKA_PYTHON)
KP_BLOCKING = Contender("kafka-python send().get()", "kafka-python", "blocking", 0, KAFKA_PYTHON)

CONFLUENT = ("confluent_kafka",)
CK_PRODUCE = Contender("confluent-kafka produce()", "confluent-kafka", "produce", 1_000_000, CONFLUENT)
CK_CALLBACK = Contender("confluent-kafka callback", "confluent-kafka", "callback", 500_000, CONFLUENT)
CK_BATCH = Contender(
    "confluent-kafka produce_batch()", "confluent-kafka", "produce_batch", 1_000_000, CONFLUENT
)
CK_PACED = Contender("confluent-kafka callback", "confluent-kafka", "paced", 0, CONFLUENT)
CK_BLOCKING = Contender("confluent-kafka produce(), poll()", "confluent-kafka", "blocking", 0, CONFLUENT)

AIOKAFKA = ("aiokafka",)
AK_SEND = Contender("aiokafka send()", "aiokafka", "send", 120_000, AIOKAFKA)
AK_CALLBACK = Contender("aiokafka callback", "aiokafka", "callback", 100_000, AIOKAFKA)
AK_BATCHES = Contender("aiokafka send_batch()", "aiokafka", "batches", 1_000_000, AIOKAFKA)
AK_PACED = Contender("aiokafka callback", "aiokafka", "paced", 0, AIOKAFKA)
AK_BLOCKING = Contender("aiokafka send_and_wait()", "aiokafka", "blocking", 0, AIOKAFKA)

ONE_BY_ONE = (SEND, CK_PRODUCE, KP_SEND, AK_SEND)
CALLED_BACK = (CALLBACK, CK_CALLBACK, KP_CALLBACK, AK_CALLBACK)
IN_BULK = (MANY, CK_BATCH, AK_BATCHES, ARROW)
KEYED = (SEND, CK_PRODUCE)
WAITING = (BLOCKING, CK_BLOCKING, KP_BLOCKING, AK_BLOCKING)
IN_A_TASK = (AWAITING, AK_BLOCKING, CK_BLOCKING)
STEADY = (PACED, CK_PACED, KP_PACED, AK_PACED)
STARTING = (
    Contender("splashdam", OURS, "first_ack", 1),
    Contender("import trio alone", "trio", "import", 0),
    Contender("confluent-kafka", "confluent-kafka", "first_ack", 1, CONFLUENT),
    Contender("kafka-python", "kafka-python", "first_ack", 1, KAFKA_PYTHON),
    Contender("aiokafka", "aiokafka", "first_ack", 1, AIOKAFKA),
)

CK_AIO = "confluent-kafka AIOProducer"
GATHERED = (
    Contender("splashdam asyncio, gather()", OURS, "gathered", 400_000),
    Contender("aiokafka, gather()", "aiokafka", "gathered", 100_000, AIOKAFKA),
    Contender(f"{CK_AIO}, gather()", "confluent-kafka", "gathered", 200_000, CONFLUENT),
)
GATHERED_WITH_HEADERS = (
    Contender("splashdam asyncio, gather()", OURS, "gathered_with_headers", 400_000),
    Contender("aiokafka, gather()", "aiokafka", "gathered_with_headers", 100_000, AIOKAFKA),
)
IN_TASKS = (
    Contender("splashdam asyncio, 100 tasks", OURS, "in_tasks", 200_000),
    Contender("aiokafka, 100 tasks", "aiokafka", "in_tasks", 50_000, AIOKAFKA),
    Contender(f"{CK_AIO}, 100 tasks", "confluent-kafka", "in_tasks", 50_000, CONFLUENT),
)
AWAITED = (
    Contender("splashdam send_and_wait()", OURS, "awaited", 0),
    Contender("aiokafka send_and_wait()", "aiokafka", "awaited", 0, AIOKAFKA),
)

QUEUE = "produce() without a callback only fills a queue and reports no outcome: see its memory"
PER_BATCH = (
    "aiokafka has one future for each batch and produce_batch() none; splashdam has one for each record;"
    " the memory of send_arrow() includes pyarrow"
)
ITS_OWN = "every client's own defaults, but acks=all and idempotence for all"
PACE = "1,000 records a second; from the call until the program learns of the acknowledgement"
REFUSED = "confluent-kafka's AIOProducer takes no headers"
BUFFERED = "AIOProducer collects as many records as there are tasks; by default it would wait for a second"
NO_PACE = "each record follows when the program knows that the last one is acknowledged"
FRESH = "a fresh process, files in the page cache; acks=all and idempotence"

SCENARIOS: Sequence[Scenario] = (
    Scenario(name="send-100", title="send(), 100 B", contenders=ONE_BY_ONE, short=4, note=QUEUE),
    Scenario(name="send-10", title="send(), 10 B", contenders=ONE_BY_ONE, size=10, note=QUEUE),
    Scenario(name="send-1k", title="send(), 1 KiB", contenders=ONE_BY_ONE, size=1024, short=2, note=QUEUE),
    Scenario(name="send-10k", title="send(), 10 KiB", contenders=ONE_BY_ONE, size=10_240, note=QUEUE),
    Scenario(
        name="keys-100", title="send(), 100 B, keys of 16 B", contenders=ONE_BY_ONE, key_bytes=16, note=QUEUE
    ),
    Scenario(name="kept-100", title="send(), 100 B, every future asked", contenders=(KEEP, KP_KEEP)),
    Scenario(name="callback-100", title="a callback for each, 100 B", contenders=CALLED_BACK, short=2),
    Scenario(name="callback-1k", title="a callback for each, 1 KiB", contenders=CALLED_BACK, size=1024),
    Scenario(name="bulk-100", title="bulk, 100 B", contenders=IN_BULK, short=3, note=PER_BATCH),
    Scenario(name="bulk-1k", title="bulk, 1 KiB", contenders=IN_BULK, size=1024, short=2, note=PER_BATCH),
    Scenario(
        name="defaults-100",
        title="defaults, 100 B",
        contenders=ONE_BY_ONE,
        tuned=False,
        short=2,
        note=ITS_OWN,
    ),
    Scenario(
        name="defaults-1k",
        title="defaults, 1 KiB",
        contenders=ONE_BY_ONE,
        tuned=False,
        size=1024,
        note=ITS_OWN,
    ),
    Scenario(name="lz4-100", title="lz4, 100 B", contenders=ONE_BY_ONE, compression="lz4"),
    Scenario(name="lz4-1k", title="lz4, 1 KiB", contenders=ONE_BY_ONE, compression="lz4", size=1024),
    Scenario(name="zstd-100", title="zstd, 100 B", contenders=ONE_BY_ONE, compression="zstd"),
    Scenario(name="zstd-1k", title="zstd, 1 KiB", contenders=ONE_BY_ONE, compression="zstd", size=1024),
    Scenario(
        name="keyed-lz4",
        title="lz4, 100 B, keys of 16 B, 8 partitions",
        contenders=KEYED,
        compression="lz4",
        key_bytes=16,
        partitions=8,
        note=QUEUE,
    ),
    Scenario(
        name="keyed-zstd",
        title="zstd, 100 B, keys of 16 B, 8 partitions",
        contenders=KEYED,
        compression="zstd",
        key_bytes=16,
        partitions=8,
        note=QUEUE,
    ),
    Scenario(
        name="twin-100", title="no compiler: the Python twin, 100 B", contenders=(PURE, KP_SEND), short=2
    ),
    Scenario(
        name="wait-0",
        title="latency, waiting for each record, linger 0",
        contenders=WAITING,
        kind="latency",
        linger_ms=0,
        short=4,
        note=PACE,
    ),
    Scenario(
        name="wait-tight",
        title="latency, one record right after the other, linger 0",
        contenders=WAITING,
        kind="latency",
        linger_ms=0,
        per_second=0,
        note=NO_PACE,
    ),
    Scenario(
        name="await-0",
        title="latency, a task awaits each record, linger 0",
        contenders=IN_A_TASK,
        kind="latency",
        linger_ms=0,
        note=PACE,
    ),
    Scenario(
        name="await-tight",
        title="latency, a task awaits one record right after the other, linger 0",
        contenders=IN_A_TASK,
        kind="latency",
        linger_ms=0,
        per_second=0,
        note=NO_PACE,
    ),
    Scenario(
        name="steady-0",
        title="latency, steady stream, linger 0",
        contenders=STEADY,
        kind="latency",
        linger_ms=0,
        note=PACE,
    ),
    Scenario(
        name="steady-5",
        title="latency, steady stream, linger 5 ms",
        contenders=STEADY,
        kind="latency",
        note=PACE,
    ),
    Scenario(
        name="asyncio-gather", title="asyncio: send all, gather the futures, 100 B", contenders=GATHERED
    ),
    Scenario(
        name="asyncio-headers",
        title="asyncio: the same with two headers for each record",
        contenders=GATHERED_WITH_HEADERS,
        note=REFUSED,
    ),
    Scenario(
        name="asyncio-tasks",
        title="asyncio: 100 tasks that wait for each record, 100 B, linger 0",
        contenders=IN_TASKS,
        linger_ms=0,
        note=BUFFERED,
    ),
    Scenario(
        name="asyncio-wait",
        title="asyncio: latency of await send_and_wait(), linger 0",
        contenders=AWAITED,
        kind="latency",
        linger_ms=0,
        note=PACE,
    ),
    Scenario(
        name="cold-start",
        title="import and first acknowledged record",
        contenders=STARTING,
        kind="cold start",
        tuned=False,
        short=3,
        note=FRESH,
    ),
)
