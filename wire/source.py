"""What the writers of compiled codecs share: indented source, constants, the fields of a version."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from splashdam.wire.fields import ArrayType, Field, FixedType, SizedType, StructType, WireType


class Source:
    """Python source under construction, with the constants it refers to.

    ``traced`` asks for the twin that reports every field before it touches it; it exists to say where a
    message is broken and is never on the hot path.
    """

    def __init__(self, version: int, flexible: bool, traced: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.traced = traced
        self.namespace: dict[str, Any] = {}
        self._lines: list[str] = []
        self._indent = 1
        self._constants: dict[int, str] = {}

    def line(self, text: str) -> None:
        """Adds one line."""
        self._lines.append("    " * self._indent + text)

    def block(self, text: str) -> Block:
        """Adds a line that opens a block; use as a context manager."""
        self.line(text)
        return Block(self)

    def shift(self, levels: int) -> None:
        """Moves later lines in or out."""
        self._indent += levels

    def constant(self, value: object, prefix: str) -> str:
        """A name for a constant of the compiled function."""
        name = self._constants.get(id(value))
        if name is None:
            name = f"{prefix}{len(self._constants)}"
            self._constants[id(value)] = name
            self.namespace[name] = value
        return name

    def layout(self, formats: str) -> struct.Struct:
        """A big-endian layout, one object per format."""
        return self.namespace.setdefault(f"L_{formats}", struct.Struct(">" + formats))  # type: ignore[no-any-return]

    def runs(self, fields: Iterable[Field]) -> list[list[Field]]:
        """The fields in order; neighbours of fixed width together, as one `struct` call serves them all.

        In the traced twin each stands alone, so that each is reported.
        """
        runs: list[list[Field]] = []
        for field in fields:
            joins = runs and not self.traced and isinstance(field.type, FixedType)
            if joins and isinstance(runs[-1][0].type, FixedType):
                runs[-1].append(field)
            else:
                runs.append([field])
        return runs

    def run_layout(self, run: Sequence[Field]) -> struct.Struct:
        """The layout of fixed-width fields that stand side by side."""
        return self.layout("".join(field.type.format for field in run if isinstance(field.type, FixedType)))

    def trace(self, depth: int, step: str, position: str = "0") -> None:
        """In the traced twin: reports that the field or element ``step`` (an expression) comes next."""
        if self.traced:
            self.line(f"trace({depth}, {step}, {position})")

    def compile(self, name: str, parameters: str, what: str) -> Callable[..., Any]:
        """Compiles the function."""
        text = f"def {name}({parameters}):\n" + "\n".join(self._lines)
        exec(compile(text, f"<splashdam {name} {what} version {self.version}>", "exec"), self.namespace)
        function: Callable[..., Any] = self.namespace[name]
        return function


class Block:
    """Indents the lines written inside ``with``."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __enter__(self) -> None:
        self._source.shift(1)

    def __exit__(self, *_: object) -> None:
        self._source.shift(-1)


def untagged(fields: Sequence[Field], version: int) -> list[Field]:
    """The fields that a version carries in line."""
    return [field for field in fields if field.tag is None and version in field.versions]


def tagged(fields: Sequence[Field], version: int) -> list[Field]:
    """The fields that a version carries in its tagged section, by tag."""
    found = [field for field in fields if field.tag is not None and version in field.versions]
    return sorted(found, key=lambda field: field.tag or 0)


def smallest_size(kind: WireType, version: int, flexible: bool, nullable: bool = False) -> int:
    """The fewest bytes a value can take: makes a count plausible before anything is allocated."""
    if isinstance(kind, FixedType):
        return kind.size_bytes
    if isinstance(kind, SizedType):
        return 1 if flexible else (2 if kind.name == "string" else 4)
    if isinstance(kind, ArrayType):
        return 1 if flexible else 4
    if nullable:
        return 1
    return _smallest_struct(kind, version, flexible)


def _smallest_struct(kind: StructType, version: int, flexible: bool) -> int:
    total = sum(
        smallest_size(field.type, version, flexible, version in field.nullable)
        for field in untagged(kind.cls.FIELDS, version)
    )
    return max(1, total + flexible)
