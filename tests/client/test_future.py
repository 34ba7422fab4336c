"""Delivery futures: kafka-python's surface, threads, trio, asyncio, callbacks, and nothing left behind."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import pickle
import threading
import weakref
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing

from splashdam.client.future import RecordFuture
from splashdam.client.waiters import SENDER_THREADS
from splashdam.model.broker_errors import MessageTooLargeError, RequestTimedOutError
from splashdam.model.errors import IllegalStateError, KafkaTimeoutError
from splashdam.model.values import RecordMetadata, TopicPartition
from splashdam.record.kernel import BatchOutcome

TP = TopicPartition("orders", 3)


def make_future(index: int = 2, timestamp_ms: int = 1_000) -> RecordFuture:
    return RecordFuture(BatchOutcome(TP), index, timestamp_ms, 1, 5, -1)


def succeed(future: RecordFuture, base_offset: int = 40, log_append_time_ms: int = -1) -> None:
    future.outcome.succeed(base_offset, log_append_time_ms)
    future.outcome.run_waiters()


def fail(future: RecordFuture, error: BaseException) -> None:
    future.outcome.fail(error)
    future.outcome.run_waiters()


def test_a_pending_future_tells_nothing() -> None:
    """Before the answer every question is answered with not yet."""
    future = make_future()
    assert not future.is_done
    assert not future.done()
    assert not future.succeeded()
    assert not future.failed()
    assert not future.retriable()
    assert future.value is None
    assert future.exception is None
    assert repr(future) == "<RecordFuture orders-3 pending>"


def test_a_delivered_record_has_kafka_pythons_metadata() -> None:
    """All nine fields, the offset of the record and not of the batch, the record's own timestamp."""
    future = make_future()
    succeed(future)
    assert future.get(timeout=0) == RecordMetadata("orders", 3, TP, 42, 1_000, None, 1, 5, -1)
    assert future.value == future.get()
    assert future.succeeded()
    assert not future.failed()


def test_the_brokers_append_time_replaces_the_timestamp() -> None:
    """LogAppendTime holds for every record of the batch."""
    future = make_future()
    succeed(future, log_append_time_ms=7_777)
    assert future.get().timestamp == 7_777


def test_acks_0_has_no_offset() -> None:
    """-1 for each record, as documented."""
    future = make_future()
    succeed(future, base_offset=-1)
    assert future.get().offset == -1


def test_a_failed_record_raises_its_error_each_time() -> None:
    """The same kind and text, but a fresh object: nobody's frames hang on the shared one."""
    future = make_future()
    error = MessageTooLargeError("too big")
    fail(future, error)
    for _ in range(2):
        with pytest.raises(MessageTooLargeError, match="too big") as raised:
            future.get()
        assert raised.value is not error
        assert str(raised.value) == str(error)
    assert error.__traceback__ is None
    assert type(future.exception) is type(error)
    assert str(future.exception) == str(error)
    assert future.failed()
    assert not future.retriable()
    assert future.value is None


def test_a_retriable_error_says_so() -> None:
    """As kafka-python's ``retriable()``."""
    future = make_future()
    fail(future, RequestTimedOutError())
    assert future.retriable()


def test_each_record_has_its_own_error() -> None:
    """KIP-467: the broker names the bad records of a batch."""
    outcome = BatchOutcome(TP)
    good, bad = (RecordFuture(outcome, index, 0) for index in range(2))
    outcome.fail(RequestTimedOutError(), {1: MessageTooLargeError()})
    assert isinstance(good.exception, RequestTimedOutError)
    assert isinstance(bad.exception, MessageTooLargeError)


def test_get_waits_for_another_thread() -> None:
    """A blocked thread wakes when the batch is complete."""
    future = make_future()
    results: list[RecordMetadata] = []
    threads = [threading.Thread(target=lambda: results.append(future.get(timeout=300))) for _ in range(3)]
    for thread in threads:
        thread.start()
    succeed(future)
    for thread in threads:
        thread.join()
    assert [metadata.offset for metadata in results] == [42] * 3


@pytest.mark.parametrize("timeout", [0, 0.01, -1])
def test_get_gives_up_in_time(timeout: float) -> None:
    """KafkaTimeoutError, which is also Python's TimeoutError; the record stays on its way."""
    future = make_future()
    with pytest.raises(KafkaTimeoutError, match="orders-3 was not acknowledged"):
        future.get(timeout=timeout)
    succeed(future)
    assert future.get(timeout=timeout).offset == 42


def test_get_follows_a_split() -> None:
    """The future of a record in a split batch gets its result from a part, also if a thread waited before."""
    outcome = BatchOutcome(TP)
    future = RecordFuture(outcome, 3, 0)
    results: list[int] = []
    future.add_callback(lambda metadata: results.append(metadata.offset))
    parts = [BatchOutcome(TP), BatchOutcome(TP)]
    outcome.split([0, 2, 4], parts)
    assert not future.is_done
    parts[1].succeed(100, -1)
    parts[1].run_waiters()
    assert future.get(timeout=0).offset == 101
    assert results == [101]


def test_get_refuses_to_stop_the_sender() -> None:
    """In the sender's thread a wait would never end; a done future is no wait."""
    future = make_future()
    SENDER_THREADS.enter()
    try:
        with pytest.raises(IllegalStateError, match="add_callback"):
            future.get(timeout=1)
        succeed(future)
        assert future.get().offset == 42
    finally:
        SENDER_THREADS.leave()


def test_callbacks_get_extra_arguments_before_the_result() -> None:
    """kafka-python's order; each method returns the future."""
    future = make_future()
    calls: list[Any] = []

    def note(*args: Any, **kwargs: Any) -> None:
        calls.append((args, kwargs))

    assert future.add_callback(note, "a", 1, x=2) is future
    assert future.add_errback(note, "never") is future
    assert future.add_both(note) is future
    succeed(future)
    metadata = future.value
    assert calls == [(("a", 1, metadata), {"x": 2}), ((metadata,), {})]


def test_errbacks_get_the_error() -> None:
    """Callbacks are not called for a failed record."""
    future = make_future()
    calls: list[Any] = []
    future.add_callback(calls.append).add_errback(calls.append).add_both(calls.append)
    error = RequestTimedOutError()
    fail(future, error)
    assert [type(call) for call in calls] == [RequestTimedOutError] * 2
    assert not any(call is error for call in calls)  # which is shared by all records of the batch


def test_late_registration_fires_at_once() -> None:
    """In the caller's thread, before the method returns."""
    future = make_future()
    succeed(future)
    threads: list[int] = []
    future.add_callback(lambda _metadata: threads.append(threading.get_ident()))
    future.add_errback(lambda _error: threads.append(-1))
    assert threads == [threading.get_ident()]


def test_a_callback_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It harms neither the other callbacks nor the future."""
    future = make_future()
    calls: list[int] = []
    future.add_callback(lambda _metadata: 1 / 0)
    future.add_callback(lambda metadata: calls.append(metadata.offset))
    with caplog.at_level(logging.ERROR, "splashdam.client"):
        succeed(future)
    assert calls == [42]
    assert "ZeroDivisionError" in caplog.text


async def test_await_under_trio() -> None:
    """Several tasks at once; the one that was cancelled leaves no waiter."""
    future = make_future()
    offsets: list[int] = []

    async def wait() -> None:
        offsets.append((await future).offset)

    with trio.move_on_after(0):
        await future
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await trio.to_thread.run_sync(succeed, future)
    assert offsets == [42, 42]
    assert (await future).offset == 42


async def test_await_raises_the_error() -> None:
    """As ``get`` does."""
    future = make_future()
    fail(future, MessageTooLargeError("too big"))
    with pytest.raises(MessageTooLargeError, match="too big"):
        await future


def test_await_under_asyncio() -> None:
    """``gather`` and ``wait_for`` work; a time-out leaves the future as it was."""

    async def main() -> list[RecordMetadata]:
        futures = [make_future(index) for index in range(3)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(futures[0], 0.01)
        thread = threading.Thread(target=lambda: [succeed(future) for future in futures])
        waiting = asyncio.gather(*futures)
        await asyncio.sleep(0)
        thread.start()
        results = await asyncio.wait_for(waiting, 300)
        thread.join()
        return list(results)

    assert [metadata.offset for metadata in asyncio.run(main())] == [40, 41, 42]


def test_a_loop_that_is_gone_does_no_harm() -> None:
    """A record may end after the loop that waited for it."""
    future = make_future()

    async def give_up_without_cleaning() -> None:
        coroutine = future.__await__()
        next(coroutine)
        abandoned.append(coroutine)

    abandoned: list[Any] = []
    asyncio.run(give_up_without_cleaning())
    trio.run(give_up_without_cleaning)
    succeed(future)
    assert future.is_done
    for coroutine in abandoned:
        coroutine.close()


def test_nothing_is_kept_after_completion() -> None:
    """Callbacks and what they refer to go when the batch is done, without the cycle collector."""

    class Payload:
        pass

    gc.disable()
    try:
        for end in (succeed, lambda future: fail(future, RequestTimedOutError())):
            future = make_future()
            payload = Payload()
            gone = weakref.ref(payload)
            future.add_both(lambda _result, _payload=payload: None)
            del payload
            end(future)
            assert gone() is None
    finally:
        gc.enable()


def test_raising_leaves_no_cycle() -> None:
    """The frame of a caller that caught the error is free at once, although the future lives on."""

    class Payload:
        pass

    future = make_future()
    fail(future, RequestTimedOutError())

    def caller() -> weakref.ref[Payload]:
        payload = Payload()
        with suppress(RequestTimedOutError):
            future.get()
        return weakref.ref(payload)

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_future_that_is_pickled_names_what_can_be(attempt: Any) -> None:
    """The compiled one spoke of a missing ``__reduce__``, the other one gave a copy that is never done."""
    future = make_future()
    with pytest.raises(TypeError, match=r"cannot be pickled or copied: pass its metadata, `future\.get\(\)`"):
        attempt(future)
    future.outcome.succeed(40, -1)
    assert pickle.loads(pickle.dumps(future.get())) == future.get()
