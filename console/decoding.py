"""How bytes are shown: as text, as JSON, as hex; and what is left out is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import attrs

_PREVIEW = 240
_JSON_BYTES = 512 * 1024
"""Larger values are not parsed for a page: a megabyte takes the loop some ten milliseconds."""
_HEX_BYTES = 4096
_PER_LINE = 16


@attrs.frozen(kw_only=True)
class Shown:
    """Bytes in a line.

    Attributes:
        text: of them; cut at some characters.
        kind: ``null``, ``empty``, ``text`` or ``hex``.
        size_bytes: of all.
        is_cut: whether the text is not all.
    """

    text: str
    kind: str
    size_bytes: int = 0
    is_cut: bool = False


def preview(data: bytes | None, length: int = _PREVIEW) -> Shown:
    """Return the beginning of bytes, as text if they are UTF-8."""
    if data is None:
        return Shown(text="null", kind="null")
    if not data:
        return Shown(text="empty", kind="empty")
    text = as_text(data[: 4 * length])
    if text is None:
        shown = data[: length // 3].hex(" ")
        return Shown(text=shown, kind="hex", size_bytes=len(data), is_cut=len(data) > length // 3)
    line = " ".join(text.split()) if "\n" in text else text
    is_cut = len(data) > 4 * length or len(line) > length
    return Shown(text=line[:length], kind="text", size_bytes=len(data), is_cut=is_cut)


def as_text(data: bytes) -> str | None:
    """Return UTF-8 as text; None for other bytes, and for text with control characters."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data" or len(data) - error.start > 3:
            return None
        text = data[: error.start].decode()  # cut within a character
    return None if any(letter < " " and letter not in "\t\n\r" for letter in text) else text


@attrs.frozen(kw_only=True)
class Whole:
    """All of a key, a value or a header.

    Attributes:
        size_bytes: of it; None for null.
        json: laid out; None if it is not JSON.
        text: None if it is not text, and if ``json`` says it better.
        hex_lines: place, hex and letters; None where the others are there and nobody asked.
        hidden_bytes: how many the hex leaves out.
    """

    size_bytes: int | None
    json: str | None = None
    text: str | None = None
    hex_lines: tuple[tuple[str, str, str], ...] = ()
    hidden_bytes: int = 0


def whole(data: bytes | None, *, shows_all: bool = False) -> Whole:
    """Return all of a field, in every form that it has."""
    if data is None:
        return Whole(size_bytes=None)
    shown = data if shows_all else data[:_HEX_BYTES]
    return Whole(
        size_bytes=len(data),
        json=_as_json(data),
        text=as_text(data) if data else None,
        hex_lines=tuple(_hex_lines(shown)),
        hidden_bytes=len(data) - len(shown),
    )


def _as_json(data: bytes) -> str | None:
    if data[:64].lstrip()[:1] not in (b"{", b"[") or len(data) > _JSON_BYTES:
        return None
    try:
        return laid_out(json.loads(data))
    except (ValueError, RecursionError):
        return None


def laid_out(value: Any) -> str:
    """Return a value as JSON over several lines."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def _hex_lines(data: bytes) -> Iterator[tuple[str, str, str]]:
    for start in range(0, len(data), _PER_LINE):
        line = data[start : start + _PER_LINE]
        letters = "".join(chr(each) if 32 <= each < 127 else "·" for each in line)
        yield f"{start:06x}", f"{line[:8].hex(' ')}  {line[8:].hex(' ')}".rstrip(), letters
