"""Sends a year of flights in the order of their departures, faster than real time, from a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from flights_data import flights

from splashdam import KafkaProducer

TOPIC = "flights"

WATERMARK_DAYS = 21
"""Days that a flight may be read late. A second of this run is some 18 days, and partitions are filled and
read side by side: a few milliseconds between two of them are hours."""

_FLUSHED_DAYS = 7
"""The producer is flushed after each week, so that no partition is much more than a week behind."""


Flight = tuple[int, bytes, bytes]
"""Scheduled departure in milliseconds, to the hour; the airline; the whole flight as JSON."""


def year(limit: int) -> list[Flight]:
    """Return the flights in the order of their scheduled departures."""
    hours: dict[bytes, int] = {}
    found = []
    for key, value in flights(limit):
        text = value.rpartition(b'"time_hour":"')[2][:20]  # parsing it all would take longer than sending
        if text not in hours:
            hours[text] = int(datetime.fromisoformat(text.decode()).timestamp() * 1000)
        found.append((hours[text], key, value))
    return sorted(found, key=lambda flight: flight[0])


class Sending:
    """Sends flights in a thread, from entering to leaving the block.

    Args:
        bootstrap_servers: of the broker.
        found: the flights, as ``year`` returns them.
        seconds: least duration of sending them all.
        on_sent: called with the number of flights sent so far, as ``completed``.

    Attributes:
        failure: the error that ended it early, if there was one.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        found: list[Flight],
        seconds: float,
        on_sent: Callable[..., object],
    ) -> None:
        self._seconds = seconds
        self._servers = bootstrap_servers
        self._found = found
        self._on_sent = on_sent
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flights", daemon=True)
        self.failure: Exception | None = None

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def is_over(self) -> bool:
        """Whether all flights are acknowledged, or sending has failed."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._send()
        except Exception as error:  # `Live.wait` raises it
            self.failure = error

    def _send(self) -> None:
        week, started = int(timedelta(days=_FLUSHED_DAYS).total_seconds()) * 1000, time.monotonic()
        flushed, futures = 0, []
        with KafkaProducer(bootstrap_servers=self._servers, compression_type="lz4", linger_ms=20) as producer:
            for number, (timestamp_ms, key, value) in enumerate(self._found, 1):
                if self._stopped.is_set():
                    return
                if timestamp_ms // week != flushed:
                    producer.flush()
                    flushed = timestamp_ms // week
                    due = started + self._seconds * number / len(self._found)
                    self._stopped.wait(max(0.0, due - time.monotonic()))
                futures.append(producer.send(TOPIC, value, key=key, timestamp_ms=timestamp_ms))
                if number % 1_000 == 0:
                    self._on_sent(completed=number)
            producer.flush()
        for future in futures:
            future.get(timeout=0)  # raises the error of a record that did not arrive
        self._on_sent(completed=len(futures))
