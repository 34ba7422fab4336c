"""Print figures about the code: files, code lines, towers of classes, crowded folders, knots of imports.

``python tools/house.py`` reads this checkout, ``python tools/house.py OTHER`` another; ``--details`` lists
the counted items. It imports and runs nothing, so one script can compare two commits.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "splashdam"
FACE = "facade"
LABORATORY = "lab"  # not installed
MOST_FILES = 15
MOST_IN_A_KNOT = 8
UNCROWDED = frozenset({"handlers", "messages"})  # one file for each API key
UNREAD = frozenset({"__pycache__", "build", "typing_view", "dist"})
SOURCES = frozenset({".py", ".pyx", ".pxi"})
LAYOUT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


class Source:
    """One Python file of the product."""

    def __init__(self, path: Path, module: str) -> None:
        self.path = path
        self.module = module

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    def code_lines(self) -> int:
        """Return the number of lines with code: without blank lines, docstrings and lines of comments."""
        text = {
            line
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        code = {
            line
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline)
            if token.type not in LAYOUT
            for line in range(token.start[0], token.end[0] + 1)
        }
        return len(code - text)

    def full_name(self, module: str | None, level: int) -> str:
        """Return the full name of the module in ``from MODULE import``; ``level`` counts its leading dots."""
        if not level:
            return module or ""
        parts = self.module.split(".")
        up = level - (self.path.name == "__init__.py")
        return ".".join([*parts[: len(parts) - up], *([module] if module else [])])

    def imported(self, modules: Mapping[str, Source]) -> Iterator[str]:
        """Yield the product's modules that this one imports, also for types alone or within a function."""
        for node in statements(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in modules)
            elif isinstance(node, ast.ImportFrom):
                base = self.full_name(node.module, node.level)
                for alias in node.names:
                    yield from (name for name in (f"{base}.{alias.name}", base) if name in modules)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements below a node, without expressions: most of a file, and they import nothing."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, name, ()):
            yield child
            yield from statements(child)


def product(root: Path) -> dict[str, Source]:
    """Return the Python files of the installed package, by module."""
    found: dict[str, Source] = {}
    rooms = [
        room
        for room in sorted(root.iterdir())
        if room.name != LABORATORY and (room / "__init__.py").is_file()
    ]
    for room in rooms:
        for path in sorted(room.rglob("*.py")):
            inner = path.relative_to(room).with_suffix("").parts
            if UNREAD.isdisjoint(inner):
                parts = (PACKAGE, *(() if room.name == FACE else (room.name,)), *inner)
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                found[name] = Source(path, name)
    return found


def towers(sources: Mapping[str, Source]) -> list[tuple[str, str]]:
    """Return base classes whose one subclass is in another file; protocols do not count."""
    classes: dict[str, ast.ClassDef] = {}
    subclasses: dict[str, list[str]] = defaultdict(list)
    for source in sources.values():
        for node in classes_of(source):
            classes[f"{source.module}.{node.name}"] = node
    for source in sources.values():
        named = names_of(source)
        for node in classes_of(source):
            for base in node.bases:
                first, _, rest = ast.unparse(base).partition("[")[0].partition(".")
                full = ".".join([named.get(first, f"{source.module}.{first}"), *([rest] if rest else [])])
                subclasses[full].append(f"{source.module}.{node.name}")
    return sorted(
        (base, ones[0])
        for base, ones in subclasses.items()
        if base in classes
        and len(ones) == 1
        and ones[0].rpartition(".")[0] != base.rpartition(".")[0]
        and not any("Protocol" in ast.unparse(each) for each in classes[base].bases)
    )


def classes_of(source: Source) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef))


def names_of(source: Source) -> dict[str, str]:
    """Return the full name of each imported name: ``splashdam.model.values.TopicPartition``."""
    return {
        alias.asname or alias.name: f"{source.full_name(node.module, node.level)}.{alias.name}"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def crowded(root: Path) -> list[tuple[str, int]]:
    """Return folders of sources with more than `MOST_FILES` files beside their ``__init__.py``."""
    counts: dict[Path, int] = defaultdict(int)
    for path in root.rglob("*"):
        inner = path.relative_to(root)
        hidden = inner.parts[0].startswith(".") or not UNREAD.isdisjoint(inner.parts)
        if path.suffix in SOURCES and path.name != "__init__.py" and not hidden:
            counts[inner.parent] += 1
    return sorted(
        (str(folder), count)
        for folder, count in counts.items()
        if count > MOST_FILES and folder.name not in UNCROWDED
    )


def knots(sources: Mapping[str, Source]) -> list[list[str]]:
    """Return groups of modules with import cycles, imports for types included; the largest first."""
    graph = {name: sorted(set(source.imported(sources)) - {name}) for name, source in sources.items()}
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in graph[name]:
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            knot = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(knot) > 1:
                found.append(sorted(knot))

    sys.setrecursionlimit(10_000)
    for name in graph:
        if name not in order:
            visit(name)
    return sorted(found, key=len, reverse=True)


def neighbours(sources: Mapping[str, Source]) -> dict[str, set[str]]:
    """Return which of its siblings each package imports, imports for types included.

    An import from further away counts for the parent: ``embedded_broker.groups`` has ``topics`` here, and
    ``embedded_broker`` has ``net``, whichever of its files imports it.
    """
    found: dict[str, set[str]] = {
        name: set() for name, source in sources.items() if source.path.name == "__init__.py"
    }
    for name, source in sources.items():
        for other in source.imported(sources):
            ours, theirs = name.split("."), other.split(".")
            shared = next(
                (at for at, (own, its) in enumerate(zip(ours, theirs, strict=False)) if own != its),
                min(len(ours), len(theirs)),
            )
            room = ".".join(ours[: shared + 1])
            if min(len(ours), len(theirs)) > shared and room in found:
                found[room].add(theirs[shared])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of one checkout."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="a checkout; default: this one")
    parser.add_argument("--details", action="store_true", help="list the counted items")
    given = parser.parse_args(arguments)
    sources = product(given.root)
    files = [source for source in sources.values() if source.path.name != "__init__.py"]
    bases, full, tied = towers(sources), crowded(given.root), knots(sources)

    def tell(count: int, what: str, details: Iterable[str] = ()) -> None:
        print(f"{count:>6} {what}", *(details if given.details else ()), sep="\n         ")

    tell(len(files), "product files in Python, without __init__.py")
    tell(sum(source.code_lines() for source in sources.values()), "lines of code in them")
    tell(
        len(bases),
        "base classes whose one subclass stands in another file",
        (f"{base} <- {one}" for base, one in bases),
    )
    tell(
        len(full),
        f"folders with more than {MOST_FILES} files, {' and '.join(sorted(UNCROWDED))} aside",
        (f"{folder}: {count}" for folder, count in full),
    )
    tell(
        sum(len(knot) > MOST_IN_A_KNOT for knot in tied),
        f"knots of imports above {MOST_IN_A_KNOT} files: {[len(knot) for knot in tied]}",
        (" ".join(knot) for knot in tied),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
