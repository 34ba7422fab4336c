"""Small files through Hadoop's filesystems: what they refuse without raising is raised."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from splashdam.pipeline.jobs.window import HadoopFolder, numbered


class FakePath(str):
    """``org.apache.hadoop.fs.Path``, as far as it is used."""

    files: FakeFiles

    def __new__(cls, parent: str, name: str = "") -> FakePath:
        return super().__new__(cls, f"{parent}/{name}" if name else parent)

    def getFileSystem(self, _configuration: object) -> FakeFiles:
        return self.files

    def toString(self) -> str:
        return str(self)


class FakeFiles:
    """Files whose content does not matter; renaming may be refused, as HDFS does where the name is taken."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.renames = True

    def create(self, path: str, _overwrite: bool) -> Any:
        self.there.add(path)
        return SimpleNamespace(write=len, close=bool)

    def rename(self, path: str, place: str) -> bool:
        if self.renames:
            self.there.remove(path)
            self.there.add(place)
        return self.renames

    def exists(self, path: str) -> bool:
        return path in self.there


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> FakeFiles:
    """Where `folder` writes."""
    found = FakeFiles()
    monkeypatch.setattr(FakePath, "files", found, raising=False)
    return found


@pytest.fixture
def folder(files: FakeFiles) -> HadoopFolder:
    """On the fake."""
    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=FakePath))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)))
    context = SimpleNamespace(_jsc=SimpleNamespace(hadoopConfiguration=dict))
    spark: Any = SimpleNamespace(_jvm=jvm, sparkContext=context)
    return HadoopFolder(spark, "place")


def test_refused_rename_was_passed_over(folder: HadoopFolder, files: FakeFiles) -> None:
    """The state of a batch was missing then, without a word; a file that is there already is no failure."""
    folder.write("0.json", "{}")
    assert files.there == {"place/0.json"}
    files.renames = False
    folder.write("0.json", "{}")
    with pytest.raises(OSError, match=r"place/1\.json could not be written"):
        folder.write("1.json", "{}")


def test_numbers_of_names() -> None:
    """Those that fit, by size and not by letters."""
    assert numbered(["10.json", "9.json", "9.closed", ".8.json.tmp"], r"(\d+)\.json") == [9, 10]
