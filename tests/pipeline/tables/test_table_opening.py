"""Folders that hold something else, and logs that are damaged: told, and left as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pipeline.tables_kit import SCHEMA, every_format, new_table

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.tables import FORMATS, check_table, existing_table, open_table
from splashdam.pipeline.tables.locations import Location
from splashdam.pipeline.tables.table import TableFailedError, TableMissingError


@every_format
def test_a_folder_with_other_files_is_left_alone(table_format: str, tmp_path: Path) -> None:
    """A table was made among files of something else, and a foreign ``x.parquet`` was read as its rows."""
    foreign = tmp_path / "x.parquet"
    foreign.write_bytes(b"something else")
    with pytest.raises(KafkaConfigurationError, match=r"belong to no table, such as x\.parquet"):
        open_table(table_format, tmp_path, schema=SCHEMA)
    assert list(tmp_path.iterdir()) == [foreign]


@every_format
def test_a_table_of_another_format_is_left_alone(table_format: str, tmp_path: Path) -> None:
    """A second table was made in the folder of the first, and who read the first did not see its rows."""
    table = new_table(table_format, tmp_path)
    table.close()
    place = table.location.uri
    before = sorted(Path(place).iterdir())
    for other in set(FORMATS) - {table_format}:
        told = f"holds a table of the format {table_format}, not {other}"
        with pytest.raises(TableMissingError, match=told):
            open_table(other, place, schema=SCHEMA)
        with pytest.raises(TableMissingError, match=told):
            existing_table(other, place)
    assert sorted(Path(place).iterdir()) == before


@every_format
def test_a_table_was_made_inside_another(table_format: str, tmp_path: Path) -> None:
    """Readers of the outer one saw the rows of the inner one; two commands had made them."""
    place = Path((table := new_table(table_format, tmp_path)).location.uri)
    table.close()
    (tmp_path / "link").symlink_to(place)
    for inner in (
        place / "inner",
        place / "date=2026-01-01/inner",
        place / "_commits/x",
        tmp_path / "link/x",
    ):
        for opened in (open_table, check_table):
            with pytest.raises(
                KafkaConfigurationError, match=f"is in {place}, which holds an? .* table: its"
            ):
                opened("parquet", inner, schema=SCHEMA)
    for opened in (open_table, check_table):
        with pytest.raises(KafkaConfigurationError, match=f"{tmp_path} has an? .* table in it, at "):
            opened(table_format, tmp_path, schema=SCHEMA)
    assert not (place / "inner").exists()
    for apart in (tmp_path / "table2", place / "_inner", place / ".inner"):
        open_table("parquet", apart, schema=SCHEMA).close()
    check_table(table_format, place, schema=SCHEMA)


def test_a_table_that_holds_another_is_told(tmp_path: Path) -> None:
    """Older versions made the inner one."""
    outer = new_table("parquet", tmp_path)
    inner = Path(outer.location.uri) / "date=2026-01-01/inner"
    new_table("parquet", tmp_path / "else").close()
    inner.parent.mkdir()
    (tmp_path / "else/table").rename(inner)
    outer.close()
    with pytest.raises(KafkaConfigurationError, match=f"has a Parquet table in it, at {inner}: move that"):
        check_table("parquet", outer.location.uri, schema=SCHEMA)
    with pytest.raises(
        KafkaConfigurationError, match=f"{inner} is in {outer.location.uri}, which holds a Pa"
    ):
        check_table("parquet", inner, schema=SCHEMA)


def test_output_of_a_stream_of_spark_s_is_no_place_for_a_table(tmp_path: Path) -> None:
    """Its readers take files by their names in ``_spark_metadata``; those of other tables do not."""
    (tmp_path / "out/_spark_metadata").mkdir(parents=True)
    with pytest.raises(KafkaConfigurationError, match=f"is in {tmp_path}/out, which holds files of a stream"):
        open_table("parquet", tmp_path / "out/inner", schema=SCHEMA)


def test_a_folder_that_cannot_be_looked_around_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may write to a prefix of a bucket may not always list what is above it."""
    real = Location.of(tmp_path).filesystem

    class Files:
        """Those of the disk, of which only one folder may be looked into."""

        def get_file_info(self, asked: object) -> object:
            if isinstance(asked, list):
                raise PermissionError("ACCESS_DENIED")
            return real.get_file_info(asked)

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    monkeypatch.setattr(Location, "filesystem", Files())
    open_table("parquet", tmp_path / "table", schema=SCHEMA).close()


@every_format
def test_a_table_was_made_in_a_broker_s_directory(table_format: str, tmp_path: Path) -> None:
    """Kafka does not start on a data directory with such a folder."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/meta.properties").write_text("")
    for place in ("data", "data/table", "data/_tables/a"):
        with pytest.raises(
            KafkaConfigurationError, match=f"is in {tmp_path}/data, the data directory of a br"
        ):
            open_table(table_format, tmp_path / place, schema=SCHEMA)


@every_format
def test_a_table_that_was_begun_is_finished(table_format: str, tmp_path: Path) -> None:
    """The leftovers of a driver that is killed while it creates the table do not block the next one."""
    for name in ("_delta_log", "metadata") if table_format == "iceberg" else ("_delta_log",):
        if name != "_delta_log" or table_format == "delta":
            (tmp_path / name).mkdir()
    (tmp_path / "_common_metadata.0.tmp").write_bytes(b"")
    open_table(table_format, tmp_path, schema=SCHEMA).close()
    existing_table(table_format, tmp_path).close()


@every_format
def test_a_damaged_log_is_named(table_format: str, tmp_path: Path) -> None:
    """Each format's package had errors of its own, which the command showed as tracebacks."""
    table = new_table(table_format, tmp_path)
    table.close()
    place = Path(table.location.uri)
    logs = {"parquet": "_common_metadata", "delta": "_delta_log/*.json", "iceberg": "catalog.sqlite"}
    (log,) = place.glob(logs[table_format])
    log.write_bytes(b"{ is no log" * 100)
    with pytest.raises(TableFailedError, match=f"{place} cannot be opened: "):
        existing_table(table_format, place)


def test_a_bucket_that_cannot_be_reached_was_to_be_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text was the object store's, with advice about a damaged table."""

    def unreachable(*_: object) -> bytes:
        raise OSError("AWS Error NETWORK_CONNECTION")

    monkeypatch.setattr(Location, "read_bytes", unreachable)
    with pytest.raises(
        TableFailedError, match=r"s3://b/t cannot be looked into: AWS.*check its name"
    ) as failed:
        check_table("parquet", "s3://b/t")
    assert "repair" not in str(failed.value)


def test_a_folder_with_points_in_its_name(tmp_path: Path) -> None:
    """Iceberg took them for namespaces."""
    pytest.importorskip("pyiceberg", reason="needs splashdam[iceberg]")
    open_table("iceberg", tmp_path / "flights.v1", schema=SCHEMA).close()
    existing_table("iceberg", tmp_path / "flights.v1").close()
