"""A behaviour: something that a cluster does, as a client sees it, and a function that looks whether it does.

A behaviour is a function of a `Run`; its docstring says what clients may rely on. It fails with a
`BrokenPromise`, or with a `Refused` that nobody expected. `behaviour` names the operations it needs; clients
that lack one are left out.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from inspect import cleandoc
from typing import NamedTuple

from splashdam.testing.contract.vocabulary import NOT_IN_CLIENT, Client, Refused

PREFIX = "splashdam-contract-"
"""Topics, groups and transactional ids of a run begin with it, and nothing else is touched."""

PATIENCE_SECONDS = 10.0
"""For how long a change of the cluster may take to arrive."""

_PAUSE_SECONDS = 0.02
_SHOWN_CHARS = 300


class BrokenPromise(Exception):
    """A behaviour does not hold; the text says what was found, and what should have been."""


def expect(found: object, wanted: object, what: str = "found") -> None:
    """Compares.

    Raises:
        BrokenPromise: they differ.
    """
    if found != wanted:
        raise BrokenPromise(f"{what}: {_shown(found)}, and not {_shown(wanted)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def expect_one_of(found: object, wanted: Collection[object], what: str = "found") -> None:
    """As `expect`, where several answers are good."""
    if found not in wanted:
        raise BrokenPromise(f"{what}: {found!r}, and none of {', '.join(map(repr, wanted))}")


class Behaviour(NamedTuple):
    """One of them.

    Attributes:
        area: the module it stands in.
        name: of the function.
        text: what it promises.
        needs: the operations a client must have.
        check: looks whether it holds.
    """

    area: str
    name: str
    text: str
    needs: frozenset[str]
    check: Callable[[Run], None]

    @property
    def title(self) -> str:
        """The name as words."""
        return self.name.replace("_", " ")


BEHAVIOURS: list[Behaviour] = []
"""All that are imported, in the order in which they are written; `behaviours.all_behaviours` imports them."""


def behaviour(*needs: str) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Declares a function to be a behaviour.

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
    """One behaviour through one client.

    Args:
        client: the client under contract.
        helper: a client that creates and deletes what the run needs.
        bootstrap_servers: of the cluster, for what speaks the protocol itself.

    Attributes:
        client, helper, bootstrap_servers: as given.
    """

    def __init__(self, client: Client, helper: Client, bootstrap_servers: str) -> None:
        self.client = client
        self.helper = helper
        self.bootstrap_servers = bootstrap_servers
        self._prefix = f"{PREFIX}{secrets.token_hex(4)}-"
        self._numbers = itertools.count()
        self._topics: list[str] = []
        self._groups: list[str] = []

    def name(self) -> str:
        """A name that nobody else has."""
        return f"{self._prefix}{next(self._numbers)}"

    def new_topic(self) -> str:
        """The name of a topic that does not exist, and is deleted at the end if it does by then."""
        name = self.name()
        self._topics.append(name)
        return name

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """A topic that keeps its records; configurations by their names with ``_`` for ``.``."""
        name = self.new_topic()
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        dotted.setdefault("retention.ms", "-1")  # most records carry a time of long ago
        self.helper.create_topic(name, partitions, configs=dotted)
        self.eventually(lambda: expect(len(self.helper.describe_topic(name)), partitions, "partitions"))
        for partition in range(partitions):  # a leader answers a little later than it is named
            self.eventually(partial(self.helper.offsets, name, "latest", partition))
        return name

    def group(self) -> str:
        """The name of a group, deleted at the end."""
        name = self.name()
        self._groups.append(name)
        return name

    def eventually(self, look: Callable[[], object]) -> None:
        """Looks again for a few seconds: a change of the cluster takes its time to each broker.

        Raises:
            BrokenPromise, Refused: what the last look ended with.
        """
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                look()
            except (BrokenPromise, Refused) as error:
                if isinstance(error, Refused) and error.name == NOT_IN_CLIENT:
                    raise
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                return

    @contextmanager
    def refused(self, *names: str) -> Iterator[None]:
        """A block that has to end with one of these errors."""
        wanted = " or ".join(names)
        try:
            yield
        except Refused as error:
            if error.name not in names:
                raise BrokenPromise(f"refused with {error}, and not with {wanted}") from error
        else:
            raise BrokenPromise(f"it was not refused, and should have been with {wanted}")

    def clean_up(self) -> None:
        """Deletes its topics and groups, as far as the cluster lets it."""
        for group in self._groups:
            with suppress(Refused):
                self.helper.call("delete_group", group=group)
        for topic in self._topics:
            with suppress(Refused):
                self.helper.call("delete_topic", topic=topic)
