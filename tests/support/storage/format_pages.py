"""The worked examples of docs/format: blocks marked ``hex``, whose lines begin with bytes."""

from __future__ import annotations

import re

from support.running.house_tree import ROOT

PAGES = ROOT / "docs" / "format"
_BLOCK = re.compile(r"^```hex\n(.*?)^```", re.DOTALL | re.MULTILINE)
_BYTES = re.compile(r"[0-9a-f]{2,}( [0-9a-f]{2,})*(?=   |$)")


def examples(page: str) -> list[bytes]:
    """The bytes of each example on a page, in order."""
    return [_bytes(block) for block in _BLOCK.findall((PAGES / page).read_text())]


def _bytes(block: str) -> bytes:
    lines = [_BYTES.match(line) for line in block.splitlines()]
    assert None not in lines, block
    return b"".join(bytes.fromhex(line[0]) for line in lines if line)
