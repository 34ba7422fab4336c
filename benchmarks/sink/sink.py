"""The common sink in Python, for machines without a C compiler; `sink.c` describes it.

Usage: python sink.py [PARTITIONS [DELAY_MS]]. Prints its port, serves until stdin ends, then prints its
counts. With a delay it acts like a broker far away: each answer is held back for that time, and further
requests are read meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 10, 18, 22
APIS = [
    (PRODUCE, 3, 11),
    (FETCH, 4, 11),
    (METADATA, 0, 7),
    (FIND_COORDINATOR, 0, 2),
    (API_VERSIONS, 0, 4),
    (INIT_PRODUCER_ID, 0, 1),
]
HEADER_BYTES = 61
NODE_ID = 1
MAX_FRAME_BYTES = 100 << 20


class Reader:
    """A position in a request; reading past the end raises."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def take(self, n: int) -> memoryview:
        start, self.at = self.at, self.at + max(n, 0)
        if self.at > len(self.data):
            raise ValueError("truncated request")
        return self.data[start : self.at]

    def get(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big", signed=True)

    def get_uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def get_length(self, flexible: bool, width: int) -> int:
        """A length or count; -1 is null."""
        return self.get_uvarint() - 1 if flexible else self.get(width)

    def skip_tags(self) -> None:
        for _ in range(self.get_uvarint()):
            self.get_uvarint()
            self.take(self.get_uvarint())


class Writer(bytearray):
    """An answer being written."""

    def put(self, value: int, width: int) -> None:
        self += value.to_bytes(width, "big", signed=True)

    def put_uvarint(self, value: int) -> None:
        while value >= 0x80:
            self.append(value & 0x7F | 0x80)
            value >>= 7
        self.append(value)

    def put_length(self, n: int, flexible: bool, width: int) -> None:
        if flexible:
            self.put_uvarint(n + 1)
        else:
            self.put(n, width)

    def put_string(self, text: bytes | memoryview, flexible: bool = False) -> None:
        self.put_length(len(text), flexible, 2)
        self += text


class Sink:
    """What all connections share: the answers and the counts."""

    def __init__(self, partitions: int, delay_seconds: float = 0.0) -> None:
        self.partitions = partitions
        self.delay_seconds = delay_seconds
        self.port = 0
        self.counts = {"records": 0, "bytes": 0, "batches": 0, "requests": 0}
        self.next_producer_id = 1000

    def answer(self, frame: memoryview) -> bytes:
        """Return the whole response frame for one request; empty for acks=0."""
        request = Reader(frame)
        key, version = request.get(2), request.get(2)
        out = Writer(request.take(4))  # the correlation id goes back as it came
        request.take(request.get(2))  # client id
        flexible = (key == PRODUCE and version >= 9) or (key == API_VERSIONS and version >= 3)
        if flexible:
            request.skip_tags()
        if key == API_VERSIONS:
            self.api_versions(out, version)
        elif key == METADATA:
            self.metadata(request, out, version)
        elif key == INIT_PRODUCER_ID:
            out += struct.pack(">ihqh", 0, 0, self.next_producer_id, 0)
            self.next_producer_id += 1
        elif key == PRODUCE:
            if self.produce(request, out, version, flexible) == 0:
                return b""
        else:
            raise ValueError("a request that no producer sends")
        return struct.pack(">i", len(out)) + out

    def api_versions(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        out.put(0, 2)
        out.put_length(len(APIS), flexible, 4)
        for api in APIS:
            out += struct.pack(">3h", *api)
            if flexible:
                out.put_uvarint(0)
        if version >= 1:
            out.put(0, 4)
        if flexible:
            out.put_uvarint(0)

    def metadata(self, request: Reader, out: Writer, version: int) -> None:
        if version >= 3:
            out.put(0, 4)
        out += struct.pack(">ii", 1, NODE_ID)  # one broker: this one
        out.put_string(b"127.0.0.1")
        out.put(self.port, 4)
        if version >= 1:
            out.put(-1, 2)  # rack
        if version >= 2:
            out.put_string(b"sink")  # cluster id
        if version >= 1:
            out.put(NODE_ID, 4)  # controller
        topics = max(request.get(4), 0)
        out.put(topics, 4)
        for _ in range(topics):
            self.topic(out, request.take(request.get(2)), version)

    def topic(self, out: Writer, name: memoryview, version: int) -> None:
        out.put(0, 2)
        out.put_string(name)
        if version >= 1:
            out.put(0, 1)
        out.put(self.partitions, 4)
        for index in range(self.partitions):
            out += struct.pack(">hii", 0, index, NODE_ID)
            if version >= 7:
                out.put(0, 4)
            out += struct.pack(">4i", 1, NODE_ID, 1, NODE_ID)  # replicas, in sync
            if version >= 5:
                out.put(0, 4)

    def produce(self, request: Reader, out: Writer, version: int, flexible: bool) -> int:
        """Count the records, write the answer, and return acks."""
        if flexible:
            out.put_uvarint(0)
        request.take(request.get_length(flexible, 2))  # transactional id
        acks = request.get(2)
        request.take(4)  # timeout
        topics = request.get_length(flexible, 4)
        out.put_length(topics, flexible, 4)
        for _ in range(topics):
            out.put_string(request.take(request.get_length(flexible, 2)), flexible)
            partitions = request.get_length(flexible, 4)
            out.put_length(partitions, flexible, 4)
            for _ in range(partitions):
                self.partition(request, out, version, flexible)
            if flexible:
                request.skip_tags()
                out.put_uvarint(0)
        out.put(0, 4)  # throttle
        if flexible:
            out.put_uvarint(0)
        self.counts["requests"] += 1
        return acks

    def partition(self, request: Reader, out: Writer, version: int, flexible: bool) -> None:
        out.put(request.get(4), 4)
        self.count_batches(request.take(request.get_length(flexible, 4)))
        out += struct.pack(">hqq", 0, 0, -1)  # nothing is stored, so every batch begins at offset 0
        if version >= 5:
            out.put(0, 8)
        if version >= 8:
            out.put_length(0, flexible, 4)
            out.put_length(-1, flexible, 2)
        if flexible:
            request.skip_tags()
            out.put_uvarint(0)

    def count_batches(self, data: memoryview) -> None:
        self.counts["bytes"] += len(data)
        batches = Reader(data)
        while batches.at < len(data):
            header = batches.take(HEADER_BYTES)
            if header[16] != 2:
                raise ValueError("a batch that is not of format 2")
            batches.take(int.from_bytes(header[8:12], "big") + 12 - HEADER_BYTES)
            self.counts["records"] += int.from_bytes(header[57:61], "big")
            self.counts["batches"] += 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        answering = asyncio.create_task(self.answer_late(late, writer)) if self.delay_seconds else None
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                if size > MAX_FRAME_BYTES:
                    raise ValueError("frame size out of range")
                answer = self.answer(memoryview(await reader.readexactly(size)))
                if answering is None:
                    writer.write(answer)
                else:
                    late.put_nowait((asyncio.get_running_loop().time() + self.delay_seconds, answer))
        except (asyncio.IncompleteReadError, ConnectionError):
            if answering is not None:
                answering.cancel()
            writer.close()

    async def answer_late(
        self, answers: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        """Write each answer when its time has come."""
        while True:
            due, answer = await answers.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            writer.write(answer)


async def main(partitions: int, delay_ms: float) -> None:
    sink = Sink(partitions, delay_ms / 1000)
    server = await asyncio.start_server(sink.serve, "127.0.0.1", 0, limit=2 << 20)
    sink.port = server.sockets[0].getsockname()[1]
    print(sink.port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(sink.counts))


if __name__ == "__main__":
    asyncio.run(
        main(
            int(sys.argv[1]) if len(sys.argv) > 1 else 4,
            float(sys.argv[2]) if len(sys.argv) > 2 else 0,
        )
    )
