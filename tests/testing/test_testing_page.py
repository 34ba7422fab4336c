"""What docs/reference/testing.md shows works."""

from __future__ import annotations

import re

import pytest
from support.running.house_tree import ROOT

PAGE = (ROOT / "docs/reference/testing.md").read_text()
PROGRAMS = re.findall(r"```python\n(import tempfile\n.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=["faults", "the loss with acks=1", "requests"])
def test_programs_of_the_page_run(program: str) -> None:
    """Their assertions hold."""
    exec(compile(program, "docs/reference/testing.md", "exec"), {})
