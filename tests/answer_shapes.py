"""The same requests to two clusters, in every version, and what their answers hold: null, empty or a value.

A `Speaker` asks and notes down the shape of each answer: its error codes as they are, and of everything else
whether it is null, empty or set, negative, zero or positive. Two clusters that answer alike leave the same
notes, whatever ids and ports and texts of errors they have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.testing.contract.conversation import Conversation
from splashdam.wire.message import Request, Struct
from splashdam.wire.registry import API_KEYS

Shape: TypeAlias = Mapping[str, str]
"""Where in an answer → what is there; elements of lists by their number, after sorting."""

PASSING = {14, 15, 16, 51}
PATIENCE_SECONDS = 5.0
_SORTED_BY = ("name", "topic", "topic_name", "key", "group_id", "error_code", "node_id", "partition_index")


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
    if where.endswith(("error_code", "port")) or value < 0:
        return str(value) if not where.endswith("port") or value < 1 else "set"
    return "positive" if value else "0"


@attrs.define(slots=False)
class Speaker:
    """Speaks to one cluster.

    Attributes:
        servers: where it answers.
        notes: by what was asked: API, version, and what about it.
    """

    servers: str
    notes: dict[str, Shape] = attrs.field(factory=dict)
    _talk: Conversation | None = None

    def __enter__(self) -> Speaker:
        self._talk = self.another()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._talk is not None
        self._talk.__exit__(None, None, None)

    def another(self) -> Conversation:
        """A further connection."""
        return Conversation(*parse_bootstrap_servers(self.servers)[0])

    def ask(self, what: str, request: Request[Any], version: int) -> Any:
        """Asks and notes the answer down; asks again while coordinators are not ready, or until a code."""
        assert self._talk is not None
        until_s = time.monotonic() + PATIENCE_SECONDS
        while True:
            answer = self._talk.ask(request, version)
            shape = shape_of(answer, version)
            codes = {
                int(each)
                for where, kind in shape.items()
                if where.endswith("error_code")
                for each in kind.split(" or ")
            }
            if not codes & PASSING or time.monotonic() > until_s:
                break
            time.sleep(0.02)
        self.notes[f"{API_KEYS[request.API_KEY].name} {version} {what}"] = shape
        return answer

    def each(self, what: str, make: Callable[[int], Request[Any]]) -> None:
        """Asks in every version."""
        for version in type(make(99)).VERSIONS:
            self.ask(what, make(version), version)


def differences(ours: Mapping[str, Shape], theirs: Mapping[str, Shape]) -> list[str]:
    """What differs, as ``question: place: ours instead of theirs``."""
    return [
        f"{question}: {place}: {mine.get(place)} instead of {their.get(place)}"
        for question in dict.fromkeys([*theirs, *ours])
        for mine, their in [(ours.get(question, {}), theirs.get(question, {}))]
        for place in dict.fromkeys([*their, *mine])
        if mine.get(place) != their.get(place)
    ]
