"""A nursery inside, and errors outside as they were raised."""

from __future__ import annotations

import pytest
import trio

from splashdam.model.errors import KafkaError
from splashdam.net.cluster.cluster_connections import open_plain_nursery


async def fail(text: str) -> None:
    """A task that fails."""
    raise KafkaError(text)


async def run(*tasks: str, body: Exception | None = None) -> None:
    """A nursery with failing tasks, a task that never ends, and a body that may fail."""
    async with open_plain_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        for text in tasks:
            nursery.start_soon(fail, text)
        if body is not None:
            raise body


async def test_the_body_fails() -> None:
    """Its error comes as itself, with its cause."""
    error = KafkaError("alone")
    error.__cause__ = ValueError("why")
    with pytest.raises(KafkaError, match="alone") as caught:
        await run(body=error)
    assert caught.value is error
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_task_fails() -> None:
    """Likewise."""
    with pytest.raises(KafkaError, match="alone"):
        await run("alone")


async def test_two_tasks_fail() -> None:
    """Neither may be lost."""
    with pytest.raises(ExceptionGroup) as caught:
        await run("one", "two")
    assert {str(error) for error in caught.value.exceptions} == {"one", "two"}


async def test_cancellation_passes() -> None:
    """It is not an error."""
    with trio.CancelScope() as scope:
        async with open_plain_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()
    assert scope.cancelled_caught
