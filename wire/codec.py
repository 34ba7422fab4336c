"""Encode and decode messages, through codecs that are compiled on first use.

The format is that of Kafka's protocol guide and KIP-482 (flexible versions, tagged fields). Compiled
functions know no field names; when one fails, the message runs once more through a tracing codec that knows
the position.

The decoder of one message in one version is straight-line Python with nested structures in line. Adjacent
fields of fixed width are read by one ``struct`` call. Lengths and counts are checked against the bytes that
are left before anything is allocated, and loops nest as deep as the schema, so no input makes the decoder
recurse.

The encoder of one message in one version appends pieces to a list that is joined once. Large records never
enter that list: `primitives.add_records` makes them parts of their own.
"""

from __future__ import annotations

import struct
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NoReturn, TypeAlias, TypeVar

from splashdam.model.errors import ProtocolError
from splashdam.model.values import Buffer
from splashdam.wire import primitives
from splashdam.wire.fields import (
    BYTES,
    STRING,
    ArrayType,
    Field,
    FixedType,
    Part,
    SizedType,
    StructType,
    WireType,
)
from splashdam.wire.message import Message, Request, Struct
from splashdam.wire.primitives import TAGGED_FIELDS_PER_ELEMENT, IllegalBytes, TooManyElements

M = TypeVar("M", bound=Message)

_BROKEN = (IllegalBytes, struct.error, IndexError, ValueError)
_UNFIT = (IllegalBytes, struct.error, AttributeError, TypeError, ValueError)
_EXPLAINED_BYTES = 1 << 20  # larger broken messages are not decoded again
_DECODERS: dict[tuple[type[Message], int], Decoder] = {}
_ENCODERS: dict[tuple[type[Message], int], Encoder] = {}


def encode(message: Message, version: int) -> list[Part]:
    """Encode a message's body.

    Returns:
        Its parts in order: small pieces joined, records of 64 KiB and more by reference, file slices as they
        are.

    Raises:
        ProtocolError: the version is not declared, a value does not fit its type, or a field that the version
            lacks has a value that must not be dropped.
    """
    encoder = _ENCODERS.get((type(message), version)) or _encoder(type(message), version)
    out: list[Buffer] = []
    parts: list[Part] = []
    try:
        encoder(message, out, parts)
    except _UNFIT as error:
        _explain_encoding(message, version, error)
    if out:
        parts.append(b"".join(out))
    return parts


class ManyElementsError(Exception):
    """A request has more elements than ``most_elements``; it may still be valid."""


def decode(
    cls: type[M],
    data: Buffer,
    version: int,
    *,
    position: int = 0,
    allow_trailing: bool = False,
    most_elements: int | None = None,
) -> M:
    """Decode a body that starts at ``position`` and ends with ``data``.

    ``records`` fields are slices of ``data``, not copies. Lengths are checked before anything is allocated.

    Args:
        cls: the message class.
        data: a frame or a body.
        version: version of the bytes.
        position: where the body starts.
        allow_trailing: accept bytes behind the message, as in a version 0 answer to an ApiVersions request
            that the broker does not know.
        most_elements: limit for a request's elements in all arrays, which bounds the decoding time; None: the
            limit of all requests.

    Raises:
        ManyElementsError: there are more.
        ProtocolError: the bytes are not a valid message; the text names message, field and position (for more
            than 1 MiB only the message).
    """
    decoder = _DECODERS.get((cls, version)) or _decoder(cls, version)
    view = memoryview(data)
    limits = () if most_elements is None else (most_elements, most_elements * TAGGED_FIELDS_PER_ELEMENT)
    try:
        message, end = decoder(view, position, len(view), *limits)
    except _BROKEN as error:
        if limits and isinstance(error, TooManyElements):
            traceback.clear_frames(error.__traceback__)
            raise ManyElementsError from None
        _explain_decoding(cls, version, view, position, error)
    if end != len(view) and not allow_trailing:
        raise ProtocolError(f"{cls.NAME} v{version}: {len(view) - end} bytes are left behind byte {end}")
    return message  # type: ignore[no-any-return]  # compiled code is untyped


def _decoder(cls: type[Message], version: int) -> Decoder:
    _check_version(cls, version)
    decoder = compile_decoder(cls, version, cls.is_flexible(version))
    # Two threads may compile the same one; both keep the first.
    return _DECODERS.setdefault((cls, version), decoder)


def _encoder(cls: type[Message], version: int) -> Encoder:
    _check_version(cls, version)
    encoder = compile_encoder(cls, version, cls.is_flexible(version))
    return _ENCODERS.setdefault((cls, version), encoder)


def _check_version(cls: type[Message], version: int) -> None:
    if version not in cls.VERSIONS:
        raise ProtocolError(
            f"{cls.NAME} v{version} is not declared, only v{cls.VERSIONS[0]} to v{cls.VERSIONS[-1]}"
        )


class _Trace:
    """Position of the tracing codec: a path of fields and indexes, and the byte where the last starts."""

    def __init__(self) -> None:
        self.path: list[str | int] = []
        self.position = 0

    def __call__(self, depth: int, step: str | int, position: int) -> None:
        self.path += [""] * (depth - len(self.path))  # a structure outside of an array has no index
        self.path[depth:] = [step]
        self.position = position

    def __str__(self) -> str:
        text = ""
        for step in self.path:
            text += f"[{step}]" if isinstance(step, int) else f".{step}" if step else ""
        return text.removeprefix(".")


@cache
def _tracing_decoder(cls: type[Message], version: int) -> Decoder:
    return compile_decoder(cls, version, cls.is_flexible(version), traced=True)


@cache
def _tracing_encoder(cls: type[Message], version: int) -> Encoder:
    return compile_encoder(cls, version, cls.is_flexible(version), traced=True)


def _explain_decoding(
    cls: type[Message], version: int, view: memoryview, position: int, error: Exception
) -> NoReturn:
    reason = str(error) if isinstance(error, IllegalBytes | UnicodeDecodeError) else "the bytes end here"
    # The failed call's frames keep the decoded objects alive, many times the size of the bytes.
    traceback.clear_frames(error.__traceback__)
    if len(view) > _EXPLAINED_BYTES:
        raise ProtocolError(f"{cls.NAME} v{version}: {reason}") from None
    twin = _tracing_decoder(cls, version)
    trace = _Trace()
    trace.position = position
    _run_traced(lambda: twin(view, position, len(view), trace))
    raise ProtocolError(f"{cls.NAME} v{version}: {trace} at byte {trace.position}: {reason}") from None


def _explain_encoding(message: Message, version: int, error: Exception) -> NoReturn:
    cls = type(message)
    twin = _tracing_encoder(cls, version)
    trace = _Trace()
    _run_traced(lambda: twin(message, [], [], trace))
    raise ProtocolError(f"{cls.NAME} v{version}: {trace}: {error}") from error


def _run_traced(twin: Callable[[], Any]) -> None:
    try:
        twin()
    except _UNFIT + _BROKEN:  # the same failure: only the position that it left in the trace counts
        return


class Source:
    """Python source under construction, with the constants that it uses.

    ``traced`` selects the variant that reports every field before it is read or written; it finds the broken
    field of a message and is never used on the hot path.
    """

    def __init__(self, version: int, flexible: bool, traced: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.traced = traced
        self.namespace: dict[str, Any] = {}
        self._lines: list[str] = []
        self._indent = 1
        # By identity, since not all values can be hashed; ``namespace`` keeps them alive, and so their ids.
        self._constants: dict[int, str] = {}

    def line(self, text: str) -> None:
        """Add one line."""
        self._lines.append("    " * self._indent + text)

    def block(self, text: str) -> Block:
        """Add a line that opens a block; use as a context manager."""
        self.line(text)
        return Block(self)

    def shift(self, levels: int) -> None:
        """Change the indentation of later lines."""
        self._indent += levels

    def constant(self, value: object, prefix: str) -> str:
        """Return the name of a constant of the compiled function."""
        name = self._constants.get(id(value))
        if name is None:
            name = f"{prefix}{len(self._constants)}"
            self._constants[id(value)] = name
            self.namespace[name] = value
        return name

    def layout(self, formats: str) -> struct.Struct:
        """Return the big-endian ``Struct`` of a format."""
        return self.namespace.setdefault(f"L_{formats}", struct.Struct(">" + formats))  # type: ignore[no-any-return]

    def runs(self, fields: Iterable[Field]) -> list[list[Field]]:
        """Group the fields: adjacent ones of fixed width together, for one ``struct`` call.

        In the tracing variant each field is a group, so that each is reported.
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
        """Return the ``Struct`` of adjacent fixed-width fields."""
        return self.layout("".join(field.type.format for field in run if isinstance(field.type, FixedType)))

    def trace(self, depth: int, step: str, position: str = "0") -> None:
        """In the tracing variant, write code that reports the next field or element (an expression)."""
        if self.traced:
            self.line(f"trace({depth}, {step}, {position})")

    def compile(self, name: str, parameters: str, what: str) -> Callable[..., Any]:
        """Compile the function."""
        text = f"def {name}({parameters}):\n" + "\n".join(self._lines)
        # The text is made of declarations alone; bytes of a peer never get into it.
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
    """Return the untagged fields of a version."""
    return [field for field in fields if field.tag is None and version in field.versions]


def tagged(fields: Sequence[Field], version: int) -> list[Field]:
    """Return the tagged fields of a version, in order of their tags."""
    found = [field for field in fields if field.tag is not None and version in field.versions]
    return sorted(found, key=lambda field: field.tag or 0)


def smallest_size(kind: WireType, version: int, flexible: bool, nullable: bool = False) -> int:
    """Return the minimum size of a value, to check an array's count before anything is allocated."""
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


Decoder: TypeAlias = Callable[..., tuple[Any, int]]
"""``(buf, pos, end[, trace]) -> (message, end position)``; that of a request also takes limits for the total
numbers of elements and tagged fields."""


def compile_decoder(cls: type[Struct], version: int, flexible: bool, *, traced: bool = False) -> Decoder:
    """Compile the decoder of ``cls`` in ``version``, or its tracing variant."""
    writer = _DecoderWriter(version, flexible, traced, issubclass(cls, Request))
    writer.struct(cls, 0)
    writer.line("return o0, pos")
    parameters = "buf, pos, end, trace" if traced else "buf, pos, end"
    if writer.is_request:
        parameters += f", left={primitives.MAX_REQUEST_ELEMENTS}"
        parameters += f", left_tags={primitives.MAX_REQUEST_TAGGED_FIELDS}"
    return writer.compile("decode", parameters, cls.__name__)


def _field_decoder(field: Field, version: int) -> Callable[[object, memoryview, int, int], int]:
    """Decode one tagged field, ``(owner, buf, pos, end) -> end position``, compiled on first use.

    A response seldom has its tagged fields, and with them in line its decoder would be several times as long
    to compile, which each start of a client waits for.
    """
    compiled: list[Callable[[object, memoryview, int, int], int]] = []

    def decode_field(owner: object, buf: memoryview, pos: int, end: int) -> int:
        if not compiled:
            writer = _DecoderWriter(version, True, False, False)
            writer.field(field, 0)
            writer.line("return pos")
            compiled.append(writer.compile("decode", "o0, buf, pos, end", field.name))
        return compiled[0](owner, buf, pos, end)

    return decode_field


class _DecoderWriter(Source):
    """Writes statements that read from ``buf`` at ``pos``; variable names end in the nesting depth."""

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
            skip_tagged_fields=primitives.skip_tagged_fields,
            unpack_from=struct.unpack_from,
            # Without ``__init__``, which would make every default before the decoder sets the field.
            new=object.__new__,
        )

    def struct(self, cls: type[Struct], depth: int) -> None:
        """Write code that reads a structure into ``o<depth>``."""
        self.line(f"o{depth} = new({self.constant(cls, 'C')})")
        carried = untagged(cls.FIELDS, self.version)
        for field in cls.FIELDS:
            if field not in carried:
                self._default(field, depth)
        for run in self.runs(carried):
            if len(run) > 1:
                self._fixed_run(run, depth)
            else:
                self.field(run[0], depth)
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

    def field(self, field: Field, depth: int) -> None:
        """Write code that reads one field into its attribute of ``o<depth>``."""
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
        # The byte is an int8, and -1 stands for null.
        with self.block("if n > 127:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self.struct(kind.cls, depth + 1)
            self.line(f"{target} = o{depth + 1}")

    def _length(self, kind: str) -> None:
        """Write code that reads a length or count into ``n``, -1 for null."""
        if self.flexible:
            self.line("n = buf[pos]; pos += 1")
            # Nearly all lengths take one byte, and need no call.
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
                # For all arrays of the request together: nested ones multiply.
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
        # Objects take many times the memory of their bytes.
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
            if fields or self.traced:
                self._tagged_fields(fields, depth)
            else:
                self.line("pos = skip_tagged_fields(buf, pos, end, n)")

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
                    if self.traced or self.is_request:  # both use further variables of this function
                        self.field(field, depth)
                    else:
                        seldom = self.constant(_field_decoder(field, self.version), "S")
                        self.line(f"pos = {seldom}(o{depth}, buf, pos, end)")
                    self.line(
                        f"if pos != stop{depth}: "
                        f"refuse_tag_size(pos - start{depth}, stop{depth} - start{depth})"
                    )
                keyword = "elif"
            # Unknown tagged fields are skipped; their size was checked above.
            if fields:
                with self.block("else:"):
                    self.line(f"pos = stop{depth}")
            else:
                self.line(f"pos = stop{depth}")


Encoder: TypeAlias = Callable[..., None]
"""``(o0, out, parts[, trace])``: appends small pieces to ``out`` and large parts to ``parts``."""


def compile_encoder(cls: type[Struct], version: int, flexible: bool, *, traced: bool = False) -> Encoder:
    """Compile the encoder of ``cls`` in ``version``, or its tracing variant."""
    writer = _EncoderWriter(version, flexible, traced)
    writer.line("w = out.append")
    writer.struct(cls, 0)
    parameters = "o0, out, parts, trace" if traced else "o0, out, parts"
    return writer.compile("encode", parameters, cls.__name__)


class _EncoderWriter(Source):
    """Writes statements that append to ``out`` through ``w``; variable names end in the nesting depth."""

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
        """Write code that encodes the structure in ``o<depth>``."""
        self._refuse_dropping(cls, depth)
        for run in self.runs(untagged(cls.FIELDS, self.version)):
            if len(run) > 1:
                self._fixed_run(run, depth)
            else:
                self._field(run[0], depth)
        if self.flexible:
            self._tagged_section(tagged(cls.FIELDS, self.version), depth)
        # A version may have no field of the structure, and a block in Python needs a line.
        self.line("pass")

    def _refuse_dropping(self, cls: type[Struct], depth: int) -> None:
        for field in cls.FIELDS:
            if self.version not in field.versions and not field.ignorable:
                self.trace(2 * depth, repr(field.name))
                self.line(f"if {self._differs(field, f'o{depth}')}: refuse_dropping({self.version})")

    def _differs(self, field: Field, owner: str) -> str:
        """Return an expression that is true if the field's value is not its default."""
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
        """Return an expression for an encoded length or count."""
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
            # A tagged field is left out if it has its default (KIP-482).
            self.line(f"t{depth}_{field.tag} = {self._differs(field, f'o{depth}')}")
        count = " + ".join(f"t{depth}_{field.tag}" for field in fields)
        self.line(f"w(uvarint({count}))")
        for field in fields:
            with self.block(f"if t{depth}_{field.tag}:"):
                # The size comes before the value, so the value is encoded to a list of its own first.
                self.line(f"out{depth} = out; out = []; w = out.append")
                self._field(field, depth)
                self.line(f"tagged = b''.join(out); out = out{depth}; w = out.append")
                self.line(f"w(uvarint({field.tag}) + uvarint(len(tagged))); w(tagged)")
