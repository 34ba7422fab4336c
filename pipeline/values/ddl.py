"""Spark's DDL for columns, ``id bigint NOT NULL, name string``, as an Arrow struct, without a session.

Spark parses DDL in its JVM. Reading it here lets a command refuse a schema file before it starts one. Types
for which JSON values have no decoder (decimals, intervals, variants) are refused here as well.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import attrs

from splashdam.model.errors import KafkaConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

_TOKEN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<quoted>`(?:[^`]|``)+`)
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<word>\w+)
    |(?P<sign>[<>(),:])""",
    re.VERBOSE | re.DOTALL,
)


@cache
def _simple_types() -> dict[str, pa.DataType]:
    import pyarrow as pa

    zoned = pa.timestamp("us", tz="UTC")
    return {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "byte": pa.int8(),
        "smallint": pa.int16(),
        "short": pa.int16(),
        "int": pa.int32(),
        "integer": pa.int32(),
        "bigint": pa.int64(),
        "long": pa.int64(),
        "float": pa.float32(),
        "real": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": zoned,
        "timestamp_ltz": zoned,
        "timestamp_ntz": pa.timestamp("us"),
    }


_MOST_SHOWN_CHARS = 60
_WITHOUT_VALUES = ("decimal", "dec", "numeric", "interval", "variant", "void", "time", "char", "varchar")


def columns_of(ddl: str) -> pa.StructType:
    """Return the columns of a DDL as a struct; ``NOT NULL`` makes a field not nullable.

    Raises:
        KafkaConfigurationError: it is no DDL, names no columns, or has a type that JSON values are not
            decoded to; the message names the place.
    """
    import pyarrow as pa

    words = _Words(_shown(ddl), _tokens(ddl))
    if words.peek().lower() == "struct" and words.peek(1) == "<":
        found = words.type()
    elif words.peek(1) == "" or words.peek(1) == "<":
        raise KafkaConfigurationError(f"{_shown(ddl)} names no columns: write NAME TYPE, NAME TYPE")
    else:
        found = pa.struct(words.fields(""))
    words.need("")
    return found


def _shown(ddl: str) -> str:
    text = " ".join(ddl.split())
    return repr(text if len(text) <= _MOST_SHOWN_CHARS else f"{text[:_MOST_SHOWN_CHARS]}…")


def _tokens(ddl: str) -> list[str]:
    tokens, at = [], 0
    while at < len(ddl):
        found = _TOKEN.match(ddl, at)
        if found is None:
            raise KafkaConfigurationError(
                f"{_shown(ddl)} is not a DDL of Spark: {ddl[at:][:20]!r} is no word of it"
            )
        if found.lastgroup != "blank":
            tokens.append(found[0])
        at = found.end()
    return tokens


@attrs.define
class _Words:
    """The words of a DDL, read from left to right."""

    shown: str
    tokens: list[str]
    at: int = 0

    def peek(self, further: int = 0) -> str:
        """Return a word without taking it; "" after the last."""
        return self.tokens[self.at + further] if self.at + further < len(self.tokens) else ""

    def take(self) -> str:
        word = self.peek()
        self.at += 1
        return word

    def takes(self, *words: str) -> bool:
        """Take these words if they come next."""
        if [self.peek(n).lower() for n in range(len(words))] != list(words):
            return False
        self.at += len(words)
        return True

    def need(self, word: str) -> None:
        if self.peek() != word:
            raise self.wrong(word or "its end")
        self.at += 1

    def wrong(self, wanted: str) -> KafkaConfigurationError:
        found = repr(self.peek()) if self.peek() else "its end"
        return KafkaConfigurationError(
            f"{self.shown} is not a DDL of Spark: {found} stands where {wanted} is expected"
        )

    def name(self) -> str:
        word = self.peek()
        if word.startswith("`"):
            return self.take()[1:-1].replace("``", "`")
        if re.fullmatch(r"\w+", word) is None:
            raise self.wrong("a name")
        return self.take()

    def fields(self, end: str) -> list[pa.Field]:
        """Take fields up to a word, which is not taken."""
        import pyarrow as pa

        found: list[pa.Field] = []
        while self.peek() != end or not found:
            if found:
                self.need(",")
            name = self.name()
            self.takes(":")
            kind = self.type()
            nullable = not self.takes("not", "null")
            if self.takes("comment") and self.take()[:1] not in ("'", '"'):
                self.at -= 1
                raise self.wrong("a comment in quotes")
            found.append(pa.field(name, kind, nullable=nullable))
        return found

    def type(self) -> pa.DataType:
        import pyarrow as pa

        word = self.peek().lower()
        if word in _WITHOUT_VALUES:
            raise KafkaConfigurationError(
                f"{self.shown}: JSON values are not decoded to {word}; make it string or double"
            )
        if word in _simple_types():
            self.take()
            return _simple_types()[word]
        if self.takes("array", "<"):
            kind: pa.DataType = pa.list_(pa.field("element", self.type()))
        elif self.takes("map", "<"):
            key = self.type()
            self.need(",")
            kind = pa.map_(key, self.type())
        elif self.takes("struct", "<"):
            kind = pa.struct(self.fields(">"))
        else:
            raise self.wrong("a type")
        self.need(">")
        return kind
