"""The records of one ``produce``: sent, counted, and given up when the cluster is silent."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import attrs
import click

from splashdam.cli.exiting import explained
from splashdam.cli.output import counted
from splashdam.cli.parameters import flags_of_command
from splashdam.cli.records.lines import Parse, Piece
from splashdam.client.future import RecordFuture
from splashdam.client.producer import KafkaProducer
from splashdam.model.errors import IllegalArgumentError, KafkaError, KafkaTimeoutError
from splashdam.record.json_lines import Line

PATIENCE_SECONDS = 2.0
"""After this long without an answer a message says what the records wait for."""

LOOK_SECONDS = 0.1
"""How often the watch looks whether the cluster has answered."""

SAMPLE_RECORDS = 256
"""Of so many records the watch looks at one."""


class _Null:
    """A null value on its way to the producer, which takes None for a value that was forgotten."""


_NULL = _Null()


def value_of(value: bytes | _Null) -> bytes | None:
    """Serialize a value; the producer of a `Delivery` needs this serializer."""
    return None if isinstance(value, _Null) else value


@attrs.define
class _Silence:
    """Since when the cluster has not answered.

    Attributes:
        progress: as it was then; another one ends the silence.
        since: of the monotonic clock.
        is_told: a line has told of it.
    """

    progress: tuple[object, ...] = ()
    since: float = 0.0
    is_told: bool = False


@attrs.define
class Delivery:
    """Sends records, and counts those that are delivered, failed and refused.

    ``failed`` is counted on the sender's thread and ``refused`` on the caller's, so that neither needs a
    lock.

    Attributes:
        producer: with `value_of` as its serializer.
        topic: of all records.
        parse: makes the record of a piece of input.
        silence_seconds: after this long without any acknowledgement `flush` gives up; None: the producer's
            ``delivery.timeout.ms`` alone ends the wait.
        sent: records that the producer has taken.
        failed: records of these that were not delivered.
        refused: pieces of input that are no record, or that the producer has not taken.
        first_problem: why the first of them was lost.
        interrupted: a signal has ended the reading.
    """

    producer: KafkaProducer
    topic: str
    parse: Parse
    silence_seconds: float | None
    sent: int = 0
    failed: int = 0
    refused: int = 0
    first_problem: str = ""
    interrupted: bool = False
    _is_sending: bool = False
    _is_flushing: bool = False
    _has_given_up: bool = False
    _newest: RecordFuture | None = None
    _samples: deque[RecordFuture] = attrs.field(factory=deque)
    _name_of: Callable[[str], str] = attrs.field(factory=flags_of_command, init=False)  # for all threads

    def send_all(self, pieces: Iterable[Piece]) -> None:
        """Send every record; count what is refused, and go on with the next.

        Raises:
            IllegalArgumentError: the partition does not exist.
            KafkaTimeoutError: no broker took records for ``max.block.ms``; further ones would wait as long.
        """
        for piece in pieces:
            try:
                self._send(self.parse(piece.text))
            except (KafkaTimeoutError, IllegalArgumentError):  # no partition of this number
                self.refused += 1
                raise
            except (KafkaError, ValueError) as error:
                self.refused += 1
                self._note(f"{piece}: {explained(error)}")

    def _send(self, line: Line) -> None:
        # `send` blocks while the metadata is missing or the buffer is full, and the watch must tell of that,
        # too.
        self._is_sending = True
        try:
            future = self.producer.send(
                self.topic,
                _NULL if line.value is None else line.value,
                line.key,
                line.headers,
                line.partition,
                line.timestamp_ms,
            )
        finally:
            self._is_sending = False
        self._newest = future
        self.sent += 1
        if self.sent % SAMPLE_RECORDS == 0:
            self._samples.append(future)
        future.add_errback(self._count_failure)

    def _count_failure(self, error: BaseException) -> None:
        self.failed += 1
        self._note(explained(error, self._name_of))

    def _note(self, problem: str) -> None:
        self.first_problem = self.first_problem or problem

    def flush(self) -> bool:
        """Wait until every record has its outcome; return False if the cluster was silent for too long.

        Call it within `watched`.
        """
        self._is_flushing = True
        self.producer.flush()
        return not self._has_given_up

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the cluster during the block.

        When it has not answered for some seconds, a line says so: once, until it answers again. A flush is
        given up after ``silence_seconds``: the records that are left fail.
        """
        # A lock that is held until the end, not an Event: on Python 3.14 Ctrl-C may leave an Event's lock
        # locked.
        ends = threading.Lock()
        ends.acquire()

        def watch() -> None:
            silence = _Silence()
            while not ends.acquire(timeout=LOOK_SECONDS):
                self._look(silence)

        thread = threading.Thread(target=watch, name="splashdam-produce-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ends.release()
            thread.join()

    def _look(self, silence: _Silence) -> None:
        now = time.monotonic()
        progress = (self.sent, self.failed, self._is_flushing, self._newest, self._unanswered_samples())
        is_waiting = self._is_sending or (self._newest is not None and not self._newest.is_done)
        if not is_waiting or progress != silence.progress:
            silence.progress, silence.since, silence.is_told = progress, now, False
            return
        seconds = now - silence.since
        linger_seconds = 0.0 if self._is_flushing else self.producer.config["linger_ms"] / 1000
        if seconds >= PATIENCE_SECONDS + linger_seconds and not silence.is_told:
            silence.is_told = True
            click.echo(
                f"waiting for the cluster, for at most {self._limit_seconds():g} s;"
                f" so far: {explained(self.producer.last_failure, self._name_of)}",
                err=True,
            )
        limit = self.silence_seconds
        if self._is_flushing and not self._has_given_up and limit is not None and seconds >= limit:
            self._has_given_up = True
            why = explained(self.producer.last_failure, self._name_of)
            self._note(f"nothing was acknowledged for {limit:g} s; {why}")
            # Every record fails then, and `flush` returns in the main thread.
            self.producer.purge(queued=True, in_flight=True)

    def _unanswered_samples(self) -> int:
        for _ in range(len(self._samples)):
            future = self._samples.popleft()
            if not future.is_done:
                self._samples.append(future)
        return len(self._samples)

    def _limit_seconds(self) -> float:
        config = self.producer.config
        if self._is_sending:
            return float(config["max_block_ms"]) / 1000
        if self._is_flushing and self.silence_seconds is not None:
            return self.silence_seconds
        return float(config["delivery_timeout_ms"]) / 1000

    def summary(self, seconds: float) -> str:
        """Return the line for standard error at the end."""
        lost = self.failed + self.refused
        parts = [f"{counted(self.sent - self.failed, 'record')} delivered to {self.topic} in {seconds:.2f} s"]
        if lost:
            parts.append(f"{lost:,} not delivered; the first: {self.first_problem or 'see below'}")
        if self.interrupted:
            parts.append("interrupted")
        return "; ".join(parts)

    def status(self) -> int:
        """Return the exit status of a run without interrupt: 0 only if every record was delivered."""
        return 1 if self.failed + self.refused else 0
