"""The structs of Arrow's C data interface in ``ctypes``, each released exactly once.

Layouts: "The Arrow C data interface", "The Arrow C stream interface", "The Arrow PyCapsule interface".
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from typing import Any

from splashdam.model.errors import IllegalArgumentError

MAX_INT64 = (1 << 63) - 1


class ArrowSchema(Structure):
    """The type of an array."""


class ArrowArray(Structure):
    """The buffers of an array."""


class ArrowArrayStream(Structure):
    """Arrays of one schema, one after the other."""


ArrowSchema._fields_ = [
    ("format", c_char_p),
    ("name", c_char_p),
    ("metadata", c_void_p),
    ("flags", c_int64),
    ("n_children", c_int64),
    ("children", POINTER(POINTER(ArrowSchema))),
    ("dictionary", POINTER(ArrowSchema)),
    ("release", c_void_p),
    ("private_data", c_void_p),
]
ArrowArray._fields_ = [
    ("length", c_int64),
    ("null_count", c_int64),
    ("offset", c_int64),
    ("n_buffers", c_int64),
    ("n_children", c_int64),
    ("buffers", POINTER(c_void_p)),
    ("children", POINTER(POINTER(ArrowArray))),
    ("dictionary", POINTER(ArrowArray)),
    ("release", c_void_p),
    ("private_data", c_void_p),
]
ArrowArrayStream._fields_ = [
    ("get_schema", c_void_p),
    ("get_next", c_void_p),
    ("get_last_error", c_void_p),
    ("release", c_void_p),
    ("private_data", c_void_p),
]

_RELEASE = ctypes.CFUNCTYPE(None, c_void_p)
_FILL = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
_LAST_ERROR = ctypes.CFUNCTYPE(c_char_p, c_void_p)

_is_valid: Any = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = c_int, [ctypes.py_object, c_char_p]
_get_pointer: Any = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]


class Held:
    """A struct that is released once: by ``release``, or when this object is collected.

    Args:
        struct: filled, or to be filled by a function of the producer.
        capsule: the capsule that owns the struct's memory, if any. Its destructor skips a released struct.
    """

    __slots__ = ("_capsule", "struct")

    def __init__(self, struct: Any, capsule: object = None) -> None:
        self.struct = struct
        self._capsule = capsule

    @property
    def released(self) -> bool:
        """Whether the struct is released or empty."""
        return not self.struct.release

    def release(self) -> None:
        """Release the struct; a repeated call does nothing."""
        function = self.struct.release
        if function:
            _RELEASE(function)(ctypes.addressof(self.struct))
            self.struct.release = None

    def __del__(self) -> None:
        self.release()


def from_capsule(capsule: object, name: bytes, kind: type[Structure], giver: str) -> Held:
    """Import the struct of a capsule.

    Raises:
        TypeError: it is no such capsule.
        IllegalArgumentError: its struct was imported before.
    """
    if not _is_valid(capsule, name):
        kind_given = type(capsule).__name__
        raise TypeError(f"{giver} did not return a PyCapsule named {name.decode()!r} but {kind_given}")
    held = Held(kind.from_address(_get_pointer(capsule, name)), capsule)
    if held.released:
        raise IllegalArgumentError(
            f"{giver} returned Arrow data that were released already; each call must return new data"
        )
    return held


class Stream:
    """A stream of arrays."""

    def __init__(self, held: Held) -> None:
        self._held = held

    def schema(self) -> Held:
        """Return the schema of the arrays.

        Raises:
            IllegalArgumentError: the stream failed; the text is its own.
        """
        return self._fill(self._held.struct.get_schema, ArrowSchema())

    def next(self) -> Held | None:
        """Return the next array, None at the end; raise as ``schema``."""
        held = self._fill(self._held.struct.get_next, ArrowArray())
        return None if held.released else held

    def release(self) -> None:
        """Release the stream; a repeated call does nothing."""
        self._held.release()

    def _fill(self, function: int | None, struct: Structure) -> Held:
        if self._held.released or not function:
            raise IllegalArgumentError("the Arrow stream was released already")
        held = Held(struct)
        address = ctypes.addressof(self._held.struct)
        error = _FILL(function)(address, ctypes.addressof(struct))
        if error:
            struct.release = None  # a failed call leaves nothing to release
            raise IllegalArgumentError(f"the Arrow stream failed with error {error}: {self._last_error()}")
        return held

    def _last_error(self) -> str:
        function = self._held.struct.get_last_error
        text: bytes | None = function and _LAST_ERROR(function)(ctypes.addressof(self._held.struct))
        return text.decode(errors="replace") if text else "it does not say why"


class Arrays:
    """The arrays of an object with Arrow's PyCapsule interface, one after the other.

    Args:
        data: has ``__arrow_c_stream__`` or ``__arrow_c_array__``, which are called once.

    Raises:
        TypeError: it has neither, or does not return what it should.
        IllegalArgumentError: it returns released data.
    """

    def __init__(self, data: Any) -> None:
        self._stream: Stream | None = None
        self._array: Held | None = None
        kind = type(data).__name__
        is_stream, is_array = hasattr(data, "__arrow_c_stream__"), hasattr(data, "__arrow_c_array__")
        if isinstance(data, type) or not (is_stream or is_array):
            raise TypeError(
                f"send_arrow() takes what has __arrow_c_stream__ or __arrow_c_array__ (a pyarrow or polars"
                f" table, for example), not {kind}; for a list of values there is send_many()"
            )
        if is_stream:
            giver = f"{kind}.__arrow_c_stream__()"
            capsule = data.__arrow_c_stream__()
            self._stream = Stream(from_capsule(capsule, b"arrow_array_stream", ArrowArrayStream, giver))
            return
        giver = f"{kind}.__arrow_c_array__()"
        schema, array = data.__arrow_c_array__()
        self._array = from_capsule(array, b"arrow_array", ArrowArray, giver)
        try:
            self._schema = from_capsule(schema, b"arrow_schema", ArrowSchema, giver)
        except BaseException:
            self.release()
            raise

    def schema(self) -> Held:
        """Return the schema of the arrays; call it once, and raise as ``Stream.schema``."""
        return self._schema if self._stream is None else self._stream.schema()

    def next(self) -> Held | None:
        """Return the next array, None at the end; raise as ``Stream.next``."""
        if self._stream is not None:
            return self._stream.next()
        array, self._array = self._array, None
        return array

    def release(self) -> None:
        """Release what was not handed out; a repeated call does nothing."""
        if self._stream is not None:
            self._stream.release()
        if self._array is not None:
            self._array.release()


def children(struct: Any, what: str) -> Iterator[Any]:
    """Return the child structs of a struct.

    Raises:
        IllegalArgumentError: they are missing.
    """
    if struct.n_children < 0 or (struct.n_children and not struct.children):
        raise IllegalArgumentError(f"{what} says it has {struct.n_children} children, which are not there")
    for position in range(struct.n_children):
        if not struct.children[position]:
            raise IllegalArgumentError(f"{what} lacks its child {position}")
        yield struct.children[position].contents


@contextmanager
def released_at_end(held: Held) -> Iterator[Any]:
    """Provide the struct for the block, then release it."""
    try:
        yield held.struct
    finally:
        held.release()
