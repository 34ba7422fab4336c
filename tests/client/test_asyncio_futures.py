"""``DeliveryFuture``: whatever asyncio does with a future, one wake-up for each batch, and cancellation."""

from __future__ import annotations

import asyncio
import copy
import gc
import importlib
import importlib.util
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from functools import cache
from types import ModuleType
from typing import Any

import pytest
from support.running import leftovers

from splashdam.client import asyncio_futures
from splashdam.client.asyncio_futures import DeliveryFuture
from splashdam.client.future import RecordFuture
from splashdam.model.broker_errors import MessageTooLargeError, RequestTimedOutError
from splashdam.model.errors import IllegalStateError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import IMPL, BatchOutcome

TP = TopicPartition("orders", 3)

futures: Any = asyncio_futures


@cache
def futures_of_the_other_twin() -> ModuleType:
    """The module once more, on the kernel's twin that is not in use."""
    kernel = "splashdam.record.kernel"
    twin = importlib.import_module(f"{kernel}.{'_kernel_py' if IMPL == 'c' else '_kernel_c'}")
    spec = importlib.util.spec_from_file_location(
        "asyncio_futures_of_the_other_twin", asyncio_futures.__file__
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    in_use, sys.modules[kernel] = sys.modules[kernel], twin
    try:
        spec.loader.exec_module(module)
    finally:
        sys.modules[kernel] = in_use
    return module


@pytest.fixture(autouse=True, params=["twin in use", "other twin"])
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both twins of the kernel, one after the other."""
    if request.param == "other twin":
        try:
            monkeypatch.setitem(globals(), "futures", futures_of_the_other_twin())
        except ImportError:
            pytest.skip("the compiled twin is not built")


class Batch:
    """A batch of records whose end the test decides."""

    def __init__(self, count: int = 1) -> None:
        self.outcome = futures.BatchOutcome(TP)
        self.futures = [futures.DeliveryFuture(self.outcome, index, 1_000 + index) for index in range(count)]

    def succeed(self) -> None:
        """As the sender does, in a thread of its own."""
        in_thread(self._succeed)

    def _succeed(self) -> None:
        self.outcome.succeed(40, -1)
        self.outcome.run_waiters()

    def fail(self, error: BaseException) -> None:
        """Likewise."""
        self.outcome.fail(error)
        in_thread(self.outcome.run_waiters)


def in_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def new_loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def new_uvloop() -> asyncio.AbstractEventLoop:
    uvloop = pytest.importorskip("uvloop")
    with leftovers.kept():  # libuv opens a pipe for signals, once for the process
        uvloop.run(asyncio.sleep(0))
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=[new_loop, new_uvloop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs a coroutine in a new loop, in debug mode; what its exception handler gets fails the test."""
    problems: list[dict[str, Any]] = []

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(debug=True, loop_factory=request.param) as runner:
            runner.get_loop().set_exception_handler(lambda _loop, context: problems.append(context))
            runner.get_loop().slow_callback_duration = 1e9
            return runner.run(main)

    yield run
    assert problems == []


async def soon(function: Callable[[], object]) -> None:
    """Calls it once the other tasks wait."""
    for _ in range(3):
        await asyncio.sleep(0)
    function()


def test_what_asyncio_takes(run: Run) -> None:
    """``await``, tasks, ``gather``, ``wait``, ``wait_for``, ``shield``, ``as_completed``, time-outs and task
    groups, each before and after the record is done."""

    async def wrapper(future: DeliveryFuture) -> int:
        return (await future).offset

    async def all_of_them(futures: list[DeliveryFuture], end: Callable[[], object]) -> None:
        asyncio.get_running_loop().create_task(soon(end))
        waiting = iter(futures)
        tasks = [asyncio.create_task(wrapper(next(waiting))) for _ in range(2)]
        gathered = asyncio.gather(next(waiting), next(waiting))
        shielded = asyncio.shield(next(waiting))
        completed = list(asyncio.as_completed([next(waiting), next(waiting)]))
        some = {next(waiting), next(waiting)}
        done, pending = await asyncio.wait(some)
        assert (done, pending) == (some, set())
        assert sorted(future.result().offset for future in done) == [47, 48]
        assert [(await each) for each in tasks] == [40, 41]
        assert [metadata.offset for metadata in await gathered] == [42, 43]
        assert (await shielded).offset == 44
        assert sorted([(await each).offset for each in completed]) == [45, 46]
        assert (await asyncio.wait_for(next(waiting), 60)).offset == 49
        async with asyncio.timeout(60):
            assert (await next(waiting)).offset == 50
        async with asyncio.TaskGroup() as group:
            last = group.create_task(wrapper(next(waiting)))
        assert last.result() == 51
        assert asyncio.ensure_future(futures[0]) is futures[0]
        assert asyncio.isfuture(futures[0])
        assert futures[0].get_loop() is asyncio.get_running_loop()

    for _ in range(2):
        batch = Batch(12)
        run(all_of_them(batch.futures, batch.succeed))
        run(all_of_them(batch.futures, lambda: None))  # the same futures in another loop, all done


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_a_batch_wakes_the_loop_once(kind: str) -> None:
    """However many of its records are waited for; another batch that ends meanwhile needs no second one."""
    if kind == "uvloop":
        new_uvloop().close()
    base: Any = asyncio.SelectorEventLoop if kind == "asyncio" else sys.modules["uvloop"].Loop
    batches = [Batch(100), Batch(100)]
    wakes: list[object] = []

    class Counting(base):  # type: ignore[misc]
        def call_soon_threadsafe(self, callback: Any, *args: Any, **more: Any) -> Any:
            wakes.append(callback)
            return super().call_soon_threadsafe(callback, *args, **more)

    async def main() -> list[int]:
        deliveries = [future for batch in batches for future in batch.futures]
        waits = asyncio.gather(*deliveries, *(asyncio.ensure_future(future_of(each)) for each in deliveries))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for batch in batches:
            batch.succeed()
        assert len(wakes) == 1
        await waits
        return [metadata.offset for metadata in await asyncio.gather(*deliveries)]

    async def future_of(future: Any) -> int:
        return (await future).offset

    with asyncio.Runner(loop_factory=Counting) as runner:
        assert runner.run(main()) == [*range(40, 140), *range(40, 140)]


def test_the_tasks_of_a_batch_woke_the_sender_before_all_of_them_had_sent(run: Run) -> None:
    """Each got a batch of its own for its next record. A task that is told alone wakes the sender at once."""
    order: list[object] = []

    async def wait_and_send(future: DeliveryFuture) -> None:
        order.append((await future).offset)
        futures.wake_after_turn(wake)
        order.append("sent")

    def wake() -> None:
        order.append("wake")

    async def main(count: int) -> None:
        batch = Batch(count)
        tasks = [asyncio.create_task(wait_and_send(each)) for each in batch.futures]
        await soon(batch.succeed)
        await asyncio.gather(*tasks)

    run(main(3))
    assert order == [40, "sent", 41, "sent", 42, "sent", "wake"]
    order.clear()
    run(main(1))
    assert order == [40, "wake", "sent"]
    futures.wake_after_turn(wake)
    assert order[3:] == ["wake"]


def test_failures(run: Run) -> None:
    """Each waiter gets a copy of the error, of one record or of the batch."""
    batch = Batch(3)

    async def main() -> None:
        asyncio.get_running_loop().create_task(soon(lambda: batch.fail(RequestTimedOutError("late"))))
        results = await asyncio.gather(*batch.futures, return_exceptions=True)
        assert [type(each) for each in results] == [RequestTimedOutError] * 3
        assert len({id(each) for each in results}) == 3
        for _ in range(2):
            with pytest.raises(RequestTimedOutError, match="late"):
                await batch.futures[0]
        with pytest.raises(RequestTimedOutError):
            batch.futures[1].result()
        assert isinstance(batch.futures[1].exception(), RequestTimedOutError)
        assert repr(batch.futures[2]) == f"<DeliveryFuture {TP} failed>"

    run(main())


def test_a_cancelled_task_leaves_the_delivery_to_the_others(run: Run) -> None:
    """Two tasks wait for one record, in both ways; one is cancelled, by a time-out and by itself."""
    batch = Batch()
    (future,) = batch.futures

    async def wait() -> int:
        return (await future).offset

    async def main() -> None:
        kept, cancelled = asyncio.create_task(wait()), asyncio.create_task(wait())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await future
        await asyncio.sleep(0)
        cancelled.cancel("enough")
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await cancelled
        assert not future.done()
        batch.succeed()
        assert await kept == 40
        assert await future

    run(main())


def test_a_cancelled_future_gives_up_the_delivery_alone(run: Run) -> None:
    """``cancel`` and 3.11's ``wait_for`` reach neither the record nor the other futures; ``shield`` helps."""
    batch = Batch(3)
    given_up, shielded, other = batch.futures

    async def main() -> None:
        with pytest.raises(asyncio.InvalidStateError):
            given_up.result()
        with pytest.raises(asyncio.InvalidStateError):
            given_up.exception()
        told: list[object] = []
        given_up.add_done_callback(told.append)
        assert given_up.cancel("why")
        assert not given_up.cancel()
        assert given_up.cancelled()
        assert given_up.done()
        assert told == []  # not before the next turn
        await asyncio.sleep(0)
        assert told == [given_up]
        for look in (given_up.result, given_up.exception):
            with pytest.raises(asyncio.CancelledError, match="why"):
                look()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(shielded), 0)
        waiting = asyncio.gather(other, return_exceptions=True)
        batch.succeed()
        assert (await shielded).offset == 41
        assert [each.offset for each in await waiting if not isinstance(each, BaseException)] == [42]
        assert not shielded.cancel()
        assert not shielded.cancelled()
        assert repr(given_up) == f"<DeliveryFuture {TP} cancelled>"

    run(main())


def test_tasks_that_wait_for_a_future_that_is_cancelled_waited_for_the_record(run: Run) -> None:
    """Up to the delivery timeout; they are told at once, and tasks that wait for other futures are not."""
    batch = Batch(2)
    given_up, other = batch.futures

    async def wait(future: DeliveryFuture) -> int:
        return (await future).offset

    async def main() -> None:
        waiting = [asyncio.create_task(wait(each)) for each in (given_up, given_up, other)]
        await asyncio.sleep(0)
        waiting[0].cancel("this task alone")
        await asyncio.wait(waiting[:1])
        assert given_up.cancel("why")
        await soon(lambda: None)
        assert [each.cancelled() for each in waiting] == [True, True, False]
        batch.succeed()
        assert await waiting[2] == 41

    run(main())


def test_a_task_is_cancelled_while_another_one_waits_for_a_part_of_its_batch(run: Run) -> None:
    """The one has waited for the batch since before it was split, the other for the part with its record."""
    batch = Batch(2)
    part = futures.BatchOutcome(TP)

    async def main() -> None:
        early = asyncio.create_task(asyncio.wait_for(asyncio.shield(batch.futures[1]), None))
        await asyncio.sleep(0)
        batch.outcome.split((0, 2), [part])
        late = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        part.succeed(7, -1)
        in_thread(part.run_waiters)
        assert (await early).offset == 8

    async def wait() -> None:
        await batch.futures[1]

    run(main())


def test_cancelling_a_gather_cancels_its_futures(run: Run) -> None:
    """As it does with asyncio's own; the batch ends afterwards without harm."""
    batch = Batch(2)

    async def main() -> None:
        waiting = asyncio.gather(*batch.futures)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert all(future.cancelled() for future in batch.futures)
        results = await asyncio.gather(*batch.futures, return_exceptions=True)
        assert [type(each) for each in results] == [asyncio.CancelledError] * 2
        batch.succeed()
        await asyncio.sleep(0)

    run(main())


def test_a_task_that_is_cancelled_when_its_record_is_done(run: Run) -> None:
    """The record ended in the sender's thread; the loop has not told it yet."""
    batch = Batch(2)

    async def wait(future: DeliveryFuture) -> None:
        await future

    async def main() -> None:
        tasks = [asyncio.create_task(wait(future)) for future in batch.futures]
        await asyncio.sleep(0)
        batch.succeed()
        tasks[0].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError)
        assert done[1] is None

    run(main())


def test_one_waiter_cancels_the_next(run: Run) -> None:
    """While the loop tells them: the second is told and cancelled, once."""
    batch = Batch(2)
    ends: list[str] = []

    async def first() -> None:
        await batch.futures[0]
        tasks[1].cancel()

    async def second() -> None:
        try:
            await batch.futures[1]
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    tasks: list[asyncio.Task[None]] = []

    async def main() -> None:
        tasks.extend([asyncio.create_task(first()), asyncio.create_task(second())])
        await asyncio.sleep(0)
        batch.succeed()
        await asyncio.wait(tasks)
        assert tasks[1].cancelled()
        assert ends == ["cancelled"]

    run(main())


def test_callbacks_are_asyncios(run: Run) -> None:
    """In order, in their context, in a later turn; removable; one that raises does not disturb the others."""
    batch = Batch()
    (future,) = batch.futures
    variable: ContextVar[str] = ContextVar("variable", default="outside")
    told: list[str] = []

    def one(done: DeliveryFuture) -> None:
        told.append(f"one {variable.get()} {done.result().offset}")

    def two(_done: DeliveryFuture) -> None:
        told.append("two")

    def bad(_done: DeliveryFuture) -> None:
        raise LookupError("bad")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        problems: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _loop, context: problems.append(context))
        variable.set("inside")
        future.add_done_callback(one)
        future.add_done_callback(bad)
        future.add_done_callback(two)
        future.add_done_callback(two)
        variable.set("changed")
        assert future.remove_done_callback(two) == 2
        assert future.remove_done_callback(two) == 0
        future.add_done_callback(two)
        batch.succeed()
        assert told == []
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert told == ["one inside 40", "two"]
        assert [type(each["exception"]) for each in problems] == [LookupError]
        future.add_done_callback(two)
        assert told == ["one inside 40", "two"]
        await asyncio.sleep(0)
        assert told[2:] == ["two"]

    run(main())


def test_ctrl_c_in_a_callback_loses_none_of_the_others() -> None:
    """It leaves the loop; when that runs again, the rest is told."""
    batch = Batch(3)
    told: list[int] = []

    def interrupt(_done: DeliveryFuture) -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        batch.futures[0].add_done_callback(interrupt)
        for future in batch.futures[1:]:
            future.add_done_callback(lambda done: told.append(done.result().offset))
        batch.succeed()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    task = loop.create_task(main())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    loop.run_until_complete(task)
    loop.close()
    assert told == [41, 42]


def test_the_records_of_a_split_batch_need_not_wait_for_each_other(run: Run) -> None:
    """The batch was too large and is sent in parts, one of which takes longer."""
    batch = Batch(4)
    parts = [futures.BatchOutcome(TP), futures.BatchOutcome(TP)]

    async def wait(future: DeliveryFuture) -> int:
        return (await future).offset

    async def main() -> None:
        early = [asyncio.create_task(wait(future)) for future in batch.futures]
        cancelled = asyncio.create_task(wait(batch.futures[3]))
        await asyncio.sleep(0)
        batch.outcome.split((0, 2, 4), parts)
        late = asyncio.create_task(wait(batch.futures[3]))
        cancelled.cancel()
        await asyncio.wait([cancelled])
        parts[0].succeed(7, -1)
        in_thread(parts[0].run_waiters)
        assert await asyncio.gather(*early[:2]) == [7, 8]
        assert not early[2].done()
        parts[1].fail(MessageTooLargeError("large"))
        in_thread(parts[1].run_waiters)
        results = await asyncio.gather(*early[2:], late, return_exceptions=True)
        assert [type(each) for each in results] == [MessageTooLargeError] * 3

    run(main())


def test_a_loop_that_is_gone_does_no_harm() -> None:
    """A record may end after the loop that waited for it; nothing of the wait is kept."""

    class Payload:
        pass

    batch = Batch()
    payload = Payload()
    gone = weakref.ref(payload)

    async def leave(kept: object) -> None:
        batch.futures[0].add_done_callback(lambda _done, _kept=kept: None)

    asyncio.run(leave(payload))
    del payload
    batch.succeed()
    asyncio.run(asyncio.sleep(0))
    gc.collect()
    assert gone() is None
    assert batch.futures[0].result().offset == 40


def test_a_future_named_the_loop_of_another_thread() -> None:
    """The watch of a loop that is gone was freed with its tasks; meanwhile that thread asked for its own."""
    (future,) = Batch().futures
    found: list[object] = []

    async def ask() -> asyncio.AbstractEventLoop:
        found.append(future.get_loop())
        return asyncio.get_running_loop()

    class Last:
        def __call__(self, _future: object) -> None:
            raise AssertionError

        def __del__(self) -> None:
            in_thread(lambda: asyncio.run(ask()))

    gone = asyncio.new_event_loop()
    gone.run_until_complete(ask())
    done = Batch()
    done.succeed()
    done.futures[0].add_done_callback(Last())
    gone.close()
    found.clear()
    del gone
    gc.collect()
    loop = asyncio.run(ask())
    assert len(found) == 2
    assert found[-1] is loop


def test_waits_outside_a_running_loop() -> None:
    """``loop.run_until_complete(future)``, as programs did before ``asyncio.run``."""
    batch = Batch()
    with pytest.raises(RuntimeError, match="no running event loop"):
        in_fresh_thread(batch.futures[0].get_loop)
    loop = asyncio.new_event_loop()

    async def send() -> DeliveryFuture:
        future = batch.futures[0]
        assert future.get_loop() is loop
        asyncio.get_running_loop().call_soon(batch.succeed)
        return future

    future = loop.run_until_complete(send())
    assert loop.run_until_complete(future).offset == 40
    loop.close()


def in_fresh_thread(function: Callable[[], object]) -> None:
    """Raises in this thread what it raises there."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)

    in_thread(run)
    if raised:
        raise raised[0]


def test_only_the_producer_completes_it() -> None:
    """Like other deliveries, it cannot be pickled or copied."""
    (future,) = Batch().futures
    with pytest.raises(IllegalStateError):
        future.set_result(None)
    with pytest.raises(IllegalStateError):
        future.set_exception(ValueError())
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(future)
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.copy(future)
    assert repr(future) == f"<DeliveryFuture {TP} pending>"


def test_the_blocking_producers_futures_are_told_in_the_same_way(run: Run) -> None:
    """``await`` of a ``RecordFuture`` in an asyncio task; a task that is cancelled takes its wait back."""
    outcome = BatchOutcome(TP)
    futures = [RecordFuture(outcome, index, 0) for index in range(3)]

    async def wait(future: RecordFuture) -> int:
        return (await future).offset

    async def main() -> None:
        tasks = [asyncio.create_task(wait(future)) for future in futures]
        await asyncio.sleep(0)
        tasks[0].cancel()
        outcome.succeed(5, -1)
        in_thread(outcome.run_waiters)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert results[1:] == [6, 7]

    run(main())
