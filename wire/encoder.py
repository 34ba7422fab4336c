"""Compiles the encoder of one message in one version: pieces are appended to a list that is joined once.

Large records never enter that list: `primitives.add_records` makes them parts of their own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias

from splashdam.wire import primitives
from splashdam.wire.fields import BYTES, STRING, ArrayType, Field, FixedType, SizedType, StructType
from splashdam.wire.message import Struct
from splashdam.wire.source import Source, tagged, untagged

Encoder: TypeAlias = Callable[..., None]
"""``(o0, out, parts[, trace])``: appends small pieces to ``out`` and large parts to ``parts``."""


def compile_encoder(cls: type[Struct], version: int, flexible: bool, *, traced: bool = False) -> Encoder:
    """The encoder of ``cls`` in ``version``, or its tracing twin."""
    writer = _EncoderWriter(version, flexible, traced)
    writer.line("w = out.append")
    writer.struct(cls, 0)
    parameters = "o0, out, parts, trace" if traced else "o0, out, parts"
    return writer.compile("encode", parameters, cls.__name__)


class _EncoderWriter(Source):
    """Writes statements that append to ``out`` through ``w``; names end in the depth of nesting."""

    def __init__(self, version: int, flexible: bool, traced: bool) -> None:
        super().__init__(version, flexible, traced)
        self.namespace.update(
            uvarint=primitives.uvarint,
            SMALL=primitives.SMALL,
            add_records=primitives.add_records,
            records_size=primitives.records_size,
            sixteen=primitives.sixteen,
            refuse_string=primitives.refuse_string,
            refuse_null=primitives.refuse_null,
            refuse_dropping=primitives.refuse_dropping,
            pack=struct.pack,
            NULL=b"\xff",
            PRESENT=b"\x01",
        )

    def struct(self, cls: type[Struct], depth: int) -> None:
        """Writes the structure in ``o<depth>``."""
        self._refuse_dropping(cls, depth)
        for run in self.runs(untagged(cls.FIELDS, self.version)):
            if len(run) > 1:
                self._fixed_run(run, depth)
            else:
                self._field(run[0], depth)
        if self.flexible:
            self._tagged_section(tagged(cls.FIELDS, self.version), depth)
        self.line("pass")

    def _refuse_dropping(self, cls: type[Struct], depth: int) -> None:
        for field in cls.FIELDS:
            if self.version not in field.versions and not field.ignorable:
                self.trace(2 * depth, repr(field.name))
                self.line(f"if {self._differs(field, f'o{depth}')}: refuse_dropping({self.version})")

    def _differs(self, field: Field, owner: str) -> str:
        """An expression that is true when the field has another value than its default."""
        value = f"{owner}.{field.name}"
        if isinstance(field.default, type):
            inner = field.type.cls.FIELDS if isinstance(field.type, StructType) else ()
            return "(" + " or ".join(self._differs(each, value) for each in inner) + ")"
        if field.default is None:
            return f"{value} is not None"
        return f"{value} != {self.constant(field.default, 'D')}"

    def _fixed_run(self, run: list[Field], depth: int) -> None:
        layout = self.run_layout(run)
        values = (self._fixed(field.type, f"o{depth}.{field.name}") for field in run)
        self.line(f"w({self.constant(layout.pack, 'P')}({', '.join(values)}))")

    def _fixed(self, kind: object, value: str) -> str:
        return f"sixteen({value})" if isinstance(kind, FixedType) and kind.format == "16s" else value

    def _field(self, field: Field, depth: int) -> None:
        self.trace(2 * depth, repr(field.name))
        value, kind = f"o{depth}.{field.name}", field.type
        nullable = self.version in field.nullable
        if isinstance(kind, FixedType):
            self._fixed_run([field], depth)
        elif isinstance(kind, SizedType):
            self._sized(kind, value, nullable)
        elif isinstance(kind, ArrayType):
            self._array(kind, value, nullable, depth)
        else:
            self._nested(kind, value, nullable, depth)

    def _nested(self, kind: StructType, value: str, nullable: bool, depth: int) -> None:
        self.line(f"o{depth + 1} = {value}")
        with self.block(f"if o{depth + 1} is None:"):
            self.line("w(NULL)" if nullable else "refuse_null()")
        with self.block("else:"):
            if nullable:
                self.line("w(PRESENT)")
            self.struct(kind.cls, depth + 1)

    def _length(self, length: str, kind: str) -> str:
        """An expression for an encoded length or count."""
        if self.flexible:
            return f"SMALL[n] if (n := {length} + 1) < 128 else uvarint(n)"
        return f"{self.constant(self.layout('h' if kind == 'string' else 'i').pack, 'P')}({length})"

    def _null(self, name: str, kind: str, nullable: bool) -> None:
        with self.block(f"if {name} is None:"):
            self.line(f"w({self._length('-1', kind)})" if nullable else "refuse_null()")

    def _sized(self, kind: SizedType, value: str, nullable: bool) -> None:
        self.line(f"s = {value}")
        self._null("s", kind.name, nullable)
        with self.block("else:"):
            if kind is STRING:
                self.line("s = s.encode()")
                self.line(f"if len(s) > {primitives.MAX_STRING_BYTES}: refuse_string(len(s))")
                self.line(f"w({self._length('len(s)', 'string')}); w(s)")
            elif kind is BYTES:
                self.line(f"w({self._length('len(s)', 'bytes')}); w(s)")
            else:
                self.line(f"w({self._length('records_size(s)', 'records')}); add_records(out, parts, s)")

    def _array(self, kind: ArrayType, value: str, nullable: bool, depth: int) -> None:
        element, name = kind.element, f"a{depth}"
        self.line(f"{name} = {value}")
        self._null(name, "array", nullable)
        with self.block("else:"):
            self.line(f"w({self._length(f'len({name})', 'array')})")
            if isinstance(element, FixedType) and element.format != "16s":
                self.line(f'w(pack(">%d{element.format}" % len({name}), *{name}))')
                return
            item = f"o{depth + 1}" if isinstance(element, StructType) else "item"
            loop = f"for i{depth}, {item} in enumerate({name}):" if self.traced else f"for {item} in {name}:"
            with self.block(loop):
                self.trace(2 * depth + 1, f"i{depth}")
                if isinstance(element, StructType):
                    self.struct(element.cls, depth + 1)
                elif isinstance(element, SizedType):
                    self._sized(element, "item", False)
                else:
                    self.line(f"w({self._fixed(element, 'item')})")

    def _tagged_section(self, fields: list[Field], depth: int) -> None:
        if not fields:
            self.line("w(b'\\0')")
            return
        for field in fields:
            self.line(f"t{depth}_{field.tag} = {self._differs(field, f'o{depth}')}")
        count = " + ".join(f"t{depth}_{field.tag}" for field in fields)
        self.line(f"w(uvarint({count}))")
        for field in fields:
            with self.block(f"if t{depth}_{field.tag}:"):
                # The size stands before the value, so the value is written to a list of its own.
                self.line(f"out{depth} = out; out = []; w = out.append")
                self._field(field, depth)
                self.line(f"tagged = b''.join(out); out = out{depth}; w = out.append")
                self.line(f"w(uvarint({field.tag}) + uvarint(len(tagged))); w(tagged)")
