"""HTML from templates, how numbers and times are written, static files under the hash of their content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import trio

from splashdam.net.clock import Clock
from splashdam.net.http import HttpAnswer, text_answer

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TURN_MS = 1.0
"""A page is made in turns of the loop as long as this."""

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class Rendering:
    """Renders templates. The first page imports jinja2.

    Args:
        clock: for ages, and for the length of turns.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._static = StaticFiles(_HERE / "static")

    async def render(self, template: str, values: Mapping[str, Any], *, block: str | None = None) -> bytes:
        """Return a template's text; of a block alone if it is named."""
        found = self._environment.get_template(template)
        if block is None:
            pieces: Iterable[str] = found.generate(values)
        else:
            pieces = found.blocks[block](found.new_context(dict(values)))
        text = []
        began_ms = self._clock.now_ms()
        for piece in pieces:
            text.append(piece)
            if self._clock.now_ms() - began_ms >= _TURN_MS:
                await trio.lowlevel.checkpoint()
                began_ms = self._clock.now_ms()
        # JSON may hold half of a surrogate pair as an escape: it is shown as the escape.
        return "".join(text).encode(errors="backslashreplace")

    def static(self, version: str, name: str) -> HttpAnswer:
        """Return a static file."""
        return self._static.answer(version, name)

    @cached_property
    def _environment(self) -> Environment:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.filters.update(
            age=lambda timestamp_ms: age(timestamp_ms, self._clock.wall_ms()),
            bytes=shown_bytes,
            count=count,
            counted=counted,
            setting_in_words=setting_in_words,
            short=short,
            rate=rate,
            moment=moment,
            clock=clock_time,
            of=bytes_of,
            segment=lambda text: quote(str(text), safe=""),
        )
        environment.globals.update(static=self._static.address, spark=spark, base_of=base_of)
        return environment


NOTHING = "\N{EN DASH}"
"""Stands for what is not there or not known."""

_GROUP = "\u202f"  # a narrow space that does not break


def count(number: int | float | None) -> str:
    """Return a number with its thousands apart."""
    return NOTHING if number is None else f"{number:,.0f}".replace(",", _GROUP)


def counted(number: int, noun: str) -> str:
    """Return how many of something there are: ``1 record``, ``2 records``."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


_LARGEST = 2**63 - 1
_ENDLESS = ("retention.ms", "retention.bytes")
"""Settings for which -1 is no limit; for others it may mean something else."""


def setting_in_words(value: str, name: str) -> str:
    """Return what a long number of milliseconds or bytes is, ``7 d`` or ``1.0 GiB``; else nothing."""
    if value == "-1" and name.endswith(_ENDLESS):
        return "no limit"
    if not name.endswith((".ms", ".bytes")) or not (value.isascii() and value.isdigit()):
        return ""
    number = int(value)
    if number >= _LARGEST:
        return "no limit"
    if name.endswith(".bytes"):
        return shown_bytes(number) if number >= 1024 else ""
    return shown_duration(number) if number >= 1000 else ""


def shown_duration(duration_ms: int) -> str:
    """Return a time of a second or more with its unit, to a tenth: ``7 d``, ``1.5 min``."""
    units = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
    length, unit = next(each for each in units if duration_ms >= each[0])
    return f"{duration_ms / length:,.1f}".removesuffix(".0").replace(",", _GROUP) + f" {unit}"


_SHORT = 120


def short(name: str) -> str:
    """Return a name that anybody may choose at any length, cut where it would fill the page."""
    return name if len(name) <= _SHORT else f"{name[:_SHORT]}…"


def rate(number: float | None) -> str:
    """Return a number per second: with a decimal below ten."""
    if number is None:
        return NOTHING
    return f"{number:.1f}" if 0 < number < 10 else count(number)


def shown_bytes(size: int | None) -> str:
    """Return a size with its unit."""
    if size is None:
        return NOTHING
    shown, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if shown < 1024 or unit == "TiB":
            break
        shown /= 1024
    return f"{count(size)} B" if unit == "B" else f"{shown:.1f} {unit}"


def age(timestamp_ms: int | None, now_ms: int) -> str:
    """Return how long ago a time was."""
    if timestamp_ms is None:
        return NOTHING
    seconds = (now_ms - timestamp_ms) // 1000
    if seconds < 0:
        return "in the future"
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return "now" if seconds < 2 else f"{seconds} s ago"


def moment(timestamp_ms: int | None) -> str:
    """Return a time in UTC."""
    if timestamp_ms is None:
        return NOTHING
    try:
        found = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:  # a producer may set any 64-bit timestamp
        return f"{timestamp_ms} ms"
    return found.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def clock_time(timestamp_ms: int | None) -> str:
    """Return the time of day, in UTC; a page's rows are mostly of one day."""
    text = moment(timestamp_ms)
    return text.partition(" ")[2] if text[:1].isdigit() and ":" in text else text


def bytes_of(size: int, total: int) -> str:
    """Return a size as a part of another, in the unit of the other: ``412 of 1,024 MiB``."""
    shown, unit = float(total), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if shown < 10_000 or unit == "TiB":
            break
        shown /= 1024
    part = size * shown / total if total else 0
    return f"{count(part)} of {count(shown)} {unit}"


def base_of(topic: str) -> str:
    """Return the address of a topic."""
    return f"/topics/{quote(topic, safe='')}"


_SPARK_WIDTH, _SPARK_HEIGHT = 100, 24


def spark(values: Sequence[float], points: int = 40) -> str:
    """Return the path of a line through the last values, from 0 up to the largest, in a box of 100 by 24."""
    shown = list(values)[-points:]
    if len(shown) < 2:
        return ""
    top = max(shown) or 1.0
    step = _SPARK_WIDTH / (points - 1)
    start = _SPARK_WIDTH - step * (len(shown) - 1)
    spots = [
        f"{start + step * number:.1f},{_SPARK_HEIGHT - 1 - value / top * (_SPARK_HEIGHT - 2):.1f}"
        for number, value in enumerate(shown)
    ]
    return "M" + "L".join(spots)


class StaticFiles:
    """The files of a folder, each under the hash of its content, so that browsers keep them for good.

    Args:
        folder: where they are; files are read when they are first asked for.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names = {each.name for each in folder.iterdir() if each.suffix in _TYPES}
        self._read: dict[str, tuple[str, bytes]] = {}

    def address(self, name: str) -> str:
        """Return the path of a file."""
        return f"/static/{self._file(name)[0]}/{name}"

    def answer(self, version: str, name: str) -> HttpAnswer:
        """Return a file; 404 if no file has this name and content."""
        if name not in self._names or self._file(name)[0] != version:
            return text_answer(404)
        headers = [
            ("Content-Type", _TYPES[Path(name).suffix]),
            ("Cache-Control", "max-age=31536000, immutable"),
        ]
        return HttpAnswer(headers=headers, body=self._file(name)[1])

    def _file(self, name: str) -> tuple[str, bytes]:
        if name not in self._read:
            content = (self._folder / name).read_bytes()
            self._read[name] = (sha256(content).hexdigest()[:12], content)
        return self._read[name]
