"""Lines of input as records: where they come from, and what stands in one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import attrs

from splashdam.cli.output import standard_input
from splashdam.record.json_lines import Line


class Numbered(NamedTuple):
    """A line of input, without its newline, and where it stands."""

    source: str
    number: int
    text: bytes

    def __str__(self) -> str:
        where = f"line {self.number}"
        return f"{self.source}, {where}" if self.source else where


STANDARD_INPUT = Path("-")


def read_lines(files: Sequence[Path]) -> Iterator[Numbered]:
    """Yield the lines of standard input, or of files one after the other; ``-`` is standard input.

    Raises:
        click.ClickException: standard input is closed.
        OSError: a file cannot be read.
    """
    for path in files or (STANDARD_INPUT,):
        if path == STANDARD_INPUT:
            yield from _numbered("", standard_input())
        else:
            with path.open("rb") as stream:
                yield from _numbered(str(path), stream)


def _numbered(source: str, stream: Iterable[bytes]) -> Iterator[Numbered]:
    for number, line in enumerate(stream, 1):
        # Lines may end with CRLF, as files from Windows do.
        yield Numbered(source, number, line.removesuffix(b"\n").removesuffix(b"\r"))


Parse = Callable[[bytes], Line]
"""Makes a record of a line; raises ValueError if it cannot."""


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
