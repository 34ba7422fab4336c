"""``send_many`` and ``send_arrow`` in asyncio's tasks: results that are awaited, room, cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.scripted.cluster import Trouble

from splashdam.aio import AsyncioKafkaProducer
from splashdam.client.reports import BulkDelivery
from splashdam.wire.messages.produce import ProduceRequest


def test_results_are_awaited_in_each_way(tcp_cluster: Any) -> None:
    """Of a list and of a table, before and after they are complete."""
    pyarrow = pytest.importorskip("pyarrow")

    async def wait(delivery: BulkDelivery) -> int:
        return (await delivery).delivered

    async def main() -> None:
        async with AsyncioKafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
            table = pyarrow.table({"value": ["c", "d", "e"]})
            of_list = await producer.send_many("one", [b"a", b"b"], keys=[b"k"] * 2, headers=[("h", b"x")])
            of_table = await producer.send_arrow("one", table)
            for _ in range(2):
                assert [each.delivered for each in await asyncio.gather(of_list, of_table)] == [2, 3]
                assert (await asyncio.wait_for(of_table, 60)).delivered == 3
                async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                    tasks = [group.create_task(wait(each)) for each in (of_list, of_table)]
                assert [task.result() for task in tasks] == [2, 3]
                assert [(await each).offset for each in of_list] == [0, 1]

    asyncio.run(main())
    assert tcp_cluster.values("one") == [b"a", b"b", b"c", b"d", b"e"]


def test_a_bulk_that_is_cancelled_while_it_waits_for_room_keeps_what_is_queued(tcp_cluster: Any) -> None:
    """Its first records are delivered, each once; the next bulk finds room again."""
    scripted = tcp_cluster.scripted
    scripted.trouble_for = lambda message: Trouble(
        then="silence" if isinstance(message, ProduceRequest) else "answer"
    )

    async def main() -> int:
        options: dict[str, Any] = {"buffer_memory": 40_000, "batch_size": 1, "request_timeout_ms": 50}
        async with AsyncioKafkaProducer(bootstrap_servers=tcp_cluster.address, **options) as producer:
            await producer.prepare("one")
            values = [b"%2d" % number + b"x" * 9_000 for number in range(20)]
            sending = asyncio.create_task(producer.send_many("one", values))
            while not (seen := producer.inspect()).waiting_callers:  # noqa: ASYNC110 (the producer has no event)
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.wait([sending])
            assert sending.cancelled()
            scripted.trouble_for = lambda _message: Trouble()
            await (await producer.send_many("one", [b"later"]))
            return seen.queued_batches + seen.in_flight_batches

    queued = asyncio.run(main())
    assert [value[:5] for value in tcp_cluster.values("one")] == [
        *[b"%2dxxx" % number for number in range(queued)],
        b"later",
    ]
