"""A behaviour of a cluster: a promise, and a function that checks it through a client.

The function takes a `Run`, and its docstring says what clients may rely on. It fails with `BrokenPromise`,
or with a `Refused` that it did not expect. `behaviour` declares the operations it needs; clients without them
are left out.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from inspect import cleandoc
from typing import NamedTuple

from splashdam.testing.contract.vocabulary import NOT_IN_CLIENT, Client, Listener, Refused

PREFIX = "splashdam-contract-"
"""Prefix of the topics, groups and transactional ids of a run; it changes no others."""

PATIENCE_SECONDS = 10.0
"""How long a change may take to reach every broker."""

_PAUSE_SECONDS = 0.02
_SHOWN_CHARS = 300


class BrokenPromise(Exception):
    """A behaviour does not hold; the message has the found and the expected value."""


def expect(found: object, wanted: object, what: str = "found") -> None:
    """Check that two values are equal.

    Raises:
        BrokenPromise: ``found`` differs from ``wanted``; the message begins with ``what``.
    """
    if found != wanted:
        raise BrokenPromise(f"{what}: {_shown(found)}, and not {_shown(wanted)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def expect_one_of(found: object, wanted: Collection[object], what: str = "found") -> None:
    """Like `expect`, with several acceptable values."""
    if found not in wanted:
        raise BrokenPromise(f"{what}: {found!r}, and none of {', '.join(map(repr, wanted))}")


class Behaviour(NamedTuple):
    """A promise of a cluster, and the function that checks it.

    Attributes:
        area: name of the module that declares it.
        name: name of the function.
        text: docstring of the function: what clients may rely on.
        needs: operations that a client must have.
        check: the function.
    """

    area: str
    name: str
    text: str
    needs: frozenset[str]
    check: Callable[[Run], None]

    @property
    def title(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ")


BEHAVIOURS: list[Behaviour] = []
"""Every behaviour of the modules imported so far; `behaviours.all_behaviours` imports all modules."""


def behaviour(*needs: str) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Declare a function as a behaviour.

    Args:
        needs: the operations of `Client` it uses.
    """

    def declare(check: Callable[[Run], None]) -> Callable[[Run], None]:
        area = check.__module__.rpartition(".")[2]
        text = cleandoc(check.__doc__ or "")
        BEHAVIOURS.append(Behaviour(area, check.__name__, text, frozenset(needs), check))
        return check

    return declare


class Run:
    """One run of a behaviour through a client; it creates topics and groups and deletes them afterwards.

    Args:
        client: the client under contract.
        helper: the client that creates, checks and deletes.
        bootstrap_servers: addresses of the cluster, for a `RawConnection`.
        listeners: of the cluster, with what lets a client in. The first is that of ``bootstrap_servers``;
            the area ``security`` connects to the others, too.

    Attributes:
        client, helper, bootstrap_servers, listeners: as given.
    """

    def __init__(
        self, client: Client, helper: Client, bootstrap_servers: str, listeners: Sequence[Listener] = ()
    ) -> None:
        self.client = client
        self.helper = helper
        self.bootstrap_servers = bootstrap_servers
        self.listeners = tuple(listeners) or (Listener(bootstrap_servers),)
        self._prefix = f"{PREFIX}{secrets.token_hex(4)}-"
        self._numbers = itertools.count()
        self._topics: list[str] = []
        self._groups: list[str] = []

    def name(self) -> str:
        """Return a name that nothing else has."""
        return f"{self._prefix}{next(self._numbers)}"

    def new_topic(self) -> str:
        """Return the name of a topic that does not exist; if it does at the end of the run, it is deleted."""
        name = self.name()
        self._topics.append(name)
        return name

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """Create a topic that keeps its records; ``configs`` are Kafka's names with ``_`` for ``.``."""
        name = self.new_topic()
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        dotted.setdefault("retention.ms", "-1")  # most records of the contract have timestamps of 2023
        self.helper.create_topic(name, partitions, configs=dotted)
        self.eventually(lambda: expect(len(self.helper.describe_topic(name)), partitions, "partitions"))
        for partition in range(partitions):  # metadata names a leader before that leader answers
            self.eventually(partial(self.helper.offsets, name, "latest", partition))
        return name

    def group(self) -> str:
        """Return the name of a group that is deleted at the end of the run."""
        name = self.name()
        self._groups.append(name)
        return name

    def eventually(self, look: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
        """Repeat ``look`` for a few seconds: a change may take a moment to reach every broker.

        Raises:
            BrokenPromise, Refused: as raised by the last call.
        """
        until = time.monotonic() + seconds
        while True:
            try:
                look()
            except (BrokenPromise, Refused) as error:
                # An operation that the client lacks does not appear by waiting.
                if isinstance(error, Refused) and error.name == NOT_IN_CLIENT:
                    raise
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                return

    @contextmanager
    def without_creation(self, topic: str) -> Iterator[None]:
        """Leave the behaviour out if the block fails because the cluster has created this topic by itself."""
        try:
            yield
        except BrokenPromise:
            if topic in self.helper.call("list_topics"):
                raise Refused(
                    NOT_IN_CLIENT, "the cluster creates topics that are asked for (auto.create.topics.enable)"
                ) from None
            raise

    @contextmanager
    def refused(self, *names: str) -> Iterator[None]:
        """Check that the block ends with one of these errors."""
        wanted = " or ".join(names)
        try:
            yield
        except Refused as error:
            if error.name not in names:
                raise BrokenPromise(f"refused with {error}; expected {wanted}") from error
        else:
            raise BrokenPromise(f"not refused; expected {wanted}")

    def clean_up(self) -> None:
        """Delete topics and groups of the run; a failure is ignored."""
        for group in self._groups:
            with suppress(Refused):
                self.helper.call("delete_group", group=group)
        for topic in self._topics:
            with suppress(Refused):
                self.helper.call("delete_topic", topic=topic)
