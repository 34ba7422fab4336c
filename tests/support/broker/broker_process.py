"""A broker in a process of its own, which can be killed."""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from splashdam.embedded_broker.embedded import EmbeddedBroker
from support.running import leftovers

# Processes are forked from one that has imported everything and opened nothing: a start takes milliseconds.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["splashdam.embedded_broker.embedded"])


def _serve(data: str, port: int, settings: dict[str, Any], address: Connection) -> None:
    with EmbeddedBroker(data, port, **settings) as broker:
        address.send(broker.bootstrap_servers)
        signal.pause()


class BrokerProcess:
    """Starts a broker on a directory: on a free port the first time, on the same one every time after."""

    def __init__(self, data: Path, **settings: Any) -> None:
        self._data = data
        self._settings = settings
        self._process: BaseProcess | None = None
        self.address = "127.0.0.1:0"

    def start(self) -> None:
        """Returns once it listens; EOFError if it ends instead."""
        with leftovers.kept():  # the one that forks stays
            forkserver.ensure_running()
        port = int(self.address.rpartition(":")[2])
        ours, theirs = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(
            target=_serve, args=(str(self._data), port, self._settings, theirs), daemon=True
        )
        self._process.start()
        theirs.close()
        with ours:
            self.address = ours.recv()

    def kill(self) -> None:
        """SIGKILL, and waits until it is gone; a broker that does not run is left alone."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._process = None
