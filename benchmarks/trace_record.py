"""Prints the files that a record passes from `send` to its batch, and a Produce request from socket to disk.

``python benchmarks/trace_record.py`` prints them in the order of their first call; ``--calls`` also prints
every function. The Python twin is traced: the compiled one would hide the kernel's files.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

os.environ["SPLASHDAM_PURE"] = "1"

import splashdam

TOPIC = "flights"


class Trace:
    """The calls of splashdam's functions in one thread, within `armed`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self._thread = 0
        self._ends: tuple[str, ...] = ()

    def files(self) -> list[str]:
        """Each file once, in the order of the first call."""
        return list(dict.fromkeys(file for file, _ in self.calls))

    @contextmanager
    def armed(self, thread: int, *ends: str) -> Iterator[None]:
        """Note the calls of this thread, up to the first call of a built-in that ``ends`` names."""
        self._thread, self._ends = thread, ends
        try:
            yield
        finally:
            self._thread = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        if event == "call":
            module = frame.f_globals.get("__name__", "")
            if module.startswith("splashdam.") and not frame.f_code.co_filename.startswith("<"):
                path = module.removeprefix("splashdam.").replace(".", "/") + ".py"
                self.calls.append((path, frame.f_code.co_qualname))
        elif event == "c_call" and argument.__name__ in self._ends:
            self._thread = 0


def main() -> None:
    """Trace both paths, and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", action="store_true", help="print every function, not the files alone")
    asked = parser.parse_args()
    to_batch, to_disk = Trace(), Trace()
    threading.setprofile(to_disk)
    with tempfile.TemporaryDirectory() as directory, splashdam.EmbeddedBroker(Path(directory)) as broker:
        loop = next(thread.ident for thread in threading.enumerate() if "broker" in thread.name)
        threading.setprofile(None)
        with splashdam.KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, enable_idempotence=False
        ) as producer:
            producer.send(TOPIC, b"the topic is known now", key=b"first").get(timeout=30)
            with to_disk.armed(loop or 0, "pwritev", "writev", "pwrite", "write"):
                sys.setprofile(to_batch)
                with to_batch.armed(threading.get_ident()):
                    future = producer.send(TOPIC, b"value", key=b"key")
                sys.setprofile(None)
                future.get(timeout=30)
    for title, trace in (("send() to the batch", to_batch), ("socket to disk", to_disk)):
        print(f"{title}: {len(trace.files())} files, {len(trace.calls)} calls")
        for file, function in trace.calls if asked.calls else [(file, "") for file in trace.files()]:
            print(f"  {file:60} {function}".rstrip())


if __name__ == "__main__":
    main()
