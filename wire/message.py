"""Base classes of all declarations: structures, requests, responses.

Classes have slots, keyword-only constructors and Kafka's defaults; instances compare by value. The
constructor is compiled for the first instance, so that importing a declaration costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform

from splashdam.wire.fields import Field, Versions

_UNSET = object()  # a missing argument whose default is mutable: a list or a structure


def compile_initializer(fields: Sequence[Field], name: str) -> Callable[..., None]:
    """Compile a keyword-only ``__init__`` that sets every field to its argument or default."""
    namespace: dict[str, Any] = {"UNSET": _UNSET}
    parameters, lines = [], []
    for number, field in enumerate(fields):
        default = f"d{number}"
        namespace[default] = field.default
        if isinstance(field.default, list | type):
            parameters.append(f"{field.name}=UNSET")
            fresh = f"{default}()" if isinstance(field.default, type) else f"{default}.copy()"
            lines.append(f"self.{field.name} = {fresh} if {field.name} is UNSET else {field.name}")
        else:
            parameters.append(f"{field.name}={default}")
            lines.append(f"self.{field.name} = {field.name}")
    star = ", *, " if parameters else ""
    source = f"def __init__(self{star}{', '.join(parameters)}):\n    " + "\n    ".join(lines or ["pass"])
    exec(compile(source, f"<splashdam {name} constructor>", "exec"), namespace)
    init: Callable[..., None] = namespace["__init__"]
    init.__qualname__ = f"{name}.__init__"
    return init


R_co = TypeVar("R_co", bound="Response", covariant=True)


@dataclass_transform(kw_only_default=True)
class StructMeta(type):
    """Turns the fields of a class body into slots and ``FIELDS``."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int = -1,
        versions: str = "none",
        flexible: str = "none",
        throttles: str = "none",
    ) -> StructMeta:
        fields = [
            value._replace(name=attribute)
            for attribute, value in namespace.items()
            if isinstance(value, Field)
        ]
        for field in fields:
            del namespace[field.name]
        namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["FIELDS"] = tuple(fields)
        if versions != "none":
            namespace.update(_message_attributes(name, key, versions, flexible, throttles))
        return super().__new__(mcls, name, bases, namespace)

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: object) -> None:
        super().__init__(name, bases, namespace)


def _message_attributes(name: str, key: int, versions: str, flexible: str, throttles: str) -> dict[str, Any]:
    valid, flexible_versions = Versions.parse(versions), Versions.parse(flexible)
    return {
        "NAME": name,
        "API_KEY": key,
        "VERSIONS": range(valid.first, valid.last + 1),
        "FLEXIBLE_FROM": flexible_versions.first if flexible != "none" else None,
        "THROTTLES": Versions.parse(throttles),
    }


class Struct(metaclass=StructMeta):
    """A structure of the protocol. Subclasses declare their fields with the functions of `wire.fields`."""

    FIELDS: ClassVar[tuple[Field, ...]]

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        compiled = compile_initializer(cls.FIELDS, cls.__qualname__)
        cls.__init__ = compiled  # type: ignore[method-assign]  # every later instance goes straight there
        compiled(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]  # fields are mutable

    def __repr__(self) -> str:
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.FIELDS)
        return f"{type(self).__name__}({values})"


class Message(Struct):
    """A request or response: a structure with an API key and versions.

    Attributes:
        NAME: Kafka's name of the schema.
        API_KEY: API key.
        VERSIONS: the declared versions, ascending.
        FLEXIBLE_FROM: first version with compact types and tagged fields, None if there is none.
    """

    NAME: ClassVar[str]
    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[range]
    FLEXIBLE_FROM: ClassVar[int | None]

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Return whether a version uses compact types and tagged fields."""
        return cls.FLEXIBLE_FROM is not None and version >= cls.FLEXIBLE_FROM


class Request(Message, Generic[R_co]):
    """A request; the type parameter is its response."""


class Response(Message):
    """A response.

    Attributes:
        THROTTLES: the versions in which the client waits for ``throttle_time_ms`` before its next request
            (KIP-219); in older ones the broker delays the response.
    """

    THROTTLES: ClassVar[Versions]
