"""Fetches and builds the drivers in other languages, once, into a cache.

Each driver needs the tools of its language and the package registry of its client. If something is missing,
the error names it, and the contract runs without that client.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from splashdam.testing.contract.available_clients import Driver, MissingToolError

DRIVERS = Path(__file__).parent
"""The folder with the drivers' sources."""

KAFKAJS = "2.2.4"
FRANZ_GO = "1.22.2"
FRANZ_GO_ADMIN = "1.19.0"
JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")


def cache_directory() -> Path:
    """Return ``SPLASHDAM_CACHE``, or a folder of the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SPLASHDAM_CACHE") or Path(home) / "splashdam") / "contract"


def kafkajs(cache: Path) -> Driver:
    """Build the driver for kafkajs, from npm.

    Raises:
        MissingToolError: node or npm is not installed, or npm cannot fetch kafkajs.
    """
    node, npm = _need("node"), _need("npm")

    def build(directory: Path) -> None:
        _run([npm, "install", "--no-save", "--no-audit", "--no-fund", f"kafkajs@{KAFKAJS}"], directory)

    source = DRIVERS / "kafkajs_driver.js"
    directory = _built(cache / f"kafkajs-{KAFKAJS}", [source], build)
    return Driver((node, source.name), directory)


def franz_go(cache: Path) -> Driver:
    """Build the driver for franz-go, a Go module.

    Raises:
        MissingToolError: Go is not installed, or cannot fetch franz-go.
    """
    go = _need("go")

    def build(directory: Path) -> None:
        _run([go, "mod", "init", "splashdam.test/driver"], directory)
        wanted = (
            f"github.com/twmb/franz-go@v{FRANZ_GO}",
            f"github.com/twmb/franz-go/pkg/kadm@v{FRANZ_GO_ADMIN}",
        )
        _run([go, "get", *wanted], directory)
        _run([go, "build", "-o", "driver", "."], directory)

    directory = _built(cache / f"franz-go-{FRANZ_GO}", [DRIVERS / "franz_go_driver.go"], build)
    return Driver((str(directory / "driver"),), directory)


def java(cache: Path, jars: Path) -> Driver:
    """Build the driver for Kafka's own clients.

    Args:
        cache: folder for the built driver.
        jars: folder with Kafka's jars; its name is their version.

    Raises:
        MissingToolError: the folder, Java or the Java compiler is missing.
    """
    if not jars.is_dir():
        raise MissingToolError(f"{jars} is missing: `make kafka` fetches Kafka's jars")
    runtime, compiler = _need("java"), _need("javac")

    def build(directory: Path) -> None:
        _run(
            [compiler, "-nowarn", "-Xlint:none", "-d", ".", "-cp", f"{jars}/*", "JavaDriver.java"], directory
        )

    directory = _built(cache / f"java-{jars.name}", [DRIVERS / "JavaDriver.java"], build)
    return Driver((runtime, *JVM, "-cp", f"{jars}/*:{directory}", "JavaDriver", jars.name), directory)


def all_drivers(jars: Sequence[Path], cache: Path | None = None) -> Mapping[str, Callable[[], Driver]]:
    """Return functions that build the drivers, by the client's name; Java has one for each folder of jars."""
    cache = cache or cache_directory()
    return {
        "kafkajs": partial(kafkajs, cache),
        "franz-go": partial(franz_go, cache),
        **{f"java {each.name}": partial(java, cache, each) for each in jars},
    }


def _need(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        raise MissingToolError(f"{tool} is not installed")
    return found


def _run(command: Sequence[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise MissingToolError(f"{' '.join(command[:3])} … failed: {output[-1] if output else 'no output'}")


def _built(directory: Path, sources: Sequence[Path], build: Callable[[Path], None]) -> Path:
    """Return the directory in the cache; build it, all or nothing, if it is missing or its sources differ."""
    if all(_is_same(each, directory / each.name) for each in sources):
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".building-", dir=directory.parent))
    try:
        for each in sources:
            shutil.copy2(each, fresh)
        build(fresh)
        shutil.rmtree(directory, ignore_errors=True)
        with suppress(OSError):  # another process has built it meanwhile
            fresh.rename(directory)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return directory


def _is_same(source: Path, copy: Path) -> bool:
    return copy.is_file() and copy.read_bytes() == source.read_bytes()
