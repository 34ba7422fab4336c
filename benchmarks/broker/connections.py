"""Measures a broker with many open connections, which take turns: CPU time of a request, and of none.

Broker and clients share one processor, and take turns there, so that the broker hardly ever sleeps. On two of
them it is chance whether the next request comes before the broker sleeps, and a sleep costs half a request.
"""

from __future__ import annotations

import os
import resource
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from broker.raw_client import TOPIC, batch_of, produce_frame, produce_one
from broker.running import Topic, await_answer, cpu_seconds, create_topics, memory_mib, our_broker

RECORD_BYTES = 100
WARM_REQUESTS, REQUESTS = 500, 4_000
IDLE_SECONDS = 3.0
_SPARE_FILES = 200


class Connected(NamedTuple):
    """What a broker spends with a number of connections.

    Attributes:
        request_us: CPU time of a Produce request with one record.
        idle_ms: CPU time in a second without requests, milliseconds.
        memory_mib: resident memory.
    """

    request_us: float
    idle_ms: float
    memory_mib: float


def measure(connections: int, requests: int = REQUESTS, idle_seconds: float = IDLE_SECONDS) -> Connected:
    """Measure a fresh broker with this number of connections."""
    _allow_files(2 * connections + _SPARE_FILES)  # a broker leaves half of its files to its logs
    frame = produce_frame(batch_of(1, RECORD_BYTES))
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(_one_processor())
        broker = stack.enter_context(our_broker(Path(home)))
        await_answer(broker.address)
        create_topics(broker.address, [Topic(TOPIC)])
        clients = [stack.enter_context(socket.create_connection(broker.address)) for _ in range(connections)]
        for client in clients:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def take_turns(count: int) -> tuple[int, float]:
            before, offset = cpu_seconds(broker.pid), -1
            for number in range(count):
                offset, _ = produce_one(clients[number % connections], frame)
            return offset, cpu_seconds(broker.pid) - before

        first, _ = take_turns(max(WARM_REQUESTS, connections))
        last, spent = take_turns(requests)
        if last - first != requests:
            raise SystemExit(f"{last - first:,} records arrived, {requests:,} were sent")
        before = cpu_seconds(broker.pid)
        time.sleep(idle_seconds)
        idle = cpu_seconds(broker.pid) - before
        return Connected(spent / requests * 1e6, idle / max(idle_seconds, 1e-9) * 1e3, memory_mib(broker.pid))


@contextmanager
def _one_processor() -> Iterator[None]:
    """Keep this process, and those that it starts, on one processor."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _allow_files(count: int) -> None:
    """Raise this process's limit of open files, which the broker inherits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise SystemExit(f"{count:,} files must be allowed; the hard limit is {hard:,} (ulimit -Hn)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
