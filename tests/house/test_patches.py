"""A patch that is never hit fails its test: six tests of a dying driver had patched what nobody awaited."""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from support.running.patches import Patches, UnhitPatchError, guard, perhaps

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parents[1]


class Product:
    """What is patched here."""

    limit = 3

    def plain(self) -> str:
        return "plain"

    async def asynchronous(self) -> str:
        return "asynchronous"

    @classmethod
    def of_class(cls) -> str:
        return "class"

    @staticmethod
    def static() -> str:
        return "static"

    @property
    def size(self) -> int:
        return 1


def broken(*_: object) -> str:
    return "broken"


async def broken_later(*_: object) -> str:
    return "broken later"


PATCHES: list[tuple[str, Any, Callable[[], Any], Any]] = [
    ("plain", broken, lambda: Product().plain(), "broken"),
    ("asynchronous", broken_later, lambda: trio.run(Product().asynchronous), "broken later"),
    ("of_class", classmethod(broken), lambda: Product().of_class(), "broken"),
    ("static", staticmethod(broken), lambda: Product().static(), "broken"),
    ("size", property(broken), lambda: Product().size, "broken"),
    ("size", 7, lambda: Product().size, 7),
    ("plain", [].copy, lambda: Product().plain(), []),  # a builtin, which takes no instance
]


@pytest.mark.parametrize(("name", "instead", "use", "said"), PATCHES)
def test_what_is_hit(name: str, instead: Any, use: Callable[[], Any], said: Any) -> None:
    """It is what was put there, and it goes again."""
    with Patches.context() as patches:
        patches.setattr(Product, name, instead)
        assert use() == said
    assert Product().plain() == "plain"
    assert Product().size == 1


@pytest.mark.parametrize(("name", "instead"), [each[:2] for each in PATCHES])
def test_what_is_never_hit(name: str, instead: Any) -> None:
    """Its name is said."""
    patches = Patches()
    patches.setattr(Product, name, instead)
    patches.undo()
    with pytest.raises(UnhitPatchError, match=f"Product.{name} was never called"):
        patches.check()


def test_a_block_is_checked_at_its_end() -> None:
    """Not only by the fixture, at the end of the test."""
    block = Patches.context()
    block.__enter__().setattr(Product, "plain", broken)
    with pytest.raises(UnhitPatchError, match="never called"):
        block.__exit__(None, None, None)
    assert Product().plain() == "plain"


def test_a_coroutine_that_nobody_awaits() -> None:
    """It was called, and nothing of it ran."""
    patches = Patches()
    patches.setattr(Product, "asynchronous", broken_later)
    Product().asynchronous().close()
    patches.undo()
    with pytest.raises(UnhitPatchError, match="never called"):
        patches.check()


def test_a_coroutine_function_for_a_plain_one() -> None:
    """Is refused at once: that is how the driver came to survive."""
    with Patches.context() as patches, pytest.raises(UnhitPatchError, match="plain function"):
        patches.setattr(Product, "plain", broken_later)


def test_a_guard() -> None:
    """Must not be hit, even where its error is caught."""
    patches = Patches()
    patches.setattr(Product, "plain", guard("it is asked"))
    patches.check()
    patches.setattr(Product, "plain", guard("it is asked"))
    with pytest.raises(AssertionError, match="it is asked"):
        Product().plain()
    patches.undo()
    with pytest.raises(UnhitPatchError, match="called 1 times, and must not be"):
        patches.check()


def test_perhaps() -> None:
    """Either way is right."""
    for uses in (0, 1):
        with Patches.context() as patches:
            patches.setattr(Product, "plain", perhaps(broken, because="of this test"))
            assert [Product().plain() for _ in range(uses)] == ["broken"] * uses


def test_an_error_of_the_block_is_not_hidden() -> None:
    """What went wrong comes first."""
    block = Patches.context()
    block.__enter__().setattr(Product, "plain", broken)
    error = KeyError()
    assert not block.__exit__(KeyError, error, None)
    assert Product().plain() == "plain"


def test_a_value_that_nobody_reads_there(tmp_path: Path) -> None:
    """A constant that has moved, and is still imported above all functions, is another's."""
    source = "from elsewhere import LIMIT\nBOUND = 1\ndef used() -> int:\n    return BOUND\n"
    (tmp_path / "module.py").write_text(source)
    module = types.ModuleType("splashdam.module")
    vars(module).update(__file__=str(tmp_path / "module.py"), LIMIT=1, BOUND=1)
    with Patches.context() as patches:
        patches.setattr(module, "BOUND", 2)
        with pytest.raises(UnhitPatchError, match=r"no function of splashdam\.module reads LIMIT"):
            patches.setattr(module, "LIMIT", 2)


def test_the_fixture(pytester: pytest.Pytester) -> None:
    """Fails a test that passed with a patch in vain, and adds nothing to one that failed or was skipped."""
    above = f"import sys\nsys.path.insert(0, {str(TESTS)!r})\n"
    pytester.makeconftest((TESTS / "conftest.py").read_text().replace("import sys\n", above, 1))
    pytester.makepyfile(
        """
        import os, pytest

        def test_vain(monkeypatch):
            monkeypatch.setattr(os, "getpid", lambda: 7)

        def test_hit(monkeypatch):
            monkeypatch.setattr(os, "getpid", lambda: 7)
            assert os.getpid() == 7

        def test_failed(monkeypatch):
            monkeypatch.setattr(os, "getpid", lambda: 7)
            assert False

        def test_skipped(monkeypatch):
            monkeypatch.setattr(os, "getpid", lambda: 7)
            pytest.skip("no")
        """
    )
    result = pytester.runpytest("-p", "no:cacheprovider", "-p", "no:asyncio")
    result.assert_outcomes(passed=2, failed=1, skipped=1, errors=1)
    result.stdout.fnmatch_lines(["*os.getpid was never called*"])


CHECKED_BY_HAND = {"record/kernel/building/test_fast_path.py"}
"""Shows that ``mock.patch`` finds ``send`` where it looks for it, and asks how it was called."""


def _patches_without_check(path: Path) -> list[str]:
    """Where a file makes patches that nobody checks."""
    found: list[str] = []
    text = path.read_text()
    if not re.search(r"pytest\.MonkeyPatch(\(|\.context)|mock\.patch", text):
        return found  # as most: not worth parsing
    for node in ast.walk(ast.parse(text)):
        said = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Name) else ""
        is_bare = isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.MonkeyPatch"
        if is_bare or said in ("pytest.MonkeyPatch.context", "mock.patch") or said.startswith("mock.patch."):
            found.append(f"{path.relative_to(TESTS)}:{node.lineno}")
    return found


def test_no_test_patches_by_other_means() -> None:
    """``pytest.MonkeyPatch`` made by hand and ``mock.patch`` check nothing: `patches.Patches` does."""
    files = (
        path for path in sorted(TESTS.rglob("*.py")) if f"{path.relative_to(TESTS)}" not in CHECKED_BY_HAND
    )
    assert [each for path in files for each in _patches_without_check(path)] == []


@pytest.mark.parametrize(
    "source",
    [
        "import pytest\npatches = pytest.MonkeyPatch()",
        "import pytest\nwith pytest.MonkeyPatch.context() as patches: ...",
        "from unittest import mock\nwith mock.patch.object(a, 'b'): ...",
        "from unittest import mock\nmock.patch('a.b')",
    ],
)
def test_other_means_are_found(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them."""
    (tmp_path / "test_x.py").write_text(source)
    monkeypatch.setattr(f"{__name__}.TESTS", tmp_path)
    assert _patches_without_check(tmp_path / "test_x.py") != []
