"""Sends hostile requests to brokers, and checks the answers, their cost and the log: ``make fuzz``.

A finding is printed with the ``--seed`` and ``--kind`` that repeat it. Add a test for it to
``tests/embedded_broker/serving/test_what_the_fuzzer_found.py``.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import logging
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import trio
from support.broker.broker_talk import Talk, batch, create_request, fetch_request, produce_request
from support.broker.cluster_kit import NODES, open_cluster
from support.broker.loop_watch import LoopWatch, UncountedFiles
from trio.testing import MockClock

from lab.arguments import positive, positive_int
from lab.fuzzing.hostile_requests import RequestMaker
from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.transactions.metadata import TransactionState
from splashdam.model.errors import ProtocolError
from splashdam.net.memory import memory_stream_pair
from splashdam.storage.topic_names import TRANSACTION_STATE
from splashdam.testing.clock import VirtualClock
from splashdam.wire.header import decode_response
from splashdam.wire.message import Request
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.metadata import MetadataRequest
from splashdam.wire.messages.produce import ProduceRequest
from splashdam.wire.registry import API_KEYS

KINDS = ("alone", "with ACLs", "cluster")

MOST_CPU_SECONDS = 2.0
"""Limit of CPU time for one request, over all steps of the loop but the fuzzer's: most take milliseconds."""
MOST_HOLD_SECONDS = 0.06
"""Limit of CPU time for one step of a broker's task; no other client is served meanwhile. A turn has
256 units of about 30 µs (docs/decisions/turns.md); but here caches are cold, and a topic is created in one
step."""
MOST_BYTES = 200 << 20
"""Limit of the process's growth with one request."""
_PATIENCE_SECONDS = 4.0
"""Virtual time that a request has for its answer. After it the request is parked until other clients act, or
the broker waits for more bytes of the frame."""
_HONEST_SECONDS = 3600.0
_LINES = 3
_REPLAYS = 2
"""Replays of a round with a slow step: a single slow step may be due to an import or a busy machine."""
_ACLS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow_everyone_if_no_acl_found": True,
}
_COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1048576"}


class FindingError(AssertionError):
    """A broker broke a rule; the message names the rule and the request."""


class Hold(NamedTuple):
    """A long step of the loop: no other client was served meanwhile."""

    seconds: float
    task: str
    asked: str


class Watch(logging.Handler):
    """Collects what brokers log, and measures how long they hold the loop.

    Attributes:
        loop: a trio instrument.
        holds: steps that were too long, by the number of the request.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.loop = LoopWatch()
        self.holds: dict[int, Hold] = {}
        self.failures: list[str] = []
        self.closings: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.ERROR:
            formatter = logging.Formatter()
            trace = formatter.formatException(record.exc_info) if record.exc_info else ""
            self.failures.append(f"{text}\n{trace}")
        elif text.startswith("closed "):
            self.closings.append(text)

    def check(self, asked: object, *, is_whole: bool, unread: int = 0) -> None:
        """Raise FindingError if a broker has logged an error, or closed a connection without good reason.

        Args:
            asked: the last request.
            is_whole: whether it was well-formed.
            unread: number of damaged requests behind a parked one: the broker may read them only now.
        """
        closings, self.closings = self.closings, []
        if self.failures:
            raise FindingError(f"{self.failures[0]}\nafter {asked!r:.3000}")
        for text in closings:
            is_wrong = is_whole and "Request" in text and "elements" not in text
            unread -= is_wrong
            if (is_wrong and unread < 0) or "Response" in text:
                raise FindingError(f"{text}\nafter {asked!r:.3000}")


@contextmanager
def watched() -> Iterator[Watch]:
    """Watch brokers during the block; nothing else handles their log then."""
    log, watch = logging.getLogger("splashdam"), Watch()
    propagates, log.propagate = log.propagate, False
    log.addHandler(watch)
    watch.loop.uncounted_task = trio.lowlevel.current_task()
    trio.lowlevel.add_instrument(watch.loop)
    try:
        yield watch
    finally:
        trio.lowlevel.remove_instrument(watch.loop)
        log.removeHandler(watch)
        log.propagate = propagates


class Session:
    """Hostile clients of the brokers; they share the values that they learn from answers.

    Args:
        noise: source of all random choices.
        brokers: the brokers under test.
        watch: watches them.
    """

    def __init__(self, noise: random.Random, brokers: list[Broker], watch: Watch) -> None:
        self.asked = 0
        self.answered = 0
        self.slowest = (0.0, "")
        self._noise = noise
        self._brokers = brokers
        self._watch = watch
        self._maker = RequestMaker(noise)
        self._lines: list[Talk] = []
        self._unread: Counter[Talk] = Counter()

    @property
    def unread(self) -> int:
        """Number of damaged requests without an answer, on connections that are open."""
        return self._unread.total()

    def _line(self) -> Talk:
        """Return one of a few connections; open one while there are fewer."""
        if len(self._lines) < _LINES:
            ours, theirs = memory_stream_pair()
            self._noise.choice(self._brokers).server.adopt(theirs)
            self._lines.append(Talk(ours))
        return self._noise.choice(self._lines)

    @property
    def holds(self) -> dict[int, Hold]:
        """Steps of the loop that took too long, by the number of the request."""
        return self._watch.holds

    async def ask(self) -> None:
        """Send one request, and check its answer, its cost and the log."""
        line, unread = self._line(), self.unread
        request, version = self._maker.request()
        frame, is_whole = self._maker.frame(request, version, self.asked)
        self.asked += 1
        self._watch.loop.forget()
        before = _most_memory()
        try:
            answer = await self._exchange(line, frame, request)
            self._check_costs(request, version, before)
        except (EOFError, trio.BrokenResourceError):
            await self._drop(line)
        else:
            if answer is None:
                self._unread[line] += not (is_whole or _is_silent(request))
                if not _is_silent(request):
                    await self._drop(line, close=self._noise.random() < 0.5)
            else:
                self._hear(answer, request, version)
        self._note_hold(request, version)
        self._watch.check((request, version), is_whole=is_whole, unread=unread)

    def _note_hold(self, request: Request[Any], version: int) -> None:
        loop = self._watch.loop
        if loop.longest_seconds > MOST_HOLD_SECONDS * len(self._brokers):  # a step may serve all brokers
            hold = Hold(loop.longest_seconds, loop.longest_task, f"{request!r:.3000} v{version}")
            self._watch.holds[self.asked] = hold

    async def _exchange(self, line: Talk, frame: bytes, request: Request[Any]) -> bytes | None:
        with trio.move_on_after(0.01 if _is_silent(request) else _PATIENCE_SECONDS):
            await line.stream.send_all(frame)
            return await line.frame()
        return None

    def _hear(self, answer: bytes, request: Request[Any], version: int) -> None:
        try:
            _, message = decode_response(answer, API_KEYS[request.API_KEY].response, version)
        except ProtocolError as error:
            raise FindingError(f"an answer to {request!r:.3000} v{version}: {error}") from error
        self.answered += 1
        self._maker.hear(message)

    def _check_costs(self, request: Request[Any], version: int, before: int) -> None:
        seconds, grown = self._watch.loop.total_seconds, _most_memory() - before
        self.slowest = max(self.slowest, (seconds, f"{request.NAME} v{version}"))
        if seconds > MOST_CPU_SECONDS or grown > MOST_BYTES:
            raise FindingError(f"{seconds:.1f} s, {grown >> 20} MiB for {request!r:.3000} v{version}")

    async def _drop(self, line: Talk, *, close: bool = True) -> None:
        self._lines.remove(line)
        if close:
            del self._unread[line]
            await line.stream.aclose()


def _is_silent(request: Request[Any]) -> bool:
    return isinstance(request, ProduceRequest) and request.acks == 0


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# --- one round: brokers, hostile clients, an honest one, a restart ------------------------------------------


async def play(kind: str, seed: int, requests: int, clock: MockClock) -> Session:
    """Play one round with this number of requests.

    Raises:
        FindingError: a broker broke a rule.
    """
    noise = random.Random(f"{kind}-{seed}")
    with watched() as watch:
        if kind == "cluster":
            async with open_cluster(clock, make_files=partial(UncountedFiles, watch.loop)) as cluster:
                brokers = [cluster.nodes[each].broker for each in NODES]
                session = await _plague(brokers, noise, watch, requests)
        else:
            session = await _play_alone(kind, noise, watch, requests, VirtualClock(clock))
    return session


async def _play_alone(
    kind: str, noise: random.Random, watch: Watch, requests: int, clock: VirtualClock
) -> Session:
    files = UncountedFiles(watch.loop)
    settings: dict[str, Any] = _ACLS if kind == "with ACLs" else {}
    async with open_broker("/data", port=None, clock=clock, files=files, **settings) as broker:
        session = await _plague([broker], noise, watch, requests)
        broker.is_killed = noise.random() < 0.3
        known = Known.of(broker)
    if broker.is_killed:
        files.kill()
    async with open_broker("/data", port=None, clock=clock, files=files, **settings) as broker:
        known.check(Known.of(broker))
        await _honest(broker, "restarted")
        watch.check("the restart", is_whole=True)
    return session


class Known(NamedTuple):
    """State that must survive a restart.

    Attributes:
        ends: log end offsets.
        open_logs: logs with an open transaction. If the topic with the transaction's state was deleted, the
            restarted broker ends the transaction with a marker, so such a log may grow.
        transactions: states by transactional id.
        removed: transactional ids whose state partition has lost records to ``retention.ms``.
    """

    ends: dict[str, int]
    open_logs: set[str]
    transactions: dict[str, TransactionState]
    removed: set[str]

    @classmethod
    def of(cls, broker: Broker) -> Known:
        """Return the state as it is now."""
        logs = {str(each): log for each, log in broker.logs.logs.items()}
        states, topic = broker.transactions.states, broker.transactions._topic
        log_of = {name: logs[f"{TRANSACTION_STATE}-{topic.partition_for(name)}"] for name in states}
        return cls(
            {name: log.log_end_offset for name, log in logs.items()},
            {name for name, log in logs.items() if log.last_stable_offset < log.high_watermark},
            {name: known.state for name, known in states.items()},
            {name for name, log in log_of.items() if log.log_start_offset},
        )

    def check(self, found: Known) -> None:
        """Raise FindingError if the restart has changed the state."""
        for name in {*self.ends, *found.ends}:
            before, after = self.ends.get(name, -1), found.ends.get(name, -1)
            if after < before or (after > before and name not in self.open_logs):
                raise FindingError(f"{name} ended at {before}, and after the restart at {after}")
        for name in {*self.transactions, *found.transactions} - self.removed:
            if self.transactions.get(name) != found.transactions.get(name):
                raise FindingError(f"the restarted broker has {found.transactions}, not {self.transactions}")


async def _plague(brokers: list[Broker], noise: random.Random, watch: Watch, requests: int) -> Session:
    session = Session(noise, brokers, watch)
    await _prepare(brokers[0])
    for _ in range(requests):
        await session.ask()
    longest = 700 if len(brokers) == 1 else 60  # followers fetch all the time, which costs real seconds
    await trio.sleep(noise.choice((0, 20, longest)))
    watch.check("waiting", is_whole=True, unread=session.unread)
    for number, broker in enumerate(brokers):
        await _honest(broker, f"honest-{number}")
    watch.check("an honest client", is_whole=True, unread=session.unread)
    return session


async def _prepare(broker: Broker) -> None:
    """Create the topics, with a batch in each."""
    ours, theirs = memory_stream_pair()
    broker.server.adopt(theirs)
    talk = Talk(ours)
    for topic, partitions, configs in (("t", 3, {}), ("u", 1, {}), ("compacted", 1, _COMPACTED)):
        await talk.ask(create_request(topic, partitions=partitions, configs=dict(configs)), 5)
        await talk.ask(produce_request(topic, batch(b"one", b"two")), 9)
    await ours.aclose()


async def _honest(broker: Broker, topic: str) -> None:
    """Check that an honest client gets an answer; ACLs and configs of the round may make it an error."""
    ours, theirs = memory_stream_pair()
    broker.server.adopt(theirs)
    talk = Talk(ours)
    asked: list[tuple[Request[Any], int]] = [
        (ApiVersionsRequest(), 0),
        (MetadataRequest(topics=None), 1),
        (create_request(topic, partitions=1), 5),
        (produce_request(topic, batch(b"value")), 9),
        (fetch_request(topic, 0), 12),
    ]
    with trio.move_on_after(_HONEST_SECONDS) as scope:
        for request, version in asked:
            answer = await talk.ask(request, version)
            if getattr(answer, "throttle_time_ms", 0) > _HONEST_SECONDS * 1000:
                break  # a quota that a hostile request has set mutes the connection for longer
    if scope.cancelled_caught:
        raise FindingError(f"an honest client was not answered in {_HONEST_SECONDS:.0f} virtual seconds")
    await ours.aclose()


def run(kind: str, seed: int, requests: int) -> Session:
    """Play a round in a trio loop of its own, in virtual time."""
    clock = MockClock(autojump_threshold=0)
    return trio.run(play, kind, seed, requests, clock, clock=clock)


def hunt(kind: str, seed: int, requests: int) -> Session:
    """Play a round; raise FindingError also if a request holds the loop too long in every replay.

    Garbage collection is off meanwhile: it would run at the same request in each replay, mostly for objects
    of the fuzzer.
    """
    gc.collect()
    gc.disable()
    try:
        return _hunt(kind, seed, requests)
    finally:
        gc.enable()


def _hunt(kind: str, seed: int, requests: int) -> Session:
    session = run(kind, seed, requests)
    holds = session.holds
    for _ in range(_REPLAYS):
        if not holds:
            break
        again = run(kind, seed, requests).holds
        holds = {number: min(hold, again[number]) for number, hold in holds.items() if number in again}
    if holds:
        number, hold = max(holds.items(), key=lambda each: each[1])
        raise FindingError(
            f"request {number} holds the loop for {hold.seconds:.3f} s of CPU, in {hold.task}:\n{hold.asked}"
        )
    return session


def main() -> int:
    """Play rounds of all kinds until the time is over, or until the first finding."""
    parser = argparse.ArgumentParser(prog="python -m lab.fuzzing.broker", description=__doc__)
    parser.add_argument("--minutes", type=positive, default=5, help="length of the run (5)")
    parser.add_argument(
        "--requests", type=positive_int, default=150, help="number of requests in a round (150)"
    )
    parser.add_argument("--seed", type=int, help="play only the round of this seed")
    parser.add_argument("--kind", choices=KINDS, help="kind of brokers of that round, with --seed")
    asked = parser.parse_args()
    faulthandler.dump_traceback_later(60 * asked.minutes + 300, exit=True)  # in case a handler never returns
    if asked.seed is not None:
        hunt(asked.kind or KINDS[0], asked.seed, asked.requests)
        return 0
    seed = random.randrange(10**9)
    counts, slowest, end = [0, 0, 0], (0.0, ""), time.monotonic() + 60 * asked.minutes
    while time.monotonic() < end:
        kind = KINDS[seed % len(KINDS)]
        print(f"\r--kind '{kind}' --seed {seed} ", end="", file=sys.stderr, flush=True)
        session = hunt(kind, seed, asked.requests)
        counts = [counts[0] + 1, counts[1] + session.asked, counts[2] + session.answered]
        slowest = max(slowest, session.slowest)
        seed += 1
    print("\n{} rounds, {} requests, {} of them answered".format(*counts))
    print(f"at most {slowest[0]:.2f} s of CPU, for {slowest[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
