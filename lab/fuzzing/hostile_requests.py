"""Hostile requests, made from the declarations of messages: nearly valid ones, nonsense, and broken frames.

Nearly valid requests pass a handler's first checks: names come from small pools, related APIs follow each
other, and values of earlier answers (members, producer ids, epochs, topic ids, sessions) are repeated.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from typing import Any

from lab.fuzzing.hostile_values import (
    CONFIG_VALUES,
    FAMILIES,
    FIELD_POOLS,
    HOSTILE_TEXTS,
    IDENTITIES,
    NAME_POOLS,
    NAMES,
    NUMBERS,
    OPTIONAL,
    RIGHT_NUMBERS,
    TOPICS,
    said_as,
)
from splashdam.embedded_broker.configs.table import Scope, known_configs
from splashdam.embedded_broker.serving.registry import RegisteredApi, registered_apis
from splashdam.record.sealing import build_batch
from splashdam.wire.fields import ArrayType, Field, FixedType, SizedType, StructType, WireType
from splashdam.wire.header import encode_request
from splashdam.wire.message import Request, Struct

_REMEMBERED = 3
"""Number of values that are remembered for each field."""
_MOST_ELEMENTS = 100_000
"""Array elements of a request, nested ones included: twice as many as a broker accepts."""
_MOST_BYTES = 8 << 20
"""Bytes of a request's texts. Without this limit, one long text in a repeated element would become
gigabytes."""


class RequestMaker:
    """Makes requests of every API that the broker serves.

    Args:
        noise: source of all random choices.
    """

    def __init__(self, noise: random.Random) -> None:
        self._noise = noise
        self._said: defaultdict[str, list[Any]] = defaultdict(list)
        self._apis = registered_apis()
        self._family = noise.choice(FAMILIES)
        known = known_configs()
        self._configs = [each.name for each in known if each.scope is Scope.TOPIC] * 4 + [
            each.name for each in known
        ]
        self._wrong = self._null = 0.0
        self._copies = 1  # how often the value being made occurs in the request
        self._left_elements, self._left_bytes = _MOST_ELEMENTS, _MOST_BYTES

    def request(self) -> tuple[Request[Any], int]:
        """Return the next request and its version; all fields have the types of the declaration."""
        noise = self._noise
        api = self._api()
        version = noise.choice(api.versions)
        self._wrong = noise.choice((0.0, 0.0, 0.0, 0.02, 0.1, 0.5))
        self._null = noise.choice((0.02, 0.1, 0.5))
        self._left_elements, self._left_bytes = _MOST_ELEMENTS, _MOST_BYTES
        request: Request[Any] = self._struct(api.request, version)
        return request, version

    def _api(self) -> RegisteredApi:
        """Return an API of one family for a while, and now and then any other."""
        noise = self._noise
        if noise.random() < 0.03:
            self._family = noise.choice(FAMILIES)
        return self._apis[noise.choice(self._family if noise.random() < 0.8 else list(self._apis))]

    def frame(self, request: Request[Any], version: int, correlation_id: int) -> tuple[bytes, bool]:
        """Return the request's frame, perhaps damaged, and whether it is whole."""
        frame = b"".join(
            encode_request(request, version=version, correlation_id=correlation_id, client_id="fuzz")
        )
        if self._noise.random() < 0.9:
            return frame, True
        return self._damaged(frame), False

    def hear(self, message: Struct) -> None:
        """Remember values of an answer for later requests."""
        for field in message.FIELDS:
            self._remember(field.name, getattr(message, field.name))

    def _remember(self, name: str, value: Any) -> None:
        if isinstance(value, Struct):
            self.hear(value)
        elif isinstance(value, list):
            for each in value[:3]:
                self._remember(name, each)
        elif value is not None and name in IDENTITIES:
            known = self._said[name]
            known.append(value)
            del known[:-_REMEMBERED]

    # --- values ---------------------------------------------------------------------------------------------

    def _struct(self, cls: type[Any], version: int) -> Any:
        carried = [each for each in cls.FIELDS if version in each.versions]
        return cls(**{each.name: self._value(each, version, cls.__name__) for each in carried})

    def _value(self, field: Field, version: int, owner: str) -> Any:
        null = 0.7 if field.name in OPTIONAL else self._null
        if version in field.nullable and self._noise.random() < null:
            return None
        return self._of_type(field.type, field.name, version, owner)

    def _of_type(self, kind: WireType, name: str, version: int, owner: str) -> Any:
        if isinstance(kind, StructType):
            return self._struct(kind.cls, version)
        if isinstance(kind, ArrayType):
            return self._array(kind, name, version, owner)
        said = self._said.get(said_as(name))
        if said and self._noise.random() < 0.85 and not self._is_wrong():
            value = self._noise.choice((said[-1], said[-1], said[-1], *said))
            if _fits(value, kind):
                return self._paid(value)
        if isinstance(kind, FixedType):
            return self._fixed(kind, name)
        if kind.name == "string":
            return self._paid(self._text(name, owner))
        return self._paid(self._records() if kind.name == "records" else self._bytes())

    def _array(self, kind: ArrayType, name: str, version: int, owner: str) -> list[Any]:
        """Return an array; if it has more than four elements, they repeat four."""
        count = min(self._count(kind, name), self._left_elements // self._copies)
        self._left_elements -= count * self._copies
        different = min(count, 4)
        again, before = count // max(1, different), self._copies
        self._copies *= max(1, again)
        some = [self._of_type(kind.element, name, version, owner) for _ in range(different)]
        self._copies = before
        return some * again

    def _paid(self, value: Any) -> Any:
        """Return the value, or an empty one if its copies exceed the request's budget of bytes."""
        if not isinstance(value, str | bytes) or len(value) <= 16:
            return value
        size_bytes = len(value) * self._copies
        if size_bytes > self._left_bytes:
            return value[:0]
        self._left_bytes -= size_bytes
        return value

    def _count(self, kind: ArrayType, name: str) -> int:
        noise = self._noise
        if name in OPTIONAL and noise.random() < 0.7:
            return 0
        if noise.random() < self._wrong / 4:
            return noise.choice((40, 400, 40_000 if isinstance(kind.element, FixedType) else 2000))
        return noise.choice((0, 1, 1, 1, 1, 2, 3))

    def _is_wrong(self) -> bool:
        return self._noise.random() < self._wrong

    def _fixed(self, kind: FixedType, name: str) -> Any:
        noise = self._noise
        if kind.name == "bool":
            return noise.random() < 0.5
        if kind.name == "float64":
            return noise.choice((float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e-300, 1.0, 1e308))
        if kind.name == "uuid":
            return noise.choice((bytes(16), noise.randbytes(16)))
        bits = 8 * kind.size_bytes
        if self._is_wrong():
            return noise.choice((-(1 << bits - 1), (1 << bits - 1) - 1, noise.getrandbits(bits - 1)))
        value = noise.choice(RIGHT_NUMBERS.get(said_as(name), NUMBERS))
        return value if -(1 << bits - 1) <= value < 1 << bits - 1 else 1

    def _text(self, name: str, owner: str) -> str:
        noise = self._noise
        if self._is_wrong():
            return noise.choice(HOSTILE_TEXTS)
        for part, pool in FIELD_POOLS.items():
            if part in name:
                return noise.choice(pool)
        if name == "value":
            return noise.choice(CONFIG_VALUES)
        if "Config" in owner or name == "configuration_keys":
            return noise.choice(self._configs)
        for part, pool in NAME_POOLS.items():
            if part in owner:
                return noise.choice(pool)
        return noise.choice(NAMES)

    def _bytes(self) -> bytes:
        noise = self._noise
        topics = b"".join(struct.pack(">h", len(each)) + each.encode() for each in TOPICS[:2])
        right = struct.pack(">hi", noise.randrange(4), 2) + topics + struct.pack(">iih", -1, 0, -1)
        return noise.choice(
            (b"", right, right, right[:-3], noise.randbytes(32), b"\0anna\0pass", b"\xff" * 40)
        )

    def _records(self) -> bytes:
        noise = self._noise
        known = [self._said.get(name) or [-1] for name in ("producer_id", "producer_epoch")]
        fields = {}
        if noise.random() < 0.5:
            producer_id, epoch = (noise.choice(each) for each in known)
            fields = {
                "producer_id": producer_id,
                "producer_epoch": epoch if -1 <= epoch < 1 << 15 else 0,
                "base_sequence": noise.choice((0, 0, 1, 2)),
                "transactional": noise.random() < 0.5,
                "control": noise.random() < 0.05,
            }
        key = noise.choice((None, b"k", b"\0\0\0\1"))
        listed = [(noise.choice((0, 1, -1, 1 << 62, 1_767_225_600_000)), key, b"v" * 9, None)]
        batch = build_batch(listed * noise.choice((1, 1, 2)), **fields)
        if not self._is_wrong():
            return batch
        return noise.choice((b"", batch[:-1], batch * 3, self._overwritten(batch), noise.randbytes(99)))

    # --- frames ---------------------------------------------------------------------------------------------

    def _damaged(self, frame: bytes) -> bytes:
        """Cut a frame off, overwrite bytes of it, append some, or change its size field."""
        noise = self._noise
        body = frame[4:]
        kind = noise.randrange(5)
        if kind == 0:
            body = body[: noise.randrange(len(body) + 1)]
        elif kind == 1:
            body += noise.randbytes(noise.choice((1, 100)))
        elif kind == 2:
            return noise.choice((0, -1, -(1 << 31), (1 << 31) - 1, len(body) + 1)).to_bytes(
                4, "big", signed=True
            )
        else:
            body = body[:8] + self._overwritten(body[8:])
        return len(body).to_bytes(4, "big") + body

    def _overwritten(self, data: bytes) -> bytes:
        noise = self._noise
        changed = bytearray(data)
        for _ in range(noise.choice((1, 1, 3))):
            start = noise.randrange(len(changed) + 1)
            new = noise.choice(
                (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff", b"\0", noise.randbytes(2))
            )
            changed[start : start + noise.choice((0, len(new)))] = new
        return bytes(changed)


def _fits(value: Any, kind: WireType) -> bool:
    """Return whether a remembered value has the type of a field."""
    if isinstance(kind, FixedType):
        if kind.name in ("bool", "float64"):
            return isinstance(value, bool if kind.name == "bool" else float)
        if kind.name == "uuid":
            return isinstance(value, bytes) and len(value) == 16
        bits = 8 * kind.size_bytes - 1
        return type(value) is int and -(1 << bits) <= value < 1 << bits
    return isinstance(value, str if kind == SizedType("string") else bytes)
