"""Who keeps sending: a thread with a producer, to all partitions of the topic."""

from __future__ import annotations

import threading

from lab.pipeline_chaos.driver import TOPIC
from splashdam import KafkaProducer

PARTITIONS = 3
_PAUSE_SECONDS = 0.05


class Sender:
    """Sends from ``start`` to ``stop``.

    Args:
        servers: of the cluster.
        rate: records per second, about.

    Attributes:
        sent: records so far.
    """

    def __init__(self, servers: str, rate: int) -> None:
        self.sent = 0
        self._per_turn = max(1, int(rate * _PAUSE_SECONDS))
        self._servers = servers
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sender")

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Returns when all that was sent is acknowledged."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        with KafkaProducer(bootstrap_servers=self._servers) as producer:
            while True:
                for number in range(self.sent, self.sent + self._per_turn):
                    producer.send(
                        TOPIC,
                        b"record %d" % number,
                        key=b"%d" % (number % 100),
                        partition=number % PARTITIONS,
                    )
                self.sent += self._per_turn
                if self._ended.wait(_PAUSE_SECONDS):
                    break
            producer.flush()
