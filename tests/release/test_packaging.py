"""Root folders install as one package: nothing on disk may be missing from the lists that say so."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from support.running.house_tree import PACKAGE_DIR, PYPROJECT, ROOMS, ROOT, files


def packages_on_disk() -> set[str]:
    """Dotted names of all folders with an `__init__.py` in the rooms."""
    return {
        ".".join([package, *path.parent.relative_to(ROOT / folder).parts])
        for package, folder in PACKAGE_DIR.items()
        for path in files(folder, ".py")
        if path.name == "__init__.py"
    }


def test_every_package_is_listed() -> None:
    """A forgotten subpackage would work in an editable install and be missing from the wheel."""
    assert set(PYPROJECT["tool"]["setuptools"]["packages"]) == packages_on_disk()


def test_every_python_file_is_in_a_package() -> None:
    """A module in a folder without `__init__.py` would not be installed."""
    lost = [
        path
        for room in ROOMS
        for path in files(room, ".py", ".pyi", ".pyx")
        if not (path.parent / "__init__.py").exists()
    ]
    assert lost == []


def test_every_file_that_is_no_module_is_package_data() -> None:
    """A template or a script that `pyproject.toml` does not name is missing from the wheel."""
    data = PYPROJECT["tool"]["setuptools"]["package-data"]
    for room in ROOMS:
        patterns = data.get(f"splashdam.{room}", [])
        named = {path for pattern in patterns for path in (ROOT / room).glob(pattern)}
        there = set(files(room, ".html", ".css", ".js", ".svg", ".txt", ".json"))
        assert there == named, room


def test_every_part_of_the_compiled_twin_is_listed() -> None:
    """A part that `pyproject.toml` does not name is missing from the sdist, which then cannot be compiled."""
    extensions = {each["name"]: each for each in PYPROJECT["tool"]["setuptools"]["ext-modules"]}
    assert all(each["optional"] for each in extensions.values())
    extension = extensions["splashdam.record.kernel._kernel_c"]
    parts = {str(path.relative_to(ROOT)) for path in files("record", ".pxi")}
    assert set(extension["depends"]) == parts
    included = re.findall(
        r'^include "(.+)"$', (ROOT / "record/kernel/_kernel_c.pyx").read_text(), re.MULTILINE
    )
    assert {f"record/kernel/{name}" for name in included} == parts


def test_type_checkers_and_linters_know_every_room() -> None:
    """A new room stands in the typing view and in the layers; the view is committed, editors know it."""
    rooms = set(ROOMS) - {"facade"}
    shown = {path.name: path.readlink() for path in (ROOT / "typing_view/splashdam").iterdir()}
    face = {path.name for path in (ROOT / "facade").iterdir() if path.name != "__pycache__"}
    assert shown == {
        **{room: Path("../..") / room for room in rooms},
        **{name: Path("../../facade") / name for name in face},
    }
    assert (ROOT / "typing_view/lab").readlink() == Path("../lab")
    assert '"extraPaths": ["typing_view"]' in (ROOT / "pyrightconfig.json").read_text()
    layers = PYPROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    assert {room for layer in layers for room in layer.split(" | ")} == rooms


def test_facade_is_the_package() -> None:
    """`splashdam` itself is the facade, and marks the package as typed."""
    assert PACKAGE_DIR["splashdam"] == "facade"
    assert (ROOT / "facade/py.typed").exists()


def test_version_is_written_once_in_each_place() -> None:
    """`__version__`, the distribution and the changelog agree."""
    import splashdam

    version = PYPROJECT["project"]["version"]
    assert splashdam.__version__ == version
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


def test_extras() -> None:
    """The promised extras exist, and `all` names every other one that installs without a compiler."""
    extras = PYPROJECT["project"]["optional-dependencies"]
    ours = {"compression", "arrow", "spark", "delta", "iceberg", "avro", "cli", "console"}
    names = ours | {"otel", "telemetry", "prometheus", "gssapi", "proxy"}
    assert set(extras) == {*names, "all"}
    assert set(re.findall(r"\w+", extras["all"][0].partition("[")[2])) == names - {"gssapi"}


def test_the_command_is_installed() -> None:
    """The entry point `splashdam` names something that can be called."""
    (command,) = entry_points(group="console_scripts", name="splashdam")
    assert callable(command.load())


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_lives_there(room: str) -> None:
    """The docstring of a room's `__init__` names its contents and what it may import."""
    text = (ROOT / room / "__init__.py").read_text()
    if room != "facade":
        contents, _, imports = text.partition("May import:")
        assert len(contents.split()) >= 12
        assert imports
