"""Clients of other languages: a process each, and a line of JSON for every operation."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any

from splashdam.testing.contract.vocabulary import Client, Refused

ANSWER_SECONDS = 60.0
"""A driver that says nothing for so long is killed."""


class ExternalClient(Client):
    """A driver that runs as a process.

    Args:
        command: starts it.
        bootstrap_servers: of the cluster.
        directory: where it runs.

    Raises:
        Refused: it did not start.
    """

    def __init__(self, command: Sequence[str], bootstrap_servers: str, directory: Path) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        try:
            found = self.call("open", bootstrap=bootstrap_servers)
        except BaseException:
            self.close()
            raise
        self.name, self.version, self.ops = found["name"], found["version"], frozenset(found["ops"])

    def call(self, op: str, /, **args: Any) -> Any:
        request = json.dumps({"op": op, "args": args})
        timer = Timer(ANSWER_SECONDS, self._process.kill)
        timer.start()
        try:
            line = self._talk(request)
        finally:
            timer.cancel()
        if not line:
            raise Refused("DRIVER_ENDED", f"{self._process.args!r} said nothing to {op}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"], answer.get("text", ""))
        return answer.get("ok")

    def _talk(self, request: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return ""
        return self._process.stdout.readline()

    def close(self) -> None:
        """Ends the process, kindly at first."""
        if self._process.poll() is None:
            self._talk(json.dumps({"op": "close", "args": {}}))
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # of a request that a dead process did not take
                    stream.close()
