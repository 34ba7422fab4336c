"""Where a stream began is said once and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import TopicPartition
from splashdam.pipeline.local_source.stream_reader import InitialOffsets

pytest.importorskip("pyarrow", reason="needs splashdam[spark]")

OFFSETS = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 7}
MOVED = {TopicPartition("t", 0): 6, TopicPartition("t", 1): 8}
READS = "subscribe=t"


@pytest.mark.parametrize("step", ["from_uri", "get_file_info"])
def test_a_store_that_cannot_be_reached_asked_for_another_package(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow knows the scheme and could not reach the bucket; the text was about fsspec's package for it."""
    import pyarrow.fs

    class Files:
        """Of a bucket; its keys are refused."""

        def get_file_info(self, _path: str) -> None:
            raise OSError("AWS Error ACCESS_DENIED")

    class Arrow:
        """Finds the bucket, or does not."""

        @staticmethod
        def from_uri(uri: str) -> tuple[Files, str]:
            if step == "from_uri":
                raise OSError("AWS Error NETWORK_CONNECTION")
            return Files(), uri.removeprefix("s3://")

    monkeypatch.setattr(pyarrow.fs, "FileSystem", Arrow)
    with pytest.raises(
        KafkaConfigurationError, match=r"s3://b/c.* looked into: AWS Error .*What to do: check"
    ):
        InitialOffsets("s3://b/c", READS).found()


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_the_first_answer_stays(tmp_path: Path, scheme: str) -> None:
    """Trap 1: later questions, also of another process, get the same answer, although the head has moved."""
    location = f"{scheme}{tmp_path}/of/one/query"
    assert InitialOffsets(location, READS).kept(lambda: OFFSETS) == OFFSETS
    assert InitialOffsets(location, READS).kept(lambda: MOVED) == OFFSETS
    assert [path.name for path in (tmp_path / "of/one/query").iterdir()] == ["initial-offsets.json"]


def test_a_folder_with_any_name(tmp_path: Path) -> None:
    """A path is no URI: blanks and signs are part of it."""
    folder = tmp_path / "a b%20#c"
    InitialOffsets(str(folder), READS).kept(lambda: OFFSETS)
    assert (folder / "initial-offsets.json").exists()


def test_object_storage() -> None:
    """Any filesystem that fsspec knows; one in memory here."""
    pytest.importorskip("fsspec", reason="needs fsspec")
    location = "memory://queries/one"
    assert InitialOffsets(location, READS).kept(lambda: OFFSETS) == OFFSETS
    assert InitialOffsets(location, READS).kept(lambda: MOVED) == OFFSETS


def test_a_store_that_arrow_cannot_reach_was_not_tried_through_fsspec(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A package of fsspec may know an endpoint that Arrow does not, and worked before."""
    pytest.importorskip("fsspec", reason="needs fsspec")
    import pyarrow.fs

    class Arrow:
        """Knows the scheme, and not the store."""

        @staticmethod
        def from_uri(_uri: str) -> None:
            raise OSError("AWS Error NETWORK_CONNECTION")

    monkeypatch.setattr(pyarrow.fs, "FileSystem", Arrow)
    location = "memory://queries/unreached"
    assert InitialOffsets(location, READS).kept(lambda: OFFSETS) == OFFSETS
    assert InitialOffsets(location, READS).found() == OFFSETS


def test_a_container_of_azure_that_cannot_be_reached_was_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Arrow raises its own base class then, with an address of its manual in a line of its own."""
    import pyarrow.fs

    class Arrow:
        """Without credentials."""

        @staticmethod
        def from_uri(_uri: str) -> None:
            raise pyarrow.ArrowException("Unknown error: Failed to get token.\nSee the manual.")

    monkeypatch.setattr(pyarrow.fs, "FileSystem", Arrow)
    said = r"abfss://c/x'?: cannot be looked into: Unknown error: Failed to get token\. See the manual\. What"
    with pytest.raises(KafkaConfigurationError, match=said):
        InitialOffsets("abfss://c/x", READS).found()


def test_another_query_has_a_place_of_its_own(tmp_path: Path) -> None:
    """Its offsets would be the first one's."""
    InitialOffsets(str(tmp_path), READS).kept(lambda: OFFSETS)
    with pytest.raises(
        KafkaConfigurationError, match="to a query that reads subscribe=t, this one reads assign="
    ):
        InitialOffsets(str(tmp_path), "assign=…").kept(lambda: MOVED)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version":1,"reads":"subscribe=t","offsets":{"t":5}}'])
def test_a_file_that_is_none_of_ours(tmp_path: Path, text: str) -> None:
    """Is named, and not taken for a new query."""
    (tmp_path / "initial-offsets.json").write_text(text)
    with pytest.raises(KafkaConfigurationError, match=r"not a file of initial|Is the checkpoint that of"):
        InitialOffsets(str(tmp_path), READS).kept(lambda: OFFSETS)


def test_an_unknown_place() -> None:
    """The option is named."""
    with pytest.raises(KafkaConfigurationError, match="initialOffsetsLocation='gopher://x/y'"):
        InitialOffsets("gopher://x/y", READS).kept(lambda: OFFSETS)
