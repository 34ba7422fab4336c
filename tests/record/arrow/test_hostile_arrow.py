"""Arrow structs that contradict themselves: an error, never a crash, and each is released exactly once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_void_p
from types import ModuleType
from typing import Any

import pytest

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.arrow.source import ArrowSource
from splashdam.record.arrow.structs import ArrowArray, ArrowArrayStream, ArrowSchema

_new_capsule: Any = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]

RELEASE = ctypes.CFUNCTYPE(None, c_void_p)
FILL = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
TEXT = ctypes.CFUNCTYPE(c_void_p, c_void_p)


class Giver:
    """Somebody's Arrow data, made of structs that a test may spoil. Counts what is released.

    By default a table of two columns, each with the rows "ab" and "c".
    """

    def __init__(self) -> None:
        self.released: list[str] = []
        self.kept: list[Any] = []
        self.fails_with = 0
        self.left = 2

    def release_of(self, what: str, kind: Any) -> int | None:
        def release(address: int) -> None:
            self.released.append(what)
            kind.from_address(address).release = None

        function = RELEASE(release)
        self.kept.append(function)
        return ctypes.cast(function, c_void_p).value

    def buffer(self, data: bytes) -> int:
        memory = ctypes.create_string_buffer(data, max(len(data), 1))
        self.kept.append(memory)
        return ctypes.addressof(memory)

    def column(self) -> ArrowArray:
        offsets = b"".join(number.to_bytes(4, "little", signed=True) for number in (0, 2, 3))
        addresses = (c_void_p * 3)(None, self.buffer(offsets), self.buffer(b"abc"))
        self.kept.append(addresses)
        array = ArrowArray(length=2, n_buffers=3, buffers=ctypes.cast(addresses, POINTER(c_void_p)))
        array.release = self.release_of("column", ArrowArray)
        return array

    def spoil(self, table: ArrowArray, columns: list[ArrowArray]) -> None:
        """For tests to replace."""

    def fill_array(self, table: ArrowArray) -> None:
        columns = [self.column(), self.column()]
        pointers = (POINTER(ArrowArray) * 2)(*[ctypes.pointer(column) for column in columns])
        nothing = (c_void_p * 1)(None)
        self.kept += [columns, pointers, nothing]
        table.length, table.n_buffers, table.n_children = 2, 1, 2
        table.buffers = ctypes.cast(nothing, POINTER(c_void_p))
        table.children = ctypes.cast(pointers, POINTER(POINTER(ArrowArray)))
        table.release = self.release_of("array", ArrowArray)
        self.spoil(table, columns)

    def fill_schema(self, schema: ArrowSchema) -> None:
        fields = [ArrowSchema(format=b"u", name=name) for name in (b"value", b"key")]
        pointers = (POINTER(ArrowSchema) * 2)(*[ctypes.pointer(field) for field in fields])
        self.kept += [fields, pointers]
        schema.format, schema.n_children = b"+s", 2
        schema.children = ctypes.cast(pointers, POINTER(POINTER(ArrowSchema)))
        schema.release = self.release_of("schema", ArrowSchema)

    def capsule(self, struct: Any, name: bytes) -> object:
        self.kept += [struct, name]
        return _new_capsule(ctypes.addressof(struct), name, None)


class ArrayGiver(Giver):
    """One record batch."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        schema, table = ArrowSchema(), ArrowArray()
        self.fill_schema(schema)
        self.fill_array(table)
        return self.capsule(schema, b"arrow_schema"), self.capsule(table, b"arrow_array")


class StreamGiver(Giver):
    """A stream of two record batches."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        def get_schema(_stream: int, address: int) -> int:
            self.fill_schema(ArrowSchema.from_address(address))
            return 0

        def get_next(_stream: int, address: int) -> int:
            if self.fails_with:
                return self.fails_with
            if self.left:
                self.left -= 1
                self.fill_array(ArrowArray.from_address(address))
            return 0

        def get_last_error(_stream: int) -> int:
            return self.buffer(b"out of cheese\0")

        functions = (FILL(get_schema), FILL(get_next), TEXT(get_last_error))
        self.kept.append(functions)
        stream = ArrowArrayStream(*(ctypes.cast(function, c_void_p).value for function in functions))
        stream.release = self.release_of("stream", ArrowArrayStream)
        return self.capsule(stream, b"arrow_array_stream")


def read(kernel: ModuleType, giver: Giver) -> list[Any]:
    """All rows, as the twin sees them."""
    found = []
    with ArrowSource(giver, value="value", key="key", key_needed=False) as source:
        while (chunk := source.next()) is not None:
            assert chunk.keys is not None
            columns = [kernel.BlobColumn.of_arrow(parts) for parts in chunk if parts is not None]
            del chunk
            try:
                found += [tuple(column[row] for column in columns) for row in range(len(columns[0]))]
            finally:
                for column in columns:
                    column.close()
    return found


def test_everything_is_released_once(kernel: ModuleType) -> None:
    """By a reader that comes to the end."""
    array, stream = ArrayGiver(), StreamGiver()
    assert read(kernel, array) == [(b"ab", b"ab"), (b"c", b"c")]
    assert array.released == ["schema", "array"]
    assert read(kernel, stream) == [(b"ab", b"ab"), (b"c", b"c")] * 2
    assert stream.released == ["schema", "array", "array", "stream"]


def test_a_reader_that_stops_early(kernel: ModuleType) -> None:
    """Before the first array, and in the middle."""
    giver = ArrayGiver()
    with ArrowSource(giver, value="value", key="key", key_needed=False):
        pass
    assert sorted(giver.released) == ["array", "schema"]
    stream = StreamGiver()
    with ArrowSource(stream, value="value", key="key", key_needed=False) as source:
        assert source.next() is not None
    assert stream.released == ["schema", "array", "stream"]


def test_columns_that_are_not_there() -> None:
    """The schema is refused: what was given all the same is released."""
    for giver, released in ((ArrayGiver(), ["array", "schema"]), (StreamGiver(), ["schema", "stream"])):
        with pytest.raises(IllegalArgumentError, match="no column 'v' among 'value', 'key'"):
            ArrowSource(giver, value="v", key="key", key_needed=False)
        assert sorted(giver.released) == released


def test_a_stream_that_fails(kernel: ModuleType) -> None:
    """The error is the stream's own text."""
    stream = StreamGiver()
    stream.fails_with = 5
    with pytest.raises(IllegalArgumentError, match="failed with error 5: out of cheese"):
        read(kernel, stream)
    assert stream.released == ["schema", "stream"]


def spoiled(**fields: Any) -> Callable[[ArrowArray, list[ArrowArray]], None]:
    """Changes the table (``table_…``) or its first column."""

    def spoil(table: ArrowArray, columns: list[ArrowArray]) -> None:
        for name, value in fields.items():
            target = table if name.startswith("table_") else columns[0]
            setattr(target, name.removeprefix("table_"), value)

    return spoil


def without_buffer(number: int) -> Callable[[ArrowArray, list[ArrowArray]], None]:
    def spoil(_table: ArrowArray, columns: list[ArrowArray]) -> None:
        columns[0].buffers[number] = None

    return spoil


def null_child(table: ArrowArray, _columns: list[ArrowArray]) -> None:
    table.children[1] = POINTER(ArrowArray)()


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (spoiled(length=-1), "says it has -1 rows"),
        (spoiled(offset=-1), "says it has 2 rows from row -1"),
        (spoiled(offset=(1 << 63) - 1), "says it has 2 rows from row"),
        (spoiled(table_length=-5), "the table says it has -5 rows"),
        (spoiled(table_length=3), "column 'value' has 2 rows, its table 3"),
        (spoiled(table_offset=1), "column 'value' has 2 rows, its table 3"),
        (spoiled(null_count=3), "says 3 of its 2 rows are null"),
        (spoiled(null_count=-2), "says -2 of its 2 rows are null"),
        (spoiled(null_count=1), "lacks its buffer 0"),
        (spoiled(n_buffers=2), "column 'value' has 2 buffers, its type has 3"),
        (spoiled(n_buffers=-1), "has -1 buffers"),
        (spoiled(buffers=POINTER(c_void_p)()), "has 0 buffers, its type has 3"),
        (spoiled(table_n_buffers=0), "the table has 0 buffers, its type has 1"),
        (spoiled(table_n_children=1), "the table has 1 columns, its schema 2"),
        (spoiled(table_n_children=-1), "-1 children"),
        (spoiled(table_children=POINTER(POINTER(ArrowArray))()), "children, which are not there"),
        (spoiled(release=None), "column 'value' was released already"),
        (without_buffer(1), "lacks its buffer 1"),
        (without_buffer(2), "lacks its buffer 2"),
        (null_child, "lacks its child 1"),
    ],
)
@pytest.mark.parametrize("kind", [ArrayGiver, StreamGiver])
def test_structs_that_contradict_themselves(
    kernel: ModuleType, kind: type[Giver], spoil: Any, problem: str
) -> None:
    """The error names what is wrong; everything is released once."""
    giver = kind()
    giver.spoil = spoil  # type: ignore[method-assign]  # what it is for
    with pytest.raises(IllegalArgumentError, match=problem):
        read(kernel, giver)
    assert sorted(giver.released) == sorted({*giver.released})
    assert {"schema", "array"} <= {*giver.released}


@pytest.mark.parametrize("offsets", [(0, 4, 3), (-1, 2, 3), (2, 1, 3), (0, -7, 3)])
def test_offsets_that_lead_outside(kernel: ModuleType, offsets: tuple[int, ...]) -> None:
    """The row is refused and nothing outside is read."""
    giver = ArrayGiver()
    data = giver.buffer(b"".join(number.to_bytes(4, "little", signed=True) for number in offsets))
    giver.spoil = lambda _table, columns: columns[0].buffers.__setitem__(1, data)  # type: ignore[method-assign]
    with pytest.raises(IllegalArgumentError, match="points outside of its column"):
        read(kernel, giver)
    assert sorted(giver.released) == ["array", "schema"]


def test_what_answers_no_capsule() -> None:
    """A capsule of another name, none at all, and one that was used before."""

    class Wrong:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return b"no capsule"

    with pytest.raises(TypeError, match=r"Wrong.__arrow_c_stream__\(\) did not return a PyCapsule"):
        ArrowSource(Wrong(), value="value", key="key", key_needed=False)

    class Again:
        def __init__(self) -> None:
            self.capsule = StreamGiver.__arrow_c_stream__(giver)

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return self.capsule

    giver = StreamGiver()
    again = Again()
    ArrowSource(again, value="value", key="key", key_needed=False).close()
    with pytest.raises(IllegalArgumentError, match="released already"):
        ArrowSource(again, value="value", key="key", key_needed=False)
    assert giver.released == ["schema", "stream"]
