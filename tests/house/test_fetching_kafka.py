"""Where Kafka's command line tools are not to be had: it is said what that skips, and it is skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.kafka import kafka_jars
from support.running.house_tree import ROOT

NEEDS_TOOLS, NEEDS_NONE = "tests/real_kafka/java/test_tools.py", "tests/real_kafka/clients/test_talking.py"

MAVEN = """#!/bin/sh
# Has the broker's jars, and those of the tools only where there is a file named "tools" beside it.
here=$(dirname "$0")
for each in "$@"; do
    case $each in
        -DoutputDirectory=*) directory=${each#*=} ;;
        tools) [ -e "$here/tools" ] || exit 1; name=kafka-tools-9.9.9.jar ;;
    esac
done
touch "$directory/kafka_2.13-9.9.9.jar" "$directory/kafka-tools-api-9.9.9.jar" "$directory/${name:-other.jar}"
"""


class Cache:
    """A directory of jars, and what `tools/fetch_kafka.sh` says about it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.jars = home / "cache"
        self.bin = home / "bin"
        self.bin.mkdir()
        (self.bin / "mvn").write_text(MAVEN)
        (self.bin / "mvn").chmod(0o755)

    def fetch(self, *versions: str) -> str:
        """Runs it, with that Maven."""
        done = subprocess.run(
            ["sh", ROOT / "tools/fetch_kafka.sh", self.jars, *versions],
            env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """An empty one."""
    return Cache(tmp_path)


def test_it_says_which_tests_are_skipped(cache: Cache) -> None:
    """When it fetches the broker alone, and every time after that: it was said once, and never again."""
    for said in (cache.fetch("9.9.9"), cache.fetch("9.9.9")):
        assert "its command line tools are not" in said
        assert NEEDS_TOOLS in said
        assert NEEDS_NONE not in said


def test_it_says_nothing_of_tools_that_are_there(cache: Cache) -> None:
    """No test is skipped for them."""
    (cache.bin / "tools").touch()
    assert cache.fetch("9.9.9") == "fetching Apache Kafka 9.9.9 …\n"
    assert cache.fetch("9.9.9") == ""


@pytest.fixture
def without_tools(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> str:
    """A version that is there with its broker alone; Java is played."""
    cache.fetch("9.9.9")
    monkeypatch.setenv("KAFKA_JARS", str(cache.jars))
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/java")
    return "9.9.9"


def test_tests_of_tools_are_skipped_with_that_reason(without_tools: str) -> None:
    """`kafka-tools-api`, which the broker needs, was taken for the tools."""
    with pytest.raises(pytest.skip.Exception, match=r"Kafka 9\.9\.9 is there without its command line tools"):
        kafka_jars.need_tools(without_tools)


def test_the_newest_with_tools(without_tools: str, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that was not fetched at all does not hide an older one, nor its own reason."""
    monkeypatch.setattr(kafka_jars, "VERSIONS", ("9.9.10", without_tools))
    with pytest.raises(pytest.skip.Exception, match=r"9\.9\.10 is not in .*; Kafka 9\.9\.9 is there without"):
        kafka_jars.newest_with_tools()
    (cache.jars / without_tools / "kafka-tools-9.9.9.jar").touch()
    assert kafka_jars.newest_with_tools() == without_tools
