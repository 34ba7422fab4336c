"""Reading ahead where files are far away: in order, with its errors, and ended with its reader."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any, cast

import pytest

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.pipeline.log_source.slices import Part, ahead


def parts(count: int, seen: list[Any], error: Exception | None = None) -> Generator[Part]:
    """So many, then an error or the end; notes what is taken, by which thread, and that it was closed."""
    try:
        for number in range(count):
            seen.append((number, threading.current_thread()))
            yield cast("Part", number)
        if error is not None:
            raise error
    finally:
        seen.append("closed")


def test_parts_come_in_order_from_another_thread() -> None:
    """The next is taken before it is asked for."""
    seen: list[Any] = []
    assert list(ahead(parts(4, seen))) == [0, 1, 2, 3]
    assert all(thread.name.startswith("kafka-log-ahead") for _, thread in seen[:-1])
    assert seen[-1] == "closed"


def test_an_error_comes_where_it_belongs() -> None:
    """Behind the parts before it."""
    reading = ahead(parts(2, [], KafkaStorageError("gone")))
    assert [next(reading), next(reading)] == [0, 1]
    with pytest.raises(KafkaStorageError, match="gone"):
        next(reading)


def test_stopping_early_ends_the_thread() -> None:
    """A task that is killed, or a query with a limit."""
    seen: list[Any] = []
    reading = ahead(parts(100, seen))
    next(reading)
    reading.close()
    assert seen[-1] == "closed"
    assert len(seen) <= 4
    assert not any(thread.is_alive() for _, thread in seen[:-1])
