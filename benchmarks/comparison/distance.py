"""A broker 50 ms away: the value of five batches in flight when each answer takes long.

The sink delays every answer and reads further requests meanwhile, like a distant broker. There is one
partition, because several would hide how many batches a client keeps in flight for one; batches have 16 KiB,
Kafka's default.
"""

from __future__ import annotations

import sys

from sink.running import HERE

from splashdam.cli.measuring import scenarios as table
from splashdam.cli.measuring.scenarios import OURS, Contender, Scenario

ROUND_TRIP_MS = 50
PARTITIONS = 1

FAR = Contender("splashdam send()", OURS, "send", 8_000)
KP_FAR = Contender("kafka-python send()", "kafka-python", "send", 1_500, table.KAFKA_PYTHON)
AK_FAR = Contender("aiokafka send()", "aiokafka", "send", 1_500, table.AIOKAFKA)

SCENARIOS = (
    Scenario(
        name="far-1k",
        title=f"{ROUND_TRIP_MS} ms away, one partition, batches of 16 KiB, 1,000 B",
        contenders=(FAR, KP_FAR, AK_FAR),
        kind="distance",
        size=1_000,
        batch_bytes=16_384,
        short=2,
        note="acks=all and idempotence for all: five batches may be under way, where the client can do that",
    ),
)


def far_sink_command() -> list[str]:
    """Return the command of the sink that answers late: the one in Python, which is fast enough for this."""
    sink = HERE / "sink.py"
    return [sys.executable, str(sink), str(PARTITIONS), str(ROUND_TRIP_MS)]
