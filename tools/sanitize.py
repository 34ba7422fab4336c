"""Builds the compiled twins with gcc's address and undefined-behaviour sanitizers, and runs tests on them.

``make sanitize``, or ``python tools/sanitize.py tests/record -k columns`` for other tests than the usual
ones. The build goes to ``build/sanitize``; the installed twins stay as they are. An error ends the run with
a report of the faulty memory access. Leaks are not checked: the interpreter itself frees too little at its
end.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/sanitize"
SOURCES = {
    "splashdam.record.kernel._kernel_c": "record/kernel/_kernel_c.pyx",
    "splashdam.net.connection._writing_c": "net/connection/_writing_c.pyx",
}
SANITIZERS = "-fsanitize=address,undefined"
TESTS = ["tests/record", "tests/accumulator", "tests/client"]
THREADS = (
    "record or accumulator or thread or bulk or arrow or fast_path or intake or deferred or late or future"
    " or fork"
)
WRITING_TESTS = "tests/net/connection/test_writing.py"
FUZZ_SECONDS = "30"


def main() -> None:
    """Build, test and fuzz; exit with a message at the first failure."""
    chosen = _chosen_tests()
    libraries = [_library(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so.6")]
    BUILD.mkdir(parents=True, exist_ok=True)
    for module, source in SOURCES.items():
        _build(module, source)
    environment = os.environ | {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:abort_on_error=1",
        "PYTHONMALLOC": "malloc",  # else the sanitizer sees arenas, not objects
        "PYTHONPATH": os.pathsep.join((str(ROOT / "tools/sanitized"), str(ROOT / "tests"))),
        "SPLASHDAM_SANITIZED": os.pathsep.join(f"{module}={_built(module)}" for module in SOURCES),
    }
    environment.pop("SPLASHDAM_PURE", None)
    for module in SOURCES:
        used = f"import {module} as twin; assert twin.__file__ == {str(_built(module))!r}, twin.__file__"
        _run([sys.executable, "-c", used], environment)
    for tests in [chosen] if chosen else [[*TESTS, "-k", THREADS], [WRITING_TESTS]]:
        _run([sys.executable, "-m", "pytest", "-o", "timeout=900", *tests], environment)
    _run([sys.executable, "-m", "lab.fuzzing.records", "--seconds", FUZZ_SECONDS], environment)


def _chosen_tests() -> list[str]:
    """Return the arguments for pytest, the first of which is a path of tests; none for the usual ones."""
    parser = argparse.ArgumentParser(
        prog="python tools/sanitize.py", description=__doc__, usage="%(prog)s [-h] [TESTS [ARGUMENT …]]"
    )
    parser.add_argument("tests", nargs="?", metavar="TESTS", help="path of tests, below the root")
    parser.add_argument("more", nargs=argparse.REMAINDER, metavar="ARGUMENT", help="further ones of pytest")
    given = parser.parse_args()
    if given.tests is None:
        return []
    for each in (given.tests, *(more for more in given.more if more.startswith("tests/"))):
        if not (ROOT / each.partition("::")[0]).exists():
            parser.error(f"{each}: there is no such test")
    return [given.tests, *given.more]


def _library(name: str) -> str:
    """Return the path of one of gcc's libraries; exit if gcc or the library is missing."""
    if shutil.which("gcc") is None:
        sys.exit("make sanitize needs gcc, and it is not here (Debian: apt install gcc)")
    path = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(path).is_absolute():
        sys.exit(f"make sanitize needs {name}, and gcc has none (Debian: it comes with libgcc-<version>-dev)")
    return path


def _built(module: str) -> Path:
    return BUILD / f"{module.rpartition('.')[2]}{sysconfig.get_config_var('EXT_SUFFIX')}"


def _build(module: str, source: str) -> None:
    made = BUILD / f"{module.rpartition('.')[2]}.c"
    _run([sys.executable, "-m", "cython", "-3", "--module-name", module, source, "-o", str(made)])
    flags = ["-O1", "-g", "-fno-omit-frame-pointer", SANITIZERS, "-fno-sanitize-recover=all", "-fPIC"]
    include = sysconfig.get_paths()["include"]
    _run(["gcc", "-shared", *flags, f"-I{include}", str(made), "-o", str(_built(module))])


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    print("+", " ".join(command), flush=True)
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if done.returncode:
        sys.exit(f"make sanitize: {command[:3]} ended with status {done.returncode}")


if __name__ == "__main__":
    main()
