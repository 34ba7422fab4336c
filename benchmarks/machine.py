"""Compares the embedded broker with the limits of the machine: ``python machine.py CALL DIR SCALE``.

The broker runs in a process of its own, with the simplest client (`broker.raw_client`). The limits are plain
system calls and library calls: bytes over loopback, into a file, out of it, through memory. Prints one
measurement as JSON.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import crc32c
import storage
import trio
from broker import raw_client
from sink.running import RunningSink, sink_command

from splashdam.cli.measuring.clock import WARM_UP_RECORDS, latency_figures, sleep_until
from splashdam.cli.measuring.scenarios import Contender, Scenario

MIB = 1 << 20
REQUESTS = 30_000
"""One-record requests in a full run."""
PACED = 3_000
"""Paced one-record requests in a full run: three seconds."""
CROWD = 32
"""Connections with one request in flight each."""
VOLUME_MIB = 512
"""MiB written, and read, in a full run."""
RECORD_BYTES = 100
PARTITIONS = 10_000
"""Partitions opened in a full run."""
FETCH_BATCHES = 8
ECHO_REQUEST_BYTES, ECHO_ANSWER_BYTES = 250, 64
"""As large as a one-record request and its answer."""
BLOCK = random.Random(0).randbytes(MIB)
"""What the limits move. Bytes that were never written, as in `bytes(MIB)`, are one page of zeros that stays
in the processor's cache: no log has such bytes to write."""


def requests(folder: Path, scale: float, in_flight: int) -> dict[str, float]:
    """Produce requests with one record of 100 B each; the last offset tells whether all were taken."""
    count = max(10, int(REQUESTS * scale))
    source = raw_client.ProduceFrames(1, RECORD_BYTES, count + 2)
    frames = [bytes(source.frame(number)) for number in range(count + 2)]
    with raw_client.broker(folder) as connection:
        _, answer_bytes = raw_client.produce_one(connection, frames[0])

        def send(first: int, end: int) -> None:
            connection.sendall(b"".join(frames[first + 1 : end + 1]))

        start = time.perf_counter()
        raw_client.converse(connection, send, count, in_flight, answer_bytes)
        seconds = time.perf_counter() - start
        _check_offset(raw_client.produce_one(connection, frames[-1])[0], count + 1)
    return {"requests_per_second": count / seconds}


def paced(folder: Path, scale: float) -> dict[str, float]:
    """Produce requests with one record, one each millisecond; the time to the answer."""
    with raw_client.broker(folder) as connection:
        return _paced(connection, raw_client.ProduceFrames(1, RECORD_BYTES, _paced_count(scale)), scale)


def paced_sink(folder: Path, scale: float) -> dict[str, float]:
    """The same requests to the common sink, which looks at their headers alone."""
    _, command = sink_command("auto", folder)
    with RunningSink([*command, "1"]) as sink:
        host, _, port = sink.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _paced(connection, raw_client.ProduceFrames(1, RECORD_BYTES, _paced_count(scale)), scale)


def paced_loop(folder: Path, scale: float) -> dict[str, float]:
    """The same requests to a loop of trio that writes each into a file and answers, and looks at nothing."""
    source = raw_client.ProduceFrames(1, RECORD_BYTES, _paced_count(scale))
    with (
        _trio_loop(len(source.frame(0)), folder) as address,
        socket.create_connection(address) as connection,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _paced(connection, source, scale)


def _paced_count(scale: float) -> int:
    return max(2 * WARM_UP_RECORDS, int(PACED * scale))


def _paced(connection: socket.socket, source: raw_client.ProduceFrames, scale: float) -> dict[str, float]:
    frames = [bytes(source.frame(number)) for number in range(_paced_count(scale))]
    waited, begin = [], time.perf_counter()
    for number, frame in enumerate(frames):
        sleep_until(begin + number / 1_000)
        sent_at = time.perf_counter()
        connection.sendall(frame)
        raw_client.read_frame(connection)
        waited.append(time.perf_counter() - sent_at)
    return latency_figures(waited)


def crowd(folder: Path, scale: float) -> dict[str, float]:
    """Produce requests of many connections, one in flight on each."""
    frame = raw_client.produce_frame(raw_client.batch_of(1, RECORD_BYTES))
    with raw_client.broker(folder) as first:
        _, answer_bytes = raw_client.produce_one(first, frame)
        return _crowd(first.getpeername(), frame, answer_bytes, scale)


def crowd_echo(_folder: Path, scale: float) -> dict[str, float]:
    """The same to a loop of trio in another process that answers and does nothing else."""
    return _crowd_of_loop(None, scale)


def crowd_loop(folder: Path, scale: float) -> dict[str, float]:
    """The same to a loop that first writes each request into a file: the rate if an append cost nothing else.

    docs/decisions/embedded-broker.md compares the broker with it.
    """
    return _crowd_of_loop(folder, scale)


def _crowd_of_loop(folder: Path | None, scale: float) -> dict[str, float]:
    with _trio_loop(ECHO_REQUEST_BYTES, folder) as address:
        return _crowd(address, b"x" * ECHO_REQUEST_BYTES, ECHO_ANSWER_BYTES, scale)


@contextmanager
def _trio_loop(request_bytes: int, folder: Path | None) -> Iterator[tuple[str, int]]:
    """Yield the address of a forked trio loop that answers requests; with a folder it writes them first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if child == 0:
            try:
                trio.run(_answer_all, listener, request_bytes, folder)
            finally:
                os._exit(0)
        try:
            yield listener.getsockname()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


async def _answer_all(listener: socket.socket, request_bytes: int, folder: Path | None) -> None:
    file = None if folder is None else os.open(folder / "file", os.O_WRONLY | os.O_CREAT)
    answer = (ECHO_ANSWER_BYTES - 4).to_bytes(4, "big").ljust(ECHO_ANSWER_BYTES, b"x")
    end = 0

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal end
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffered = 0
        while received := await stream.receive_some(1 << 16):
            whole, buffered = divmod(buffered + len(received), request_bytes)
            if file is not None:
                for _ in range(whole):
                    end += os.pwritev(file, [received[:request_bytes]], end)
            await stream.send_all(answer * whole)

    listener.setblocking(False)
    await trio.serve_listeners(serve, [trio.SocketListener(trio.socket.from_stdlib_socket(listener))])


def _crowd(address: tuple[str, int], frame: bytes, answer_bytes: int, scale: float) -> dict[str, float]:
    count = max(CROWD, int(REQUESTS * scale))
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(CROWD):
            connection = stack.enter_context(socket.create_connection(address))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection, selectors.EVENT_READ, connection)
            connection.sendall(frame)
        start, answered = time.perf_counter(), 0
        while answered < count:
            for key, _ in selector.select():
                raw_client.read_exactly(key.data, answer_bytes)
                answered += 1
                key.data.sendall(frame)
        return {"requests_per_second": answered / (time.perf_counter() - start)}


def tail(folder: Path, scale: float) -> dict[str, float]:
    """Fetch requests at the end of the log, which are answered with nothing: a consumer that polls."""
    count = max(10, int(REQUESTS * scale))
    with raw_client.broker(folder) as connection:
        raw_client.produce_one(connection, raw_client.produce_frame(raw_client.batch_of(1, RECORD_BYTES)))
        frame = raw_client.fetch_frame(1, MIB)
        connection.sendall(frame)
        answer_bytes = len(raw_client.read_frame(connection)) + 4
        start = time.perf_counter()
        raw_client.converse(
            connection, lambda first, end: connection.sendall(frame * (end - first)), count, 1, answer_bytes
        )
        return {"requests_per_second": count / (time.perf_counter() - start)}


def ingest(folder: Path, scale: float) -> dict[str, float]:
    """Produce requests of 1 MiB, five in flight: checked and written."""
    count = _mebibytes(scale)
    source = raw_client.ProduceFrames(storage.RECORDS, storage.RECORD_BYTES, count + 2)
    with raw_client.broker(folder) as connection:
        _, answer_bytes = raw_client.produce_one(connection, source.frame(0))

        def send(first: int, end: int) -> None:
            for number in range(first, end):
                connection.sendall(source.frame(number + 1))

        start = time.perf_counter()
        raw_client.converse(connection, send, count, 5, answer_bytes)
        seconds = time.perf_counter() - start
        last = source.frame(count + 1)
        _check_offset(raw_client.produce_one(connection, last)[0], (count + 1) * storage.RECORDS)
    return {"volume_per_second": count * len(last) / seconds / 1e6}


def _check_offset(found: int, expected: int) -> None:
    if found != expected:
        raise SystemExit(f"the broker is at offset {found:,}; {expected:,} records were sent")


def fetch(folder: Path, scale: float) -> dict[str, float]:
    """Fetch requests of eight batches of 1 MiB, two in flight, from a log that was just written."""
    count = max(FETCH_BATCHES, int(VOLUME_MIB * scale) // 2)
    batch = raw_client.batch_of(storage.RECORDS, storage.RECORD_BYTES)
    wanted = FETCH_BATCHES * len(batch)
    with raw_client.broker(folder) as connection:
        for _ in range(count):
            raw_client.produce_one(connection, raw_client.produce_frame(batch))
        steps = range(0, count - FETCH_BATCHES + 1, FETCH_BATCHES)
        frames = [raw_client.fetch_frame(step * storage.RECORDS, wanted) for step in steps] * 4
        connection.sendall(frames[0])
        answer_bytes = len(raw_client.read_frame(connection)) + 4
        if answer_bytes < wanted:
            raise SystemExit(f"the broker sent {answer_bytes:,} bytes where {wanted:,} were asked for")

        def send(first: int, end: int) -> None:
            connection.sendall(b"".join(frames[first:end]))

        start = time.perf_counter()
        raw_client.converse(connection, send, len(frames), 2, answer_bytes)
        seconds = time.perf_counter() - start
    return {"volume_per_second": len(frames) * answer_bytes / seconds / 1e6}


def echo(_folder: Path, scale: float, in_flight: int) -> dict[str, float]:
    """Small messages to another process and back; the other process does nothing else."""
    count = max(10, int(REQUESTS * scale))
    with peer(_answer) as connection:

        def send(first: int, end: int) -> None:
            connection.sendall(b"x" * ECHO_REQUEST_BYTES * (end - first))

        start = time.perf_counter()
        raw_client.converse(connection, send, count, in_flight, ECHO_ANSWER_BYTES)
        seconds = time.perf_counter() - start
    return {"requests_per_second": count / seconds}


def _answer(connection: socket.socket) -> None:
    buffered = 0
    while received := len(connection.recv(1 << 16)):
        whole, buffered = divmod(buffered + received, ECHO_REQUEST_BYTES)
        connection.sendall(b"x" * ECHO_ANSWER_BYTES * whole)


def loopback(_folder: Path, scale: float) -> dict[str, float]:
    """Blocks of 1 MiB from another process."""
    blocks = _mebibytes(scale) * 2

    def send(connection: socket.socket) -> None:
        for _ in range(blocks):
            connection.sendall(BLOCK)

    return _drained(send, blocks * MIB)


def sendfile(folder: Path, scale: float) -> dict[str, float]:
    """A file that was just written, by `os.sendfile` from another process."""
    blocks = max(FETCH_BATCHES, int(VOLUME_MIB * scale) // 2)
    path = folder / "file"
    path.write_bytes(BLOCK * blocks)

    def send(connection: socket.socket) -> None:
        with path.open("rb") as file:
            for _ in range(4):
                at = 0
                while at < blocks * MIB:
                    at += os.sendfile(connection.fileno(), file.fileno(), at, min(8 * MIB, blocks * MIB - at))

    return _drained(send, 4 * blocks * MIB)


def _drained(send: Callable[[socket.socket], None], total: int) -> dict[str, float]:
    view = memoryview(bytearray(8 * MIB))
    with peer(send) as connection:
        start, left = time.perf_counter(), total
        while left:
            count = connection.recv_into(view)
            if not count:
                raise SystemExit("the other process ended early")
            left -= count
        seconds = time.perf_counter() - start
    return {"volume_per_second": total / seconds / 1e6}


@contextmanager
def peer(work: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    """A connection over loopback to a forked process that does the work."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if child == 0:
            try:
                with socket.create_connection(listener.getsockname()) as connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    work(connection)
            finally:
                os._exit(0)
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connection
        os.waitpid(child, 0)


def write(folder: Path, scale: float) -> dict[str, float]:
    """`os.write` of 1 MiB into a new file, no flush."""
    blocks = _mebibytes(scale)
    with (folder / "file").open("wb", buffering=0) as file:
        start = time.perf_counter()
        for _ in range(blocks):
            os.write(file.fileno(), BLOCK)
        seconds = time.perf_counter() - start
    return {"volume_per_second": blocks * MIB / seconds / 1e6}


def checksum(_folder: Path, scale: float) -> dict[str, float]:
    """crc32c of 1 MiB."""
    return _repeated(lambda: crc32c.crc32c(BLOCK), scale)


def copy(_folder: Path, scale: float) -> dict[str, float]:
    """A copy of 1 MiB in memory."""
    source, target = memoryview(BLOCK), memoryview(bytearray(MIB))

    def once() -> None:
        target[:] = source

    return _repeated(once, scale)


def _repeated(once: Callable[[], object], scale: float) -> dict[str, float]:
    blocks = _mebibytes(scale) * 4
    start = time.perf_counter()
    for _ in range(blocks):
        once()
    return {"volume_per_second": blocks * MIB / (time.perf_counter() - start) / 1e6}


def _mebibytes(scale: float) -> int:
    return max(2, int(VOLUME_MIB * scale))


CALLS: dict[str, Callable[[Path, float], dict[str, float]]] = {
    "requests_1": lambda folder, scale: requests(folder, scale, 1),
    "requests_5": lambda folder, scale: requests(folder, scale, 5),
    "echo_1": lambda folder, scale: echo(folder, scale, 1),
    "echo_5": lambda folder, scale: echo(folder, scale, 5),
    "paced": paced,
    "paced_sink": paced_sink,
    "paced_loop": paced_loop,
    "crowd": crowd,
    "crowd_echo": crowd_echo,
    "crowd_loop": crowd_loop,
    "tail": tail,
    "ingest": ingest,
    "write": write,
    "loopback": loopback,
    "checksum": checksum,
    "copy": copy,
    "fetch": fetch,
    "sendfile": sendfile,
    "append": lambda folder, scale: storage.append(folder, _mebibytes(scale)),
    "recover": lambda folder, scale: storage.recover(folder, _mebibytes(scale)),
    "compact": lambda folder, scale: storage.compact(folder, _mebibytes(scale)),
    "open": lambda folder, scale: storage.open_clean(folder, max(1, int(PARTITIONS * scale))),
    "read": lambda folder, scale: storage.read(folder, _mebibytes(scale)),
}


def _broker(call: str) -> Contender:
    return Contender("splashdam broker", "splashdam", call, 0)


def _limit(label: str, call: str) -> Contender:
    return Contender(label, "machine", call, 0)


_NOTE = "below it plain system calls on this machine; one connection, the broker in its own process"
_LOOP = "trio loop that writes and answers"
_ALONE = "the storage alone, in one process; files in the page cache, no flush"

SCENARIOS = (
    Scenario(
        name="requests-1",
        title="broker: one-record requests, one in flight",
        contenders=(_broker("requests_1"), _limit("bare echo over loopback", "echo_1")),
        kind="machine",
        short=2,
        note=_NOTE,
    ),
    Scenario(
        name="requests-5",
        title="broker: one-record requests, five in flight",
        contenders=(_broker("requests_5"), _limit("bare echo over loopback", "echo_5")),
        kind="machine",
        note=_NOTE,
    ),
    Scenario(
        name="requests-paced",
        title="broker: one-record requests, one each millisecond",
        contenders=(_broker("paced"), _limit("the sink", "paced_sink"), _limit(_LOOP, "paced_loop")),
        kind="machine",
        short=3,
        note="the time to the answer; the sink reads headers and stores nothing",
    ),
    Scenario(
        name="requests-32",
        title="broker: one-record requests of 32 connections, one in flight on each",
        contenders=(
            _broker("crowd"),
            _limit("bare trio echo over loopback", "crowd_echo"),
            _limit(_LOOP, "crowd_loop"),
        ),
        kind="machine",
        short=2,
        note="below it a loop of trio that answers and does nothing else; each in its own process",
    ),
    Scenario(
        name="tail",
        title="broker: fetch requests at the end of the log, one in flight",
        contenders=(_broker("tail"), _limit("bare echo over loopback", "echo_1")),
        kind="machine",
        note=_NOTE,
    ),
    Scenario(
        name="ingest",
        title="broker: requests of 1 MiB, checked and written",
        contenders=(
            _broker("ingest"),
            _limit("os.write", "write"),
            _limit("loopback", "loopback"),
            _limit("crc32c", "checksum"),
            _limit("memcpy", "copy"),
        ),
        kind="machine",
        short=3,
        note=_NOTE,
    ),
    Scenario(
        name="fetch",
        title="broker: fetch of 8 MiB",
        contenders=(_broker("fetch"), _limit("os.sendfile", "sendfile")),
        kind="machine",
        short=2,
        note=_NOTE,
    ),
    Scenario(
        name="append",
        title="log: batches of 1 MiB, checked and written",
        contenders=(Contender("splashdam log", "splashdam", "append", 0), _limit("os.write", "write")),
        kind="machine",
        short=2,
        note=_ALONE,
    ),
    Scenario(
        name="recover",
        title="log: recovery from its first byte",
        contenders=(
            Contender("splashdam log", "splashdam", "recover", 0),
            _limit("reading and crc32c", "read"),
        ),
        kind="machine",
        short=2,
        note=_ALONE,
    ),
    Scenario(
        name="open",
        title="broker: 10,000 partitions, closed cleanly, open again",
        contenders=(_broker("open"),),
        kind="machine",
        note="in one process, without a listener; files in the page cache",
    ),
    Scenario(
        name="compact",
        title="log: compaction, one record in ten is left",
        contenders=(
            Contender("splashdam log", "splashdam", "compact", 0),
            _limit("reading and crc32c", "read"),
        ),
        kind="machine",
        short=1,
        note=_ALONE,
    ),
)


def main() -> None:
    call, folder, scale = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="splashdam-bench-", dir=folder) as made:
        print(json.dumps(CALLS[call](Path(made), float(scale))))


if __name__ == "__main__":
    main()
