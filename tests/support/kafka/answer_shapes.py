"""The same requests to two clusters, in every version, and what their answers hold: null, empty or a value.

A `Speaker` asks and notes down the shape of each answer: its error codes as they are, and of everything else
whether it is null, empty or set, negative, zero or positive. Two clusters that answer alike leave the same
notes, whatever ids and ports and texts of errors they have.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.testing.contract.behaviour import BrokenPromise
from splashdam.testing.contract.raw_connection import RawConnection
from splashdam.wire.message import Request, Struct
from splashdam.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest
from splashdam.wire.registry import API_KEYS

Shape: TypeAlias = Mapping[str, str]
"""Where in an answer → what is there; elements of lists by their number, after sorting."""

_VERSION = re.compile(r" \d+ ")
PASSING = {14, 15, 16, 51}
PATIENCE_SECONDS = 5.0


def shape_of(answer: Struct, version: int) -> dict[str, str]:
    """What is where in an answer."""
    found: dict[str, str] = {}
    _note(answer, "", version, found)
    return found


def _note(value: Struct, where: str, version: int, found: dict[str, str]) -> None:
    for field in value.FIELDS:
        if version in field.versions:
            _note_value(getattr(value, field.name), f"{where}{field.name}", version, found)


def _note_value(value: Any, where: str, version: int, found: dict[str, str]) -> None:
    if isinstance(value, Struct):
        _note(value, f"{where}.", version, found)
    elif isinstance(value, list) and value:
        for each in value:
            _note_value(each, f"{where}[]", version, found)
    else:
        kinds = {kind for kind in found.get(where, "").split(" or ") if kind} | {_kind_of(value, where)}
        found[where] = " or ".join(sorted(kinds))


def _kind_of(value: Any, where: str) -> str:
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, (str, list, bytes, bytearray, memoryview)):
        if len(value) == 16 and not any(value) if isinstance(value, bytes) else not len(value):
            return "empty"
        return "set"
    if where.endswith("subscription_id"):
        return "set" if value else "0"  # a checksum: its sign says nothing
    if where.endswith(("error_code", "port")) or value < 0:
        return str(value) if not where.endswith("port") or value < 1 else "set"
    return "positive" if value else "0"


Until: TypeAlias = Callable[[Any], object]
"""Whether an answer is the one that is waited for; what else comes before it is news that travels."""


def codes_of(answer: Struct, version: int) -> set[int]:
    """All error codes in an answer."""
    return {
        int(each)
        for where, kind in shape_of(answer, version).items()
        if where.endswith("error_code")
        for each in kind.split(" or ")
    }


@attrs.define(slots=False)
class Speaker:
    """Speaks to one cluster.

    Attributes:
        servers: where it answers.
        who: asks; in front of what is noted down, where several do.
        login: what it says by PLAIN before anything else; None on a listener that does not ask.
        waits: whether it waits for answers that are to come; not where it is refused whatever it asks.
        notes: by what was asked: API, version, and what about it.
    """

    servers: str
    who: str = ""
    login: bytes | None = None
    waits: bool = True
    notes: dict[str, Shape] = attrs.field(factory=dict)
    _talk: RawConnection | None = None

    def __enter__(self) -> Speaker:
        self._talk = self.another()
        if self.login is not None:
            self._talk.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            said = self._talk.ask(SaslAuthenticateRequest(auth_bytes=self.login), 2)
            assert said.error_code == 0, said
        return self

    def __exit__(self, *_: object) -> None:
        assert self._talk is not None
        self._talk.__exit__(None, None, None)

    def another(self) -> RawConnection:
        """A further connection."""
        return RawConnection(*parse_bootstrap_servers(self.servers)[0])

    def ask(
        self,
        what: str,
        request: Request[Any],
        version: int,
        until: Until | None = None,
        talk: RawConnection | None = None,
    ) -> Any:
        """Asks and notes the answer down; asks again while coordinators are not ready, or until it is so."""
        question = f"{API_KEYS[request.API_KEY].name} {version} {self.who}{what}"
        talk = talk or self._talk
        assert talk is not None
        until_s = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                answer = talk.ask(request, version)
            except BrokenPromise:  # no answer, and it may be the last one on this connection
                self.notes[question] = {"connection": "closed"}
                self.__exit__()
                self.__enter__()
                return None
            if not self.waits or time.monotonic() > until_s:
                break
            if not codes_of(answer, version) & PASSING and (until is None or until(answer)):
                break
            time.sleep(0.02)
        self.notes[question] = shape_of(answer, version)
        return answer

    def each(self, what: str, make: Callable[[int], Request[Any]], until: Until | None = None) -> None:
        """Asks in every version."""
        for version in type(make(99)).VERSIONS:
            self.ask(what, make(version), version, until)

    def done(self, what: str, make: Callable[[int], Request[Any]]) -> None:
        """Asks in every version for what is to succeed, unless it is refused: until all codes say so."""
        for version in type(make(99)).VERSIONS:
            answer = self.ask(
                what, make(version), version, lambda answer, of=version: codes_of(answer, of) <= {0}
            )
            assert not self.waits or codes_of(answer, version) <= {0}, answer


def differences(ours: Mapping[str, Shape], theirs: Mapping[str, Shape]) -> list[str]:
    """What differs, as ``question: place: ours instead of theirs``.

    A text beside an error about which Kafka says nothing is none.
    """
    return [
        f"{question}: {place}: {mine.get(place)} instead of {their.get(place)}"
        for question in dict.fromkeys([*theirs, *ours])
        for mine, their in [(ours.get(question, {}), theirs.get(question, {}))]
        for place in dict.fromkeys([*their, *mine])
        if mine.get(place) != their.get(place) and not _says_more(place, mine, their)
    ]


def _says_more(place: str, mine: Shape, their: Shape) -> bool:
    code = mine.get(place.replace("error_message", "error_code"), "0")
    said = (mine.get(place), their.get(place))
    return (
        place.endswith("error_message")
        and code != "0"
        and said in {("set", "None"), ("set", "empty"), ("set", "None or set")}
    )


def unexplained(found: Iterable[str], known: Mapping[str, Iterable[str]]) -> list[str]:
    """Differences that no pattern is about, and patterns that are about none.

    Args:
        found: as `differences` has them.
        known: why something differs → patterns of differences without their versions; ``*`` is any text.
    """
    unused = {
        pattern: re.compile(re.escape(pattern).replace(r"\*", ".*"))
        for each in known.values()
        for pattern in each
    }
    patterns = dict(unused)
    left = []
    for each in found:
        hits = [name for name, look in patterns.items() if look.fullmatch(_VERSION.sub(" ", each, count=1))]
        for name in hits:
            unused.pop(name, None)
        if not hits:
            left.append(each)
    return [*left, *(f"{each}: differs no more" for each in unused)]
