"""Arguments of ``send`` that were taken for others, or refused without a name, in every producer."""

from __future__ import annotations

from typing import Any

import pytest
from support.running.process_kit import run_script


@pytest.mark.parametrize("pure", ["", "1"], ids=["compiled", "pure"])
def test_a_header_key_with_half_a_surrogate_pair_was_an_error_without_a_name(
    tcp_cluster: Any, pure: str
) -> None:
    """Some codec could not encode some character: every producer and way to send says that it is the key."""
    done = run_script(
        r"""
        import asyncio, os, sys
        os.environ["SPLASHDAM_PURE"] = sys.argv[2]
        import pyarrow, trio
        from splashdam import AsyncKafkaProducer, KafkaProducer
        from splashdam.aio import AsyncioKafkaProducer
        from splashdam.aiokafka import AIOKafkaProducer
        from splashdam.client.serializers import Serializer
        from splashdam.errors import IllegalArgumentError

        class Tagging(Serializer):
            def serialize(self, topic, headers, data):
                headers.append(("tag-\udfff", b""))
                return data

        WORDS = r"a header's key cannot be sent: '\ud800' has half of a surrogate pair at position 0"
        HEADERS = [("good", b"1"), ("\ud800", b"2")]
        servers = {"bootstrap_servers": sys.argv[1]}
        counted = 0

        def check(error, words=WORDS):
            global counted
            assert isinstance(error, ValueError) and isinstance(error, IllegalArgumentError), error
            assert words in str(error), error
            str(error).encode()
            counted += 1

        def refused(call, *arguments, **keywords):
            try:
                call(*arguments, **keywords)
            except Exception as error:
                return check(error)
            raise AssertionError(call)

        async def refused_in_task(call, *arguments, **keywords):
            try:
                await call(*arguments, **keywords)
            except Exception as error:
                return check(error)
            raise AssertionError(call)

        async def in_tasks(producer):
            for _ in "unknown", "known":
                refused(producer.send_nowait, "one", b"v", headers=HEADERS)
                await refused_in_task(producer.send, "one", b"v", headers=HEADERS)
                await refused_in_task(producer.send_many, "one", [b"v"], headers=HEADERS)
                await refused_in_task(producer.send_many, "one", [b"v"], headers=[HEADERS])
                await refused_in_task(producer.send_arrow, "one", pyarrow.array([b"v"]), headers=HEADERS)
                await producer.prepare("one")

        async def under_asyncio(kind):
            async with kind(**servers) as producer:
                await in_tasks(producer)
                if kind is AIOKafkaProducer:
                    batch = producer.create_batch()
                    refused(batch.append, timestamp=None, key=None, value=b"v", headers=HEADERS)
                    assert (batch.record_count(), batch.size()) == (0, producer.create_batch().size())

        async def under_trio():
            async with AsyncKafkaProducer(**servers) as producer:
                await in_tasks(producer)

        with KafkaProducer(**servers) as producer:
            for _ in "unknown", "known":
                for send in producer.send, producer.send_nowait:
                    refused(send, "one", b"v", headers=HEADERS)
                    refused(send, "one", b"v", headers=dict(HEADERS))
                refused(producer.send_many, "one", [b"v"], headers=HEADERS)
                refused(producer.send_many, "one", [b"v"], headers=[HEADERS])
                refused(producer.send_arrow, "one", pyarrow.array([b"v"]), headers=HEADERS)
                producer.prepare("one")
            producer.send("one", b"v", headers=[("\u00e9\U0001f600", b"")]).get(timeout=300)
        with KafkaProducer(value_serializer=Tagging(), **servers) as producer:
            try:
                producer.send("one", b"v")
            except Exception as error:
                check(error, r"'tag-\udfff'")
        asyncio.run(under_asyncio(AsyncioKafkaProducer))
        asyncio.run(under_asyncio(AIOKafkaProducer))
        trio.run(under_trio)
        print(counted)
        """,
        tcp_cluster.address,
        pure,
    )
    assert (done.stdout, done.stderr) == (f"{2 * 7 + 1 + 3 * 10 + 1}\n", "")
    assert tcp_cluster.values("one") == [b"v"]


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("name", ["partition", "timestamp_ms"])
async def test_true_was_partition_1(cluster: Any, autojump_clock: Any, name: str, prepared: bool) -> None:
    """A flag in the wrong place is no number."""
    async with cluster.producer() as producer:
        if prepared:
            await producer.prepare("two")
            await producer.send("two", b"v", partition=1)  # the open batch would have room
        for flag in (True, False):
            arguments: dict[str, Any] = {name: flag}
            with pytest.raises(TypeError, match=f"{name} must be an int, not bool"):
                await producer.send("two", b"v", **arguments)
        assert await producer.flush()
    assert len(cluster.values("two", 0) + cluster.values("two", 1)) == prepared
