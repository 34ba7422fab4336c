"""Asks a broker with files on disk for the dearest things there are, and tells how long its loop was kept.

``python -m support.broker.hold_up_the_loop <directory>`` prints seconds of CPU time of the loop's thread, by
request.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import trio

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.model.values import TopicPartition
from splashdam.net.memory import memory_stream_pair
from splashdam.record.batch import parse_header
from splashdam.wire.message import Request
from splashdam.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from support.broker.broker_talk import NOW_MS, Talk, produce_request
from support.broker.hostile_batches import LATE_MS, MIB, bomb, promising
from support.broker.loop_watch import LoopWatch

LARGE = {"max.message.bytes": "100000000"}
BOMB_BYTES = 95 * MIB


async def main(directory: Path) -> dict[str, float]:
    """The longest step of the loop, by what was asked."""
    longest: dict[str, float] = {}
    watch = LoopWatch()
    async with open_broker(directory / "data", port=None) as broker:
        ours, theirs = memory_stream_pair()
        broker.server.adopt(theirs)
        talk = Talk(ours)
        broker.topics.create("t", 1, LARGE)
        broker.topics.create("compacted", 1, {**LARGE, "cleanup.policy": "compact"})
        broker.topics.create(
            "packed", 1, {**LARGE, "compression.type": "zstd", "compression.zstd.level": "5"}
        )
        plant(broker, promising(bomb(BOMB_BYTES)), 8)
        await ask(talk, [by_time(-1)], 10)  # handlers and codecs are imported once
        await ask(talk, [produce_request("compacted", bomb(1000)), produce_request("packed", bomb(10))], 9)
        trio.lowlevel.add_instrument(watch)
        for name, version, requests in (
            ("by time", 10, [by_time()]),
            ("many by time", 10, [by_time()] * 3),
            ("compacted", 9, [produce_request("compacted", bomb(BOMB_BYTES))] * 2),
            ("packed", 9, [produce_request("packed", bomb(BOMB_BYTES, "lz4"))] * 2),
        ):
            await trio.lowlevel.checkpoint()  # what the requests cost here is not the broker's
            watch.forget()
            await ask(talk, requests, version)
            longest[name] = watch.longest_seconds
        trio.lowlevel.remove_instrument(watch)
        await ours.aclose()
    return longest


async def ask(talk: Talk, requests: list[Request[Any]], version: int) -> None:
    """Sends requests together and waits for their answers."""
    await talk.send_together(*requests, version=version)
    for _ in requests:
        await talk.answer()


def plant(broker: Broker, batch: bytes, count: int) -> None:
    """Appends batches that no producer could."""
    log = broker.logs.logs[TopicPartition("t", 0)]
    for _ in range(count):
        log.append_as_leader(batch, now_ms=NOW_MS, header=parse_header(batch))


def by_time(timestamp: int = LATE_MS) -> ListOffsetsRequest:
    """By default a time that the heads of the batches promise."""
    asked = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)])


if __name__ == "__main__":
    print(json.dumps(trio.run(main, Path(sys.argv[1]))))
