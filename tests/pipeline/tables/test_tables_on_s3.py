"""Tables in object storage: moto's server stands for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs
from support.pipeline.tables_kit import SCHEMA, every_format, offsets_of, rows, written

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.tables import existing_table, open_table

pytestmark = pytest.mark.s3

BUCKET = "lake"


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """Options of tables in an empty bucket; the catalog's are for Iceberg alone."""
    server = pytest.importorskip("moto.server", reason="needs moto[server]").ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    options = {
        "s3.endpoint": f"http://{host}:{port}",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.region": "us-east-1",
    }
    filesystem = fs.S3FileSystem(
        endpoint_override=f"{host}:{port}",
        scheme="http",
        access_key="key",
        secret_key="secret",
        region="us-east-1",
        allow_bucket_creation=True,
    )
    filesystem.create_dir(BUCKET)
    catalog = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{tmp_path}/catalog.sqlite"}
    yield {**options, **catalog}
    server.stop()


def of_format(table_format: str, storage: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in storage.items() if table_format == "iceberg" or name.startswith("s3.")
    }


@every_format
def test_a_batch_comes_in_once(table_format: str, storage: Mapping[str, str]) -> None:
    """As on disk: committed, repeated, read by others, orphans removed."""
    place = f"s3://{BUCKET}/{table_format}/table"
    storage = of_format(table_format, storage)
    table = open_table(table_format, place, schema=SCHEMA, partition_by=["topic"], options=storage)
    batches = [rows(range(10)), rows(range(10, 20), topic="u")]
    assert table.commit("q", 0, written(table, *batches))
    table.close()
    table = existing_table(table_format, place, storage)
    assert table.is_committed("q", 0)
    assert not table.commit("q", 0, written(table, *batches))
    found = pa.Table.from_batches(list(table.iter_rows(SCHEMA.names))).sort_by("offset")
    assert found.to_pylist() == pa.Table.from_batches(batches).to_pylist()
    assert len(table.remove_orphans(1 << 60)) == 2
    assert offsets_of(table) == list(range(20))
    table.close()


@every_format
def test_a_table_was_made_inside_another(table_format: str, storage: Mapping[str, str]) -> None:
    """In a bucket, too, and the other way round."""
    outer, storage = f"s3://{BUCKET}/{table_format}/outer", of_format(table_format, storage)
    open_table(table_format, f"{outer}/table", schema=SCHEMA, options=storage).close()
    with pytest.raises(KafkaConfigurationError, match=f"{outer} has an? .* table in it, at table"):
        open_table(table_format, outer, schema=SCHEMA, options=storage)
    with pytest.raises(KafkaConfigurationError, match=f"is in {outer}/table, which holds an? .* table"):
        open_table("parquet", f"{outer}/table/a/b", schema=SCHEMA, options=of_format("parquet", storage))
    open_table(table_format, f"{outer}/other", schema=SCHEMA, options=storage).close()
