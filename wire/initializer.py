"""Compiles the keyword-only constructor of a structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from splashdam.wire.fields import Field

_UNSET = object()  # stands for "make a new one": lists and structures are mutable


def compile_initializer(fields: Sequence[Field], name: str) -> Callable[..., None]:
    """An ``__init__`` that sets every field, to its argument or to its default."""
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
