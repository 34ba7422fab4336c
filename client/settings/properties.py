"""Java ``.properties`` files, as Kafka's own tools read them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from splashdam.model.errors import KafkaConfigurationError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_SEPARATOR = re.compile(r"(?P<name>(?:\\.|[^\\:=\s])*)\s*[:=]?\s*(?P<value>.*)\Z", re.DOTALL)


def load_properties(source: Mapping[str, str] | str | os.PathLike[str]) -> dict[str, str]:
    """The entries of a mapping, or of the ``.properties`` file at a path.

    Raises:
        KafkaConfigurationError: the file cannot be read, or names a property twice.
    """
    if isinstance(source, Mapping):
        return dict(source)
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KafkaConfigurationError(f"cannot read the properties file {path}: {error}") from error
    entries: dict[str, str] = {}
    for name, value in parse_properties(text):
        if name in entries:
            raise KafkaConfigurationError(f"{path} names {name!r} twice")
        entries[name] = value
    return entries


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    """``(name, value)`` of each entry, with Java's comments, continued lines, escapes and separators."""
    for line in _logical_lines(text):
        match = _SEPARATOR.match(line)
        if match is not None:
            yield _unescape(match["name"]), _unescape(match["value"])


def _logical_lines(text: str) -> Iterator[str]:
    parts: list[str] = []
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        # In a continued line such a sign belongs to the value.
        if not parts and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        # Two of them are an escaped one, which continues nothing.
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield "".join([*parts, line])
        parts = []
    if parts:
        yield "".join(parts)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)
