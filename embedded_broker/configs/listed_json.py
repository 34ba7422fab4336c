"""JSON files that hold a list: each entry is encoded once, when it is new, and stands on a line of its own.

A change writes the whole file. With tens of thousands of entries the encoding would take a second; the lines
that are kept take a millisecond to join.
"""

from __future__ import annotations

from collections.abc import Iterable


def listed(version: int, name: str, lines: Iterable[str]) -> bytes:
    """The file's content.

    Args:
        version: of its format.
        name: of the list.
        lines: JSON of one entry each.
    """
    entries = ",\n".join(lines)
    return f'{{"version": {version}, "{name}": [\n{entries}\n]}}\n'.encode()
