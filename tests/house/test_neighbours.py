"""What a room says that it may import is what it imports.

The last sentence of an ``__init__`` is "May import: a, b, c." and names what stands beside the room in its
parent, or "May import: anything." What lies further away is told by the parent's own sentence.
"""

import ast
import re
import runpy
from pathlib import Path

import pytest
from support.running.house_tree import ROOT

HOUSE = runpy.run_path(str(ROOT / "tools/house.py"))
product, neighbours = HOUSE["product"], HOUSE["neighbours"]
SOURCES = product(ROOT)
SAID = re.compile(r"May import: ([\w, ]+)\.")
ROOMS = sorted(
    name for name, source in SOURCES.items() if source.path.name == "__init__.py" and name != "splashdam"
)


@pytest.fixture(scope="module")
def imported() -> dict[str, set[str]]:
    """What each room imports; every worker reads this file, and one of them the imports."""
    found: dict[str, set[str]] = neighbours(SOURCES)
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_it_says(room: str, imported: dict[str, set[str]]) -> None:
    """No more, and no less: a sentence that nobody follows is not a rule."""
    text = " ".join((ast.get_docstring(SOURCES[room].tree) or "").split())
    said = SAID.search(text)
    assert said, f"{room} does not say what it may import"
    if said[1] == "anything":
        return
    names = set() if said[1] == "nothing" else set(said[1].split(", "))
    assert names == imported[room], f"{room}: {', '.join(sorted(imported[room])) or 'nothing'}"


def test_the_measure_sees_imports_for_types(tmp_path: Path) -> None:
    """Also relative ones, and those within functions."""
    for name, text in {
        "a/__init__.py": "",
        "a/one.py": "if TYPE_CHECKING:\n    from splashdam.b.two import X\n",
        "a/inner/__init__.py": "from splashdam.a.inner import three",
        "a/inner/three.py": "def f():\n    from splashdam.a.one import Y\n    from ...c import four\n",
        "b/__init__.py": "",
        "b/two.py": "",
        "c/__init__.py": "",
        "c/four.py": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert neighbours(product(tmp_path)) == {
        "splashdam.a": {"b", "c"},
        "splashdam.a.inner": {"one"},
        "splashdam.b": set(),
        "splashdam.c": set(),
    }
