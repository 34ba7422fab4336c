"""Input as records: lines or whole files, and the parts of a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import BinaryIO, NamedTuple

import attrs
import click

from splashdam.cli.output import standard_input
from splashdam.record.json_lines import Line


class Piece(NamedTuple):
    """A piece of input, and where it comes from.

    Attributes:
        source: the file; empty for standard input.
        number: of the line; None: the piece is the whole of its source.
        text: the bytes, of a line without its newline.
    """

    source: str
    number: int | None
    text: bytes

    def __str__(self) -> str:
        line = None if self.number is None else f"line {self.number}"
        return ", ".join(filter(None, (self.source, line))) or "standard input"


Parse = Callable[[bytes], Line]
"""Makes a record of a piece of input; raises ValueError if it cannot."""

STANDARD_INPUT = Path("-")
_SKIPPED_BYTES = 1 << 20


def read_lines(files: Sequence[Path], limit_bytes: int) -> Iterator[Piece]:
    """Yield the lines of standard input, or of files one after the other; ``-`` is standard input.

    Args:
        files: none means standard input.
        limit_bytes: a longer line is cut one byte behind this limit, so that it does not fill the memory.

    Raises:
        click.ClickException: standard input is closed.
        OSError: a file cannot be read.
    """
    for source, stream in _opened(files):
        for number in count(1):
            line = stream.readline(limit_bytes + 2)
            if not line:
                break
            is_whole = line.endswith(b"\n")
            # Lines may end with CRLF, as files from Windows do.
            yield Piece(source, number, line.removesuffix(b"\n").removesuffix(b"\r")[: limit_bytes + 1])
            while not is_whole and (line := stream.readline(_SKIPPED_BYTES)):
                is_whole = line.endswith(b"\n")


def read_whole(files: Sequence[Path], limit_bytes: int) -> Iterator[Piece]:
    """Yield each file as it is, or all of standard input; as kcat does, leave out an empty one.

    Args:
        files: none means standard input.
        limit_bytes: a larger file is cut one byte behind this limit.

    Raises:
        click.ClickException: standard input is closed.
        OSError: a file cannot be read.
    """
    for source, stream in _opened(files):
        text = stream.read(limit_bytes + 1)
        if text:
            yield Piece(source, None, text)
        else:
            click.echo(f"{source or 'standard input'} is empty: skipped", err=True)


def _opened(files: Sequence[Path]) -> Iterator[tuple[str, BinaryIO]]:
    for path in files or (STANDARD_INPUT,):
        if path == STANDARD_INPUT:
            yield "", standard_input()
        else:
            with path.open("rb") as stream:
                yield str(path), stream


def limited(parse: Parse, limit_bytes: int) -> Parse:
    """Return a `Parse` that refuses what was cut behind the limit."""

    def parse_limited(text: bytes) -> Line:
        if len(text) > limit_bytes:
            raise ValueError(f"it has more than {limit_bytes:,} bytes; max.request.size limits a record")
        return parse(text)

    return parse_limited


@attrs.frozen(kw_only=True)
class TextLines:
    """Parses lines of text: a value, perhaps with headers and a key before it.

    Attributes:
        has_headers: a line begins with ``NAME:VALUE,…`` and a tab, as kafka-console-producer reads it with
            ``parse.headers``.
        key_separator: ends the key; None: the line has no key.
        null: a key, value or header value equal to this is null; None: none is.
        key: of all records whose line has none.
        headers: of all records, before those of the line.
        partition: of all records; None: the key decides.
    """

    has_headers: bool = False
    key_separator: bytes | None = None
    null: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None

    def __call__(self, text: bytes) -> Line:
        """Return the record.

        Raises:
            ValueError: a separator is missing.
        """
        key, headers = self.key, self.headers
        if self.has_headers:
            listed, found, text = text.partition(b"\t")
            if not found:
                raise ValueError("no tab behind the headers")
            headers = (*headers, *map(self._header, listed.split(b",") if listed else ()))
        if self.key_separator is not None:
            key, found, text = text.partition(self.key_separator)
            if not found:
                raise ValueError(f"no key separator {self.key_separator.decode()!r}")
            key = self._nullable(key)
        return Line(self._nullable(text), key, headers, self.partition)

    def _nullable(self, text: bytes) -> bytes | None:
        return None if text == self.null else text

    def _header(self, text: bytes) -> tuple[str, bytes | None]:
        name, colon, value = text.partition(b":")
        if not colon:
            raise ValueError(f"the header {text.decode(errors='replace')!r} is not NAME:VALUE")
        return name.decode(), self._nullable(value)
