"""``AsyncioKafkaProducer`` in loops of all kinds: sends, room, flush, cancellation, transactions, its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.clients.preparing import prepare_in_asyncio
from support.running import leftovers
from support.scripted.cluster import Trouble

from splashdam.aio import AsyncioKafkaProducer, DeliveryFuture
from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.client.interceptors import ProducerInterceptor
from splashdam.client.producer import KafkaProducer
from splashdam.model.errors import (
    BufferExhaustedError,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    TransactionAbortedError,
    WouldBlock,
)
from splashdam.wire.messages.produce import ProduceRequest

SILENCE = Trouble(then="silence")


def no_produce(message: object) -> Trouble:
    """Records are not acknowledged; all else is answered."""
    return SILENCE if isinstance(message, ProduceRequest) else Trouble()


async def every_kind_of_send(address: str) -> list[bytes]:
    """Sends in each way, and returns what must have arrived."""
    async with AsyncioKafkaProducer(bootstrap_servers=address, linger_ms=0) as producer:
        first = await producer.send("one", b"first", b"key", [("h", b"x")], 0, 5)
        assert isinstance(first, DeliveryFuture)
        metadata = await first
        assert (metadata.offset, metadata.timestamp, metadata.serialized_header_size) == (0, 5, 2)
        assert (await producer.send_and_wait("one", b"second")).offset == 1
        from_a_thread = await asyncio.to_thread(producer.send_nowait, "one", b"third")
        assert (await from_a_thread).offset == 2
        futures = [await producer.send("one", b"%d" % number) for number in range(200)]
        assert [each.offset for each in await asyncio.gather(*futures)] == list(range(3, 203))
        delivery = await producer.send_many("one", [b"many"] * 10)
        assert (await delivery).delivered == 10
        assert (await asyncio.wait_for(producer.flush(), 60)).pending == 0
        assert await producer.partitions_for("two") == {0, 1}
        assert producer.metrics()["producer-metrics"]["record-send-total"] == 213
    return [b"first", b"second", b"third", *(b"%d" % number for number in range(200)), *[b"many"] * 10]


def test_every_kind_of_send(tcp_cluster: Any) -> None:
    """Under asyncio's own loop."""
    arrived = asyncio.run(every_kind_of_send(tcp_cluster.address))
    assert tcp_cluster.values("one") == arrived
    assert not [each for each in threading.enumerate() if each.name.endswith("-network-thread")]


def test_under_uvloop(tcp_cluster: Any) -> None:
    """The same."""
    uvloop = pytest.importorskip("uvloop")
    with leftovers.kept():  # libuv opens a pipe for signals, once for the process
        uvloop.run(asyncio.sleep(0))
    assert uvloop.run(every_kind_of_send(tcp_cluster.address)) == tcp_cluster.values("one")


def test_under_anyio(tcp_cluster: Any) -> None:
    """Its backend decides which producer a program takes; both work in its task groups and scopes."""
    anyio = pytest.importorskip("anyio")

    async def send(producer: Any, value: bytes) -> None:
        await (await producer.send("one", value))

    async def main(kind: Any) -> None:
        async with (
            kind(bootstrap_servers=tcp_cluster.address) as producer,
            anyio.create_task_group() as group,
        ):
            for number in range(20):
                group.start_soon(send, producer, b"%d" % number)
        producer = kind(bootstrap_servers=tcp_cluster.address, linger_ms=60_000)
        async with producer:
            future = await producer.send("one", b"later")
            with anyio.move_on_after(0) as scope:
                await future
            assert scope.cancelled_caught
        assert (await future).offset == 20

    anyio.run(main, AsyncioKafkaProducer, backend="asyncio")
    tcp_cluster.scripted.logs["one", 0].records.clear()
    anyio.run(main, AsyncKafkaProducer, backend="trio", backend_options={})


def test_one_loop_after_the_other(tcp_cluster: Any) -> None:
    """A producer may even go from one loop into the next, with what it sent in the first."""
    loop = asyncio.new_event_loop()
    producer = AsyncioKafkaProducer(bootstrap_servers=tcp_cluster.address)
    loop.run_until_complete(producer.start())
    future = loop.run_until_complete(producer.send("one", b"v"))
    assert loop.run_until_complete(future).offset == 0
    waiting = loop.run_until_complete(producer.send("one", b"v"))
    loop.close()

    async def rest() -> None:
        assert (await waiting).offset == 1
        assert (await producer.send_and_wait("one", b"v")).offset == 2
        await producer.stop()

    asyncio.run(rest())
    for _ in range(2):
        asyncio.run(every_kind_of_send_again(tcp_cluster.address))


async def every_kind_of_send_again(address: str) -> None:
    async with AsyncioKafkaProducer(bootstrap_servers=address) as producer:
        await asyncio.gather(*[await producer.send("one", b"v") for _ in range(10)])


def test_in_a_running_loop_as_jupyters(tcp_cluster: Any) -> None:
    """A notebook's cell is a task of a loop that goes on: producers come and go there."""

    async def notebook() -> list[int]:
        cells: dict[str, Any] = {"AsyncioKafkaProducer": AsyncioKafkaProducer, "address": tcp_cluster.address}
        for code in (
            "producer = AsyncioKafkaProducer(bootstrap_servers=address); await producer.start()",
            "future = await producer.send('one', b'v')",
            "metadata = await future",
            "await producer.stop()",
        ):
            flags = __import__("ast").PyCF_ALLOW_TOP_LEVEL_AWAIT
            cell = eval(compile(code, "cell", "exec", flags=flags), cells)
            if cell is not None:
                await cell
        return [cells["metadata"].offset]

    assert asyncio.run(notebook()) == [0]


pytest_plugins = ["pytester"]


def test_under_pytest_asyncio(tcp_cluster: Any, pytester: pytest.Pytester) -> None:
    """A fixture and a test of it share a loop; the next test has another."""
    pytest.importorskip("pytest_asyncio")
    pytester.makepyfile(f"""
        import pytest, pytest_asyncio
        from splashdam.aio import AsyncioKafkaProducer

        @pytest_asyncio.fixture
        async def producer():
            async with AsyncioKafkaProducer(bootstrap_servers={tcp_cluster.address!r}) as producer:
                yield producer

        @pytest.mark.asyncio
        @pytest.mark.parametrize("number", [0, 1])
        async def test_send(producer, number):
            assert (await producer.send_and_wait("one", b"v")).offset == number
    """)
    options = ["-p", "no:trio", "-p", "no:splashdam", "-p", "no:xdist", "-p", "pytest_asyncio"]
    result = pytester.runpytest_inprocess(*options, "-o", "asyncio_default_fixture_loop_scope=function")
    result.assert_outcomes(passed=2)


def test_full_memory_makes_send_wait_and_other_tasks_run(tcp_cluster: Any) -> None:
    """Within ``max_block_ms``; ``send_nowait`` raises at once, and a cancelled send leaves the line."""
    tcp_cluster.scripted.trouble_for = no_produce

    async def main() -> None:
        options: dict[str, Any] = {"buffer_memory": 40_000, "max_block_ms": 300, "batch_size": 1}
        async with AsyncioKafkaProducer(bootstrap_servers=tcp_cluster.address, **options) as producer:
            await prepare_in_asyncio(producer, "one")
            sent = [producer.send_nowait("one", b"x" * 9_000) for _ in range(4)]
            with pytest.raises(WouldBlock) as refused:
                producer.send_nowait("one", b"x" * 9_000)
            assert refused.value.what == "memory"
            given_up = asyncio.create_task(producer.send("one", b"cancelled" * 1_000))
            waiting = asyncio.create_task(producer.send("one", b"x" * 9_000))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            with pytest.raises(BufferExhaustedError):
                await waiting
            tcp_cluster.scripted.trouble_for = lambda _message: Trouble()
            await producer.stop(0)
            assert all(future.done() for future in sent)

    asyncio.run(main())
    assert not any(value.startswith(b"cancelled") for value in tcp_cluster.values("one"))


def test_memory_that_comes_back_lets_the_next_one_in(tcp_cluster: Any) -> None:
    """Twenty tasks with memory for four records: all are delivered, each once."""

    async def main() -> None:
        options: dict[str, Any] = {"buffer_memory": 40_000, "batch_size": 1}
        async with AsyncioKafkaProducer(bootstrap_servers=tcp_cluster.address, **options) as producer:
            sends = [producer.send_and_wait("one", b"%2d" % number + b"x" * 9_000) for number in range(20)]
            await asyncio.gather(*sends)

    asyncio.run(main())
    assert sorted(value[:2] for value in tcp_cluster.values("one")) == [b"%2d" % each for each in range(20)]


def test_a_task_that_found_the_batch_full_came_behind_ninety_others(tcp_cluster: Any) -> None:
    """A batch that grows has room at once, and where it is full, tasks that send once need not yield."""

    async def main(batch_size: int) -> list[int]:
        options: dict[str, Any] = {"batch_size": batch_size, "linger_ms": 60_000}
        async with AsyncioKafkaProducer(bootstrap_servers=tcp_cluster.address, **options) as producer:
            await producer.prepare("one")
            turns = [0]
            loop = asyncio.get_running_loop()

            async def send(number: int) -> int:
                await producer.send("one", b"%3d" % number + b"x" * 200, partition=0)
                return turns[0]

            def turn() -> None:
                turns[0] += 1
                loop.call_soon(turn)

            tasks = [asyncio.create_task(send(number)) for number in range(100)]
            turn()
            return [await each for each in tasks]

    for batch_size in (1_000_000, 6_000):
        assert set(asyncio.run(main(batch_size))) == {1}
    assert [int(value[:3]) for value in tcp_cluster.values("one")] == [*range(100), *range(100)]


def test_a_task_that_sends_on_and_on_lets_the_others_run(tcp_cluster: Any) -> None:
    """At each batch that it has filled, or no other task would run as long as there is room."""

    async def main() -> int:
        async with AsyncioKafkaProducer(
            bootstrap_servers=tcp_cluster.address, batch_size=1_000, linger_ms=60_000
        ) as producer:
            await producer.prepare("one")
            turns = 0

            async def turn() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            other = asyncio.create_task(turn())
            for _ in range(100):
                await producer.send("one", b"x" * 200, partition=0)
            other.cancel()
            return turns

    assert asyncio.run(main()) >= 10


def test_a_send_that_is_cancelled_while_it_waits_for_metadata_sends_nothing(tcp_cluster: Any) -> None:
    """At each turn of the loop in which it may be; later, the record is delivered, once."""

    async def main(turns: int) -> bool:
        async with AsyncioKafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
            task = asyncio.create_task(producer.send("one", b"%d" % turns))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return False
            return True

    sent = [turns for turns in range(8) if asyncio.run(main(turns))]
    assert tcp_cluster.values("one") == [b"%d" % turns for turns in sent]


def test_a_cancelled_wait_neither_loses_nor_doubles(tcp_cluster: Any) -> None:
    """``send_and_wait`` is cancelled while its record is on its way."""

    async def main() -> None:
        async with AsyncioKafkaProducer(
            bootstrap_servers=tcp_cluster.address, linger_ms=60_000
        ) as producer:  # its end delivers the record
            await producer.prepare("one")
            task = asyncio.create_task(producer.send_and_wait("one", b"v"))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    asyncio.run(main())
    assert tcp_cluster.values("one") == [b"v"]


def test_flush_reports_and_times_out(tcp_cluster: Any) -> None:
    """As the blocking one's; a cancelled flush ends as well."""
    tcp_cluster.scripted.trouble_for = no_produce

    async def main() -> None:
        producer = AsyncioKafkaProducer(bootstrap_servers=tcp_cluster.address)
        await producer.start()
        future = await producer.send("one", b"v")
        report = await producer.flush(timeout=0.01)
        assert (report.pending, report.delivered) == (1, 0)
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing
        assert not producer._core.accumulator._flushes
        with pytest.raises(ValueError, match="negative"):
            await producer.flush(-1)
        await producer.stop(timeout=0.01)
        with pytest.raises(Exception, match=r"closed with timeout=0\.01"):
            await future

    asyncio.run(main())


def test_the_start_and_the_end(tcp_cluster: Any, closed_port: str) -> None:
    """It starts once; nothing is taken before and after; stopping again does nothing; a start may fail."""

    async def main() -> None:
        producer = AsyncioKafkaProducer(bootstrap_servers=tcp_cluster.address)
        with pytest.raises(IllegalStateError, match="not running"):
            await producer.send("one", b"v")
        await producer.start()
        with pytest.raises(IllegalStateError, match="starts once"):
            await producer.start()
        await producer.stop()
        await producer.stop()
        with pytest.raises(IllegalStateError, match="closed"):
            await producer.send("one", b"v")
        await AsyncioKafkaProducer(bootstrap_servers=tcp_cluster.address).stop()
        nobody = AsyncioKafkaProducer(bootstrap_servers=closed_port, bootstrap_timeout_ms=1)
        with pytest.raises(NoBrokersAvailable):
            await nobody.start()
        unknown = AsyncioKafkaProducer(bootstrap_servers=tcp_cluster.address, max_block_ms=1)
        async with unknown:
            tcp_cluster.scripted.trouble_for = lambda _message: SILENCE
            with pytest.raises(KafkaTimeoutError):
                await unknown.partitions_for("never-heard-of")

    asyncio.run(main())
    with pytest.raises(KafkaConfigurationError, match="bootstrap_servers"):
        AsyncioKafkaProducer(bootstrap_server="x")  # type: ignore[call-arg]  # misspelt on purpose
    with pytest.raises(TypeError, match="AsyncioKafkaProducer"):
        AsyncioKafkaProducer({"bootstrap.servers": "x"})  # type: ignore[arg-type]


def test_a_cancelled_block_delivers_what_it_can(tcp_cluster: Any) -> None:
    """Within ``exit_timeout_ms``: what lingered arrives, and the cancellation goes on."""

    async def block() -> None:
        async with AsyncioKafkaProducer(bootstrap_servers=tcp_cluster.address, linger_ms=60_000) as producer:
            await producer.send("one", b"v")
            started.set()
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(block())
        await started.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    started = asyncio.Event()
    asyncio.run(main())
    assert tcp_cluster.values("one") == [b"v"]


def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    """The embedded broker is being started in a thread; the next producer gets the directory."""
    address = f"embedded:{tmp_path}"

    async def main() -> None:
        producer = AsyncioKafkaProducer(bootstrap_servers=address)
        task = asyncio.create_task(producer.start())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with AsyncioKafkaProducer(bootstrap_servers=address) as second:
            assert (await second.send_and_wait("t", b"v")).offset == 0
            assert second.embedded_broker is not None

    asyncio.run(main())


def in_a_loop(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(function())


class Holding(ProducerInterceptor):
    """Holds the sender's thread where it hears of a delivery, until it may go on."""

    def __init__(self) -> None:
        self.may_go = threading.Event()

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        self.may_go.wait(600)


def test_transactions(tmp_path: Path) -> None:
    """Blocks commit, abort on an error, and are aborted when cancelled; the next one begins after that."""
    holding = Holding()
    holding.may_go.set()

    async def main() -> None:
        address = f"embedded:{tmp_path}"
        async with AsyncioKafkaProducer(
            bootstrap_servers=address, transactional_id="t", interceptors=[holding]
        ) as producer:
            async with producer.transaction():  # initialises by itself
                kept = await producer.send("t", b"kept")
            assert (await kept).offset == 0
            with suppress(LookupError):
                async with producer.transaction():
                    await producer.send_and_wait("t", b"aborted")
                    raise LookupError
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as scope, producer.transaction():
                    lost = await producer.send("t", b"timed out")
                    scope.reschedule(0)
                    await asyncio.Event().wait()
            with pytest.raises(TransactionAbortedError):
                await lost
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({("t", 0): 1}, "group")
            holding.may_go.clear()  # so that the commit cannot end before it is cancelled
            await producer.send("t", b"kept, too")
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
            commit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await commit
            holding.may_go.set()
            async with producer.transaction():  # waits for that commit
                pass
            assert (await producer.flush()).count == 0

    in_a_loop(main)


def test_a_begin_that_timed_out_could_not_be_repeated(tmp_path: Path) -> None:
    """It had begun to initialise transactions, and asked for a second ``init_transactions``."""

    async def main() -> None:
        address = f"embedded:{tmp_path}"
        async with AsyncioKafkaProducer(
            bootstrap_servers=address, transactional_id="t", max_block_ms=0
        ) as producer:
            guard = producer._core.guard
            guard.acquire()  # the sender, however quick, does nothing before the first try has timed out
            try:
                with pytest.raises(KafkaTimeoutError):
                    await producer.begin_transaction()
            finally:
                guard.release()
            while True:
                try:
                    await producer.begin_transaction()
                except KafkaTimeoutError:
                    continue
                break
            with pytest.raises(IllegalStateError, match="open first"):
                await producer.begin_transaction()

    in_a_loop(main)


def test_before_the_start_there_is_nothing_to_wait_for() -> None:
    """``flush`` asked the thread that does not run whether callbacks had run, and waited for ever."""

    async def main() -> None:
        producer = AsyncioKafkaProducer(bootstrap_servers="a:1")
        assert (await asyncio.wait_for(producer.flush(), 600)).count == 0
        with pytest.raises(IllegalStateError, match="is not running"):
            await producer.client_instance_id()

    in_a_loop(main)


def test_who_waits_for_a_client_instance_id_hears_of_the_end(tcp_cluster: Any) -> None:
    """No broker assigns one; the call went on after the producer was closed."""

    async def main() -> None:
        async with AsyncioKafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
            waiting = asyncio.create_task(producer.client_instance_id())
            await asyncio.sleep(0)
        with pytest.raises(IllegalStateError, match="is closed"):
            await waiting

    in_a_loop(main)


def test_the_end_of_a_program_cancelled_the_wait_for_the_thread_that_starts(tmp_path: Path) -> None:
    """``asyncio.run`` cancels all tasks: the thread and the broker went on, with nobody to end them."""
    address = f"embedded:{tmp_path}"
    producer = AsyncioKafkaProducer(bootstrap_servers=address)

    async def main() -> None:
        started = asyncio.create_task(producer.start())
        await asyncio.sleep(0)
        assert not started.done()

    asyncio.run(main())
    assert "running" not in repr(producer)
    with KafkaProducer(bootstrap_servers=address) as second:
        assert second.send("t", b"v").get(600).offset == 0


def test_a_commit_that_was_cancelled_can_be_waited_for_again(tmp_path: Path) -> None:
    """So its caller learns how it ended."""
    holding = Holding()

    async def main() -> None:
        async with AsyncioKafkaProducer(
            bootstrap_servers=f"embedded:{tmp_path}", transactional_id="t", interceptors=[holding]
        ) as producer:
            await producer.begin_transaction()
            with pytest.raises(IllegalStateError, match="open first"):
                await producer.begin_transaction()
            future = await producer.send("t", b"v")
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
            commit.cancel()
            await asyncio.wait([commit])
            assert commit.cancelled()
            holding.may_go.set()
            await future
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.abort_transaction()

    in_a_loop(main)
