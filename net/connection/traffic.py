"""What goes over the connections to one broker."""

from __future__ import annotations

from splashdam.model.tally import Tally


class Traffic(Tally):
    """Counted by ``Connection``, and by who opens and closes them.

    Attributes:
        requests: requests written.
        request_bytes: their bytes, frames included.
        request_bytes_max: of the largest one.
        responses: answers.
        response_bytes: bytes read.
        latency_ms: from writing a request to its answer, summed over all answers.
        latency_ms_max: of the slowest one.
        throttle_ms: how long the broker wanted to be left alone, summed over all answers.
        throttle_ms_max: the longest of these times.
        opened: connections that were made and agreed on versions.
        closed: those of them that have ended.
        network_io: requests and answers together.
    """

    requests: int = 0
    request_bytes: int = 0
    request_bytes_max: int = 0
    responses: int = 0
    response_bytes: int = 0
    latency_ms: float = 0
    latency_ms_max: float = 0
    throttle_ms: float = 0
    throttle_ms_max: float = 0
    opened: int = 0
    closed: int = 0
    network_io: int = 0

    def sent(self, size_bytes: int) -> None:
        """A request is being written."""
        self.requests += 1
        self.network_io += 1
        self.request_bytes += size_bytes
        self.request_bytes_max = max(self.request_bytes_max, size_bytes)

    def answered(self, latency_ms: float, throttle_ms: float) -> None:
        """An answer is there."""
        self.responses += 1
        self.network_io += 1
        self.latency_ms += latency_ms
        self.latency_ms_max = max(self.latency_ms_max, latency_ms)
        if throttle_ms > 0:
            self.throttle_ms += throttle_ms
            self.throttle_ms_max = max(self.throttle_ms_max, throttle_ms)
