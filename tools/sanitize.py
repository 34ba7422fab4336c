"""Builds the compiled kernel with gcc's address and undefined-behaviour sanitizers and runs tests with it.

``make sanitize``, or ``python tools/sanitize.py tests/record -k columns`` for other tests than the usual
ones. The build goes to ``build/sanitize``; the installed kernel stays as it is. An error ends the run with
a report of the memory at fault. Leaks are not looked for: the interpreter itself leaves too much behind at
its end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/sanitize"
MODULE = "splashdam.record._kernel_c"
KERNEL = BUILD / f"_kernel_c{sysconfig.get_config_var('EXT_SUFFIX')}"
SANITIZERS = "-fsanitize=address,undefined"
TESTS = ["tests/record", "tests/accumulator", "tests/client"]
THREADS = "record or accumulator or thread or bulk or arrow or straight or intake or late or future or fork"
FUZZ_SECONDS = "30"


def main() -> None:
    """Builds, tests, fuzzes; ends with the status of what failed."""
    libraries = [_library(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so.6")]
    _build()
    environment = os.environ | {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:abort_on_error=1",
        "PYTHONMALLOC": "malloc",  # else the sanitizer sees arenas, not objects
        "PYTHONPATH": str(ROOT / "tools/sanitized"),
        "SPLASHDAM_SANITIZED_KERNEL": str(KERNEL),
    }
    environment.pop("SPLASHDAM_PURE", None)
    used = f"import {MODULE} as kernel; assert kernel.__file__ == {str(KERNEL)!r}, kernel.__file__"
    _run([sys.executable, "-c", used], environment)
    chosen = sys.argv[1:] or [*TESTS, "-k", THREADS]
    _run([sys.executable, "-m", "pytest", "-o", "timeout=900", *chosen], environment)
    _run([sys.executable, "tests/fuzz_records.py", "--seconds", FUZZ_SECONDS], environment)


def _library(name: str) -> str:
    """Where gcc has it."""
    if shutil.which("gcc") is None:
        sys.exit("make sanitize needs gcc, and it is not here (Debian: apt install gcc)")
    path = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(path).is_absolute():
        sys.exit(f"make sanitize needs {name}, and gcc has none (Debian: it comes with libgcc-<version>-dev)")
    return path


def _build() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    source = BUILD / "_kernel_c.c"
    _run(
        [
            sys.executable,
            "-m",
            "cython",
            "-3",
            "--module-name",
            MODULE,
            "record/_kernel_c.pyx",
            "-o",
            str(source),
        ]
    )
    flags = ["-O1", "-g", "-fno-omit-frame-pointer", SANITIZERS, "-fno-sanitize-recover=all", "-fPIC"]
    include = sysconfig.get_paths()["include"]
    _run(["gcc", "-shared", *flags, f"-I{include}", str(source), "-o", str(KERNEL)])


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    print("+", " ".join(command), flush=True)
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if done.returncode:
        sys.exit(f"make sanitize: {command[:3]} ended with status {done.returncode}")


if __name__ == "__main__":
    main()
