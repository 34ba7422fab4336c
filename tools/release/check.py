"""Says whether the files in `dist/` may be published, and what is missing: ``make release-check``.

Checks the checkout (address, version, changelog, tag), then sdist and wheels (metadata, description,
contents). Then installs both into empty environments as a user would: with and without a compiler, each extra
alone, and through uvx. Continues after a failed check, so that one run reports all failures.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from email.message import Message
from email.parser import Parser
from functools import partial
from pathlib import Path
from typing import Any

from tools.release.environments import ROOT, TOOLS, Environment, RunError, find_python, run
from tools.release.extras import PROBES
from tools.release.wheels import DIST, VERSIONS, compiled

PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION: str = PYPROJECT["project"]["version"]
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}
TEN_LINES = "".join(f"line {number}\n" for number in range(10))
IMPLEMENTATION = "import splashdam; print(splashdam.__impl__, splashdam.__version__)"
MOST_COMPILED = 1024 * 1024
"""Limit for the bytes of a wheel's compiled modules; with symbols they have 3 MB."""


class MissingError(Exception):
    """The release lacks something; the message says what, and what to do."""


def require(condition: object, sentence: str) -> None:
    """Raise MissingError with the sentence unless the condition holds."""
    if not condition:
        raise MissingError(sentence)


def constant(path: str, name: str) -> str:
    """Return a string that a module assigns to a name, without importing it."""
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.Assign) and [getattr(each, "id", "") for each in node.targets] == [name]:
            return str(ast.literal_eval(node.value))
    raise MissingError(f"{path} does not assign {name}")


# -- the checkout


def check_address() -> str:
    """Check that setup.py has the project's address."""
    url = constant("setup.py", "PROJECT_URL")
    require(
        url,
        "PROJECT_URL in setup.py is empty: set it to the project's address, or PyPI shows a README that"
        " installs from a checkout and whose links lead nowhere",
    )
    require(
        re.fullmatch(r"https://\S+[^\s/]", url),
        f"PROJECT_URL={url!r} has to be https://… without a slash at its end",
    )
    return url


def check_version() -> str:
    """Check that distribution and package have the same version, and that no other commit has its tag."""
    require(
        constant("facade/__init__.py", "__version__") == VERSION,
        f"facade/__init__.py has another __version__ than pyproject.toml ({VERSION})",
    )
    tagged = (
        run(["git", "rev-parse", "--quiet", "--verify", f"v{VERSION}^{{commit}}"]) if _is_tagged() else ""
    )
    require(
        tagged in ("", run(["git", "rev-parse", "HEAD"])),
        f"v{VERSION} is another commit's tag: raise the version in pyproject.toml and facade/__init__.py",
    )
    return VERSION


def _is_tagged() -> bool:
    return f"v{VERSION}" in run(["git", "tag", "--list"]).split()


def check_tree() -> str:
    """Check that the checkout has no uncommitted changes."""
    changed = run(["git", "status", "--porcelain"])
    require(not changed, f"the checkout has changes that are not committed:\n{changed}")
    return run(["git", "rev-parse", "--short", "HEAD"]).strip()


def check_changelog() -> str:
    """Check that the version has a section with a date, and that no entry is left under [Unreleased]."""
    text = (ROOT / "CHANGELOG.md").read_text()
    require(
        re.search(rf"^## \[{re.escape(VERSION)}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE),
        f"CHANGELOG.md has no `## [{VERSION}] - YYYY-MM-DD`: cut the changelog for the release",
    )
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    lines = unreleased[1].count("\n- ") if unreleased else 0
    require(
        not lines,
        f"CHANGELOG.md still has {lines} entries under [Unreleased]: move them into the version's section",
    )
    return VERSION


# -- what was built


def built() -> tuple[Path, list[Path]]:
    """Return sdist and wheels of this version in `dist/`."""
    sdists, wheels = sorted(DIST.glob("*.tar.gz")), sorted(DIST.glob("*.whl"))
    require(sdists and wheels, "dist/ holds no sdist and wheel: run `make wheels`")
    foreign = [each.name for each in (*sdists, *wheels) if not each.name.startswith(f"splashdam-{VERSION}")]
    require(len(sdists) == 1 and not foreign, f"dist/ holds more than version {VERSION}: {foreign or sdists}")
    return sdists[0], wheels


def metadata(wheel: Path) -> Message:
    """Return the METADATA of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"splashdam-{VERSION}.dist-info/METADATA").decode()
    return Parser().parsestr(text)


def check_metadata() -> str:
    """Check that PyPI accepts the metadata, and that each Python of the classifiers has a wheel."""
    sdist, wheels = built()
    run([TOOLS / "twine", "check", "--strict", sdist, *wheels])
    named = {
        each.rpartition(" ")[2]
        for each in PYPROJECT["project"]["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", each)
    }
    without = sorted(named - set(VERSIONS) | {each for each in named if not wheels_for(each, wheels)})
    require(not without, f"no wheel for Python {', '.join(without)}, which the classifiers name")
    return f"{len(wheels)} wheels"


def wheels_for(version: str, wheels: Sequence[Path]) -> list[Path]:
    """Return the wheels for a Python."""
    return [each for each in wheels if f"-cp{version.replace('.', '')}-" in each.name]


def check_description() -> str:
    """Check that PyPI's page says how to install from PyPI, and has no relative links."""
    _, wheels = built()
    for wheel in wheels:
        text = str(metadata(wheel).get_payload())
        relative = re.findall(r"\]\((?!\w+:|#)([^)\s]+)", text)
        require(
            not relative,
            f"the description has relative links, as {relative[:1]}: set PROJECT_URL, build again",
        )
        require(
            "pip install '.[" not in text,
            "the description installs from a checkout: set PROJECT_URL, build again",
        )
        require(
            metadata(wheel).get_all("Project-URL"),
            "the metadata name no address: set PROJECT_URL, build again",
        )
    return "absolute links"


def check_contents() -> str:
    """Check that each wheel has the modules of the rooms, the two compiled modules, and nothing else."""
    _, wheels = built()
    expected = expected_contents()
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            files = {each.filename for each in archive.infolist() if not each.is_dir()}
        names = {each for each in files if ".dist-info/" not in each}
        extensions = {each.filename for each in compiled(wheel)}
        require(
            {each.partition(".")[0] for each in extensions} == EXTENSIONS,
            f"{wheel.name} has other compiled modules than {sorted(EXTENSIONS)}: {sorted(extensions)}",
        )
        more, less = sorted(names - extensions - expected), sorted(expected - names)
        require(not more, f"{wheel.name} has files that no room has: {more}")
        require(not less, f"{wheel.name} lacks: {less}")
        size = sum(each.file_size for each in compiled(wheel))
        require(
            size < MOST_COMPILED,
            f"the compiled modules of {wheel.name} have {size:,} bytes: are they stripped?",
        )
        require("-linux_" not in wheel.name, f"{wheel.name} has no manylinux tag: PyPI refuses it")
    return f"{len(expected)} files and {len(EXTENSIONS)} compiled modules each"


EXTENSIONS = {each["name"].replace(".", "/") for each in PYPROJECT["tool"]["setuptools"]["ext-modules"]}


def expected_contents() -> set[str]:
    """Return the files that a wheel must have beside compiled modules: those of the installed rooms."""
    folders: dict[str, str] = PYPROJECT["tool"]["setuptools"]["package-dir"]
    data: dict[str, list[str]] = PYPROJECT["tool"]["setuptools"]["package-data"]
    others = {
        f"{package.replace('.', '/')}/{path.relative_to(ROOT / folders[package]).as_posix()}"
        for package in data.keys() & folders.keys()
        for pattern in data[package]
        for path in (ROOT / folders[package]).glob(pattern)
    }
    return others | {
        f"{package.replace('.', '/')}/{path.relative_to(ROOT / folder).as_posix()}"
        for package, folder in folders.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".pyi") or path.name == "py.typed"
    }


def check_sdist() -> str:
    """Check that the sdist has the files for a build, and none of lab, benchmarks and tools."""
    sdist, _ = built()
    with tarfile.open(sdist) as archive:
        members = {each.name.partition("/")[2] for each in archive if each.isfile()}
    extensions = PYPROJECT["tool"]["setuptools"]["ext-modules"]
    sources = {source for each in extensions for source in (*each["sources"], *each.get("depends", ()))}
    needed = {
        "setup.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "tests/conftest.py",
        *sources,
    }
    require(needed <= members, f"{sdist.name} lacks {sorted(needed - members)}")
    foreign = sorted(each for each in members if each.startswith(("lab/", "benchmarks/", "tools/", ".")))
    require(not foreign, f"{sdist.name} holds {foreign}")
    return f"{len(members)} files"


# -- as a user would


def check_wheel(version: str) -> str:
    """Check a wheel in an empty environment: run a broker, send ten lines and read them back."""
    _, wheels = built()
    (wheel,) = wheels_for(version, wheels) or [None]
    python = find_python(version)
    require(wheel is not None and python is not None, f"no wheel, or no Python {version} on this machine")
    assert python is not None
    with new_environment(python) as environment:
        environment.install(f"{wheel}[cli]")
        found = environment.says(IMPLEMENTATION, environment.folder)
        require(found == f"c {VERSION}", f"expected twin and version c {VERSION}, found {found}")
        return ten_lines([environment.folder / "bin/splashdam"], environment.folder)


def check_uvx(python: Path) -> str:
    """Check the command without an installation: ``uvx --from WHEEL splashdam broker``."""
    _, wheels = built()
    version = run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()
    (wheel,) = wheels_for(version, wheels)
    with tempfile.TemporaryDirectory() as folder:
        command = ["uvx", "--quiet", "--python", str(python), "--from", f"{wheel}[cli]", "splashdam"]
        return ten_lines([TOOLS / command[0], *command[1:]], Path(folder))


def ten_lines(command: Sequence[str | Path], folder: Path) -> str:
    """Start a broker with the command; send it ten lines, and read them."""
    with serving(command, folder) as address:
        at = ["--bootstrap-servers", address]
        run([*command, "produce", "lines", *at], folder=folder, text=TEN_LINES)
        read = run(
            [*command, "tail", "lines", *at, "--from-beginning", "--max-messages", "10"], folder=folder
        )
    lost = [line for line in TEN_LINES.splitlines() if line not in read]
    require(not lost, f"sent ten lines, and did not get back {lost} in {read!r}")
    return "ten lines there and back"


@contextmanager
def serving(command: Sequence[str | Path], folder: Path) -> Iterator[str]:
    """Run a broker on a free port, and end it as Ctrl-C does."""
    words = [*map(str, command), "broker", "--data", "data", "--port", "0"]
    with subprocess.Popen(
        words, cwd=folder, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            require(first.startswith("listening on "), f"the broker did not start: {first!r}")
            yield first.split()[2]
        finally:
            os.killpg(process.pid, signal.SIGINT)


def check_sdist_install(python: Path, *, compiler: bool) -> str:
    """Check an install from the sdist: with a compiler it has the compiled twin, else the Python twin."""
    sdist, _ = built()
    with new_environment(python) as environment:
        environment.install(sdist, more={} if compiler else NO_COMPILER, anew=True)
        expected = f"{'c' if compiler else 'python'} {VERSION}"
        found = environment.says(IMPLEMENTATION, environment.folder)
        require(found == expected, f"expected twin and version {expected}, found {found}")
        environment.says(
            "from splashdam import KafkaProducer\n"
            "with KafkaProducer(bootstrap_servers='embedded:./data') as producer:\n"
            "    print(producer.send('greetings', b'hello').get(timeout=30).offset)",
            environment.folder,
        )
        return found


def check_extra(extra: str, python: Path) -> str:
    """Check that the program of an extra runs with that extra alone, installed without a compiler."""
    require(extra == "all" or extra in PROBES, f"tools/release/extras.py has no program for {extra}")
    _, wheels = built()
    version = run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()
    (wheel,) = wheels_for(version, wheels)
    with new_environment(python) as environment:
        environment.install(f"{wheel}[{extra}]", more=NO_COMPILER)
        for program in PROBES.values() if extra == "all" else [PROBES[extra]]:
            environment.says(program, environment.folder)
        size = sum(each.stat().st_size for each in environment.folder.rglob("*") if each.is_file())
        return f"{size // 1024**2} MB with splashdam"


@contextmanager
def new_environment(python: Path) -> Iterator[Environment]:
    """Make an environment in a temporary folder for the block."""
    with tempfile.TemporaryDirectory() as folder:
        yield Environment(Path(folder, "environment"), python)


Check = tuple[str, Callable[[], str]]


def checks(only_here: bool) -> Iterator[Check]:
    """Yield all checks with their names; with ``only_here`` those that install nothing."""
    yield "address", check_address
    yield "version", check_version
    yield "changelog", check_changelog
    yield "committed", check_tree
    yield "metadata", check_metadata
    yield "description", check_description
    yield "contents of the wheels", check_contents
    yield "contents of the sdist", check_sdist
    if only_here:
        return
    for version in VERSIONS:
        yield f"wheel on Python {version}", partial(check_wheel, version)
    here = Path(sys.executable)
    yield "sdist with a compiler", partial(check_sdist_install, here, compiler=True)
    yield "sdist without a compiler", partial(check_sdist_install, here, compiler=False)
    yield "uvx", partial(check_uvx, here)
    for extra in sorted({*PYPROJECT["project"]["optional-dependencies"]} - {"gssapi"}):
        yield f"extra {extra}", partial(check_extra, extra, here)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks and print a line for each; return 1 if something is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only-here", action="store_true", help="install nothing: needs no network")
    given = parser.parse_args(arguments)
    missing = 0
    for name, check in checks(given.only_here):
        try:
            print(f"ok       {name}: {check()}", flush=True)
        except (MissingError, RunError, subprocess.TimeoutExpired) as error:
            missing += 1
            print(f"MISSING  {name}: {error}", flush=True)
    print(f"release-check: {missing} missing" if missing else f"release-check: {VERSION} may be published")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
