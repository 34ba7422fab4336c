"""Compiles the decoder of one message in one version: straight-line Python, nested structures in line.

Runs of fixed-width fields are read by one ``struct`` call. Before anything is allocated, lengths and counts
are checked against the bytes that are left; the depth of the generated loops is that of the schema, so no
input makes it recurse.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from splashdam.wire import primitives
from splashdam.wire.fields import BYTES, STRING, ArrayType, Field, FixedType, SizedType, StructType
from splashdam.wire.message import Request, Struct
from splashdam.wire.source import Source, smallest_size, tagged, untagged

Decoder: TypeAlias = Callable[..., tuple[Any, int]]
"""``(buf, pos, end[, trace]) -> (message, position behind it)``; a request's takes also how many elements and
tagged fields there may be in all."""


def compile_decoder(cls: type[Struct], version: int, flexible: bool, *, traced: bool = False) -> Decoder:
    """The decoder of ``cls`` in ``version``, or its tracing twin."""
    writer = _DecoderWriter(version, flexible, traced, issubclass(cls, Request))
    writer.struct(cls, 0)
    writer.line("return o0, pos")
    parameters = "buf, pos, end, trace" if traced else "buf, pos, end"
    if writer.is_request:
        parameters += f", left={primitives.MAX_REQUEST_ELEMENTS}"
        parameters += f", left_tags={primitives.MAX_REQUEST_TAGGED_FIELDS}"
    return writer.compile("decode", parameters, cls.__name__)


class _DecoderWriter(Source):
    """Writes statements that read from ``buf`` at ``pos``; names end in the depth of nesting."""

    def __init__(self, version: int, flexible: bool, traced: bool, is_request: bool) -> None:
        super().__init__(version, flexible, traced)
        self.is_request = is_request
        self.namespace.update(
            uvarint=primitives.read_uvarint,
            refuse_length=primitives.refuse_length,
            refuse_count=primitives.refuse_count,
            refuse_elements=primitives.refuse_elements,
            refuse_request=primitives.refuse_request,
            refuse_request_tags=primitives.refuse_request_tags,
            refuse_tagged_fields=primitives.refuse_tagged_fields,
            refuse_string=primitives.refuse_string,
            refuse_null=primitives.refuse_null,
            refuse_tag_size=primitives.refuse_tag_size,
            unpack_from=struct.unpack_from,
            new=object.__new__,
        )

    def struct(self, cls: type[Struct], depth: int) -> None:
        """Reads a structure into ``o<depth>``."""
        self.line(f"o{depth} = new({self.constant(cls, 'C')})")
        carried = untagged(cls.FIELDS, self.version)
        for field in cls.FIELDS:
            if field not in carried:
                self._default(field, depth)
        for run in self.runs(carried):
            if len(run) > 1:
                self._fixed_run(run, depth)
            else:
                self._field(run[0], depth)
        if self.flexible:
            self._tagged_section(tagged(cls.FIELDS, self.version), depth)

    def _default(self, field: Field, depth: int) -> None:
        target = f"o{depth}.{field.name}"
        if isinstance(field.default, list | type):
            fresh = "{}()" if isinstance(field.default, type) else "{}.copy()"
            self.line(f"{target} = {fresh.format(self.constant(field.default, 'D'))}")
        else:
            self.line(f"{target} = {self.constant(field.default, 'D')}")

    def _fixed_run(self, run: list[Field], depth: int) -> None:
        layout = self.run_layout(run)
        unpack = self.constant(layout.unpack_from, "U")
        targets = "".join(f"o{depth}.{field.name}, " for field in run)
        self.line(f"{targets}= {unpack}(buf, pos)")
        self.line(f"pos += {layout.size}")

    def _field(self, field: Field, depth: int) -> None:
        self.trace(2 * depth, repr(field.name), "pos")
        target, kind = f"o{depth}.{field.name}", field.type
        nullable = self.version in field.nullable
        if isinstance(kind, FixedType):
            self._fixed_run([field], depth)
        elif isinstance(kind, SizedType):
            self._sized(kind, target, nullable)
        elif isinstance(kind, ArrayType):
            self._array(kind, target, nullable, depth)
        else:
            self._nested(kind, target, nullable, depth)

    def _nested(self, kind: StructType, target: str, nullable: bool, depth: int) -> None:
        if not nullable:
            self.struct(kind.cls, depth + 1)
            self.line(f"{target} = o{depth + 1}")
            return
        self.line("n = buf[pos]; pos += 1")
        with self.block("if n > 127:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self.struct(kind.cls, depth + 1)
            self.line(f"{target} = o{depth + 1}")

    def _length(self, kind: str) -> None:
        """Reads a length or count into ``n``, -1 for null."""
        if self.flexible:
            self.line("n = buf[pos]; pos += 1")
            self.line("if n > 127: n, pos = uvarint(buf, pos - 1)")
            self.line("n -= 1")
        else:
            layout = self.layout("h" if kind == "string" else "i")
            self.line(f"n, = {self.constant(layout.unpack_from, 'U')}(buf, pos); pos += {layout.size}")

    def _null(self, target: str, nullable: bool) -> None:
        with self.block("elif n == -1:"):
            self.line(f"{target} = None" if nullable else "refuse_null()")

    def _sized(self, kind: SizedType, target: str, nullable: bool) -> None:
        self._length(kind.name)
        with self.block("if n >= 0:"):
            self.line("stop = pos + n")
            self.line("if stop > end: refuse_length(n, end - pos)")
            if kind is STRING:
                self.line(f"if n > {primitives.MAX_STRING_BYTES}: refuse_string(n)")
                self.line(f'{target} = str(buf[pos:stop], "utf-8")')
            else:
                self.line(
                    f"{target} = bytes(buf[pos:stop])" if kind is BYTES else f"{target} = buf[pos:stop]"
                )
            self.line("pos = stop")
        self._null(target, nullable)
        self.line("else: refuse_length(n, end - pos)")

    def _array(self, kind: ArrayType, target: str, nullable: bool, depth: int) -> None:
        self._length("array")
        element = kind.element
        smallest = smallest_size(element, self.version, self.flexible)
        with self.block("if n >= 0:"):
            self.line(f"if n * {smallest} > end - pos: refuse_count(n, {smallest}, end - pos)")
            if self.is_request:
                self.line("left -= n")
                self.line("if left < 0: refuse_request()")
            if isinstance(element, FixedType) and element.format != "16s":
                self.line(f'{target} = list(unpack_from(">%d{element.format}" % n, buf, pos))')
                self.line(f"pos += n * {smallest}")
            else:
                self._elements(element, target, depth)
        self._null(target, nullable)
        self.line(f"else: refuse_count(n, {smallest}, end - pos)")

    def _elements(self, element: FixedType | SizedType | StructType, target: str, depth: int) -> None:
        # Objects take many times the bytes they came in.
        self.line(f"if n > {primitives.MAX_ELEMENTS}: refuse_elements(n)")
        self.line(f"{target} = a{depth} = []")
        with self.block(f"for i{depth} in range(n):"):
            self.trace(2 * depth + 1, f"i{depth}", "pos")
            if isinstance(element, StructType):
                self.struct(element.cls, depth + 1)
                self.line(f"a{depth}.append(o{depth + 1})")
            elif isinstance(element, SizedType):
                self._sized(element, "item", False)
                self.line(f"a{depth}.append(item)")
            else:
                unpack = self.constant(self.layout(element.format).unpack_from, "U")
                self.line(f"a{depth}.append({unpack}(buf, pos)[0]); pos += {element.size_bytes}")

    def _uvarint(self, name: str) -> None:
        self.line(f"{name} = buf[pos]; pos += 1")
        self.line(f"if {name} > 127: {name}, pos = uvarint(buf, pos - 1)")

    def _tagged_section(self, fields: list[Field], depth: int) -> None:
        self.trace(2 * depth, "'tagged fields'", "pos")
        self._uvarint("n")
        with self.block("if n:"):
            self.line(f"if n > {primitives.MAX_TAGGED_FIELDS}: refuse_tagged_fields(n)")
            if self.is_request:
                self.line("left_tags -= n")
                self.line("if left_tags < 0: refuse_request_tags()")
            self._tagged_fields(fields, depth)

    def _tagged_fields(self, fields: list[Field], depth: int) -> None:
        with self.block("for _ in range(n):"):
            self.trace(2 * depth, "'tagged fields'", "pos")
            self._uvarint(f"t{depth}")
            self._uvarint("n")
            self.line(f"stop{depth} = pos + n")
            self.line(f"if stop{depth} > end: refuse_length(n, end - pos)")
            keyword = "if"
            for field in fields:
                with self.block(f"{keyword} t{depth} == {field.tag}:"):
                    self.line(f"start{depth} = pos")
                    self._field(field, depth)
                    self.line(
                        f"if pos != stop{depth}: "
                        f"refuse_tag_size(pos - start{depth}, stop{depth} - start{depth})"
                    )
                keyword = "elif"
            # What this version does not know is skipped; its size was checked above.
            if fields:
                with self.block("else:"):
                    self.line(f"pos = stop{depth}")
            else:
                self.line(f"pos = stop{depth}")
