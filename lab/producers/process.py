"""Starts and watches the process of the producers, from the process that causes the faults."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab.memory import PRODUCERS_MAY_GROW_BYTES, Curve
from lab.producers.streams import FINISH_SECONDS

_PATIENCE_SECONDS = 3 * FINISH_SECONDS
"""Time that the producers have at the end to deliver their records."""


class Producers:
    """The process of the producers, and its samples.

    Args:
        address: of the brokers.
        folder: for ledgers.
        rate: records per second, of all streams.
        seed: of their random choices.
        foreign: whether kafka-python sends as well.
    """

    def __init__(self, address: str, folder: Path, *, rate: float, seed: int, foreign: bool = False) -> None:
        command = [sys.executable, "-m", "lab.producers", "--address", address]
        command += ["--ledgers", str(folder), "--rate", str(rate), "--seed", str(seed)]
        command += ["--foreign"] * foreign
        self._errors = folder / "producers.log"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.last: dict[str, Any] = {}
        self.most: Counter[str] = Counter()
        self.curve = Curve("memory of the producers", PRODUCERS_MAY_GROW_BYTES)
        self._started_at = time.monotonic()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def acknowledged(self) -> int:
        """Acknowledged records so far."""
        return int(self.last.get("results", {}).get("ACKNOWLEDGED", 0))

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Names and figures for the summary."""
        facts = [
            (f"records {fate.lower().replace('_', ' ')}", f"{count:,}")
            for fate, count in self.last.get("results", {}).items()
        ]
        facts += [(name, f"{count:,}") for name, count in self.last.get("counts", {}).items()]
        facts.append(("memory of the producers", self.curve.drawn()))
        return facts + [(f"most {what} of the producers", f"{most}") for what, most in self.most.items()]

    def finish(self) -> list[str]:
        """Let the producers deliver their records and end; return their violations."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return [f"the producers' process did not end; it wrote: {self._words()}"]
        self._reader.join()
        if status or "taken" not in self.last:
            return [f"the producers' process ended with status {status}: {self._words()}"]
        words = self._words()
        violations: list[str] = self.last["violations"]
        return violations + ([f"the producers' process wrote: {words}"] if words else [])

    def kill(self) -> None:
        """Kill the process, and close its pipes."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()

    def _words(self) -> str:
        return self._errors.read_text()[-4000:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.last = json.loads(line)
            self.curve.add(time.monotonic() - self._started_at, self.last["rss"])
            self.most |= Counter({what: self.last[what] for what in ("threads", "descriptors")})
