"""Builds the sdist, and from that sdist a stripped wheel for each Python: ``make wheels``.

The files are in `dist/`. On Linux a wheel gets the tag of the oldest glibc that it runs on. Each wheel is
then installed into an empty environment, where the sdist's own tests of the pure rooms run against it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.release.environments import ROOT, Environment, RunError, find_python, run

DIST = ROOT / "dist"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
PURE_ROOMS = ("model", "wire", "record", "accumulator")
SAFE: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from 3.11.4 on


def build_sdist() -> Path:
    """Build the sdist from the checkout."""
    run(["uv", "build", "--quiet", "--sdist", "--out-dir", DIST])
    (sdist,) = DIST.glob("splashdam-*.tar.gz")
    return sdist


def build_wheel(sdist: Path, python: Path) -> Path:
    """Build a wheel from the sdist with this Python, strip it, and give it its tag.

    Raises:
        RunError: the extension was not compiled; or a tool failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        # No CFLAGS against debug data: setuptools would use them instead of Python's own, -O3 among them.
        run(["uv", "build", "--quiet", "--wheel", "--python", python, "--out-dir", folder, sdist])
        (built,) = Path(folder).glob("*.whl")
        if not compiled(built):
            raise RunError(f"{built.name} has no compiled twin: `make wheels` needs a C compiler")
        if sys.platform != "linux":
            return Path(shutil.move(built, DIST / built.name))
        tagged = Path(folder, "tagged")
        run(["auditwheel", "repair", "--strip", "--wheel-dir", tagged, built])
        (wheel,) = tagged.glob("*.whl")
        return Path(shutil.move(wheel, DIST / wheel.name))


def compiled(wheel: Path) -> list[zipfile.ZipInfo]:
    """Return the compiled modules in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return [each for each in archive.infolist() if each.filename.endswith((".so", ".pyd"))]


def test_wheel(wheel: Path, sdist: Path, python: Path, workers: str) -> str:
    """Run the tests of the pure rooms against the installed wheel and return pytest's closing line."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(sdist) as archive:
        archive.extractall(folder, **SAFE)
        (source,) = Path(folder).iterdir()
        environment = Environment(Path(folder, "environment"), python)
        environment.install(f"{wheel}[compression,arrow]", "--group", f"{source}/pyproject.toml:pure")
        used = environment.says("import splashdam; print(splashdam.__impl__, splashdam.__file__)", source)
        if not used.startswith(f"c {environment.folder}{os.sep}"):
            raise RunError(f"the tests would not run on the compiled twin of {wheel.name}, but on {used}")
        tests = [f"tests/{room}" for room in PURE_ROOMS]
        command = [environment.python, "-m", "pytest", "-m", "not slow", "-n", workers, *tests]
        return run(command, folder=source).rstrip().splitlines()[-1].strip("= ")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build for each requested Python that this machine has; return 1 if a step fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS, help=f"default: {' '.join(VERSIONS)}")
    parser.add_argument("--workers", default=str(os.cpu_count()), help="processes for the tests (all cores)")
    parser.add_argument("--no-tests", action="store_true", help="only build")
    given = parser.parse_args(arguments)
    shutil.rmtree(DIST, ignore_errors=True)
    try:
        sdist = build_sdist()
        print(f"{sdist.relative_to(ROOT)}  {sdist.stat().st_size // 1024:,} KiB", flush=True)
        for version in given.versions:
            python = find_python(version)
            if python is None:
                print(
                    f"Python {version} is not here: tools/find_python.sh {version} may fetch it", flush=True
                )
                continue
            wheel = build_wheel(sdist, python)
            extension = sum(each.file_size for each in compiled(wheel))
            print(
                f"{wheel.relative_to(ROOT)}  {wheel.stat().st_size // 1024:,} KiB,"
                f" of it compiled {extension // 1024:,} KiB unpacked",
                flush=True,
            )
            if not given.no_tests:
                print(f"    {test_wheel(wheel, sdist, python, given.workers)}", flush=True)
    except RunError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
