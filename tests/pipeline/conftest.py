"""What the pipeline keeps for later ends with a test; deltalake's runtime stays."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from support.pipeline.spark_fixture import nothing_is_kept_for_later
from support.running import leftovers

__all__ = ["nothing_is_kept_for_later"]


@pytest.fixture(scope="session", autouse=True)
def _delta_runtime(tmp_path_factory: pytest.TempPathFactory) -> None:
    """deltalake's first write starts a runtime that nobody can end."""
    with suppress(ImportError):
        import deltalake
        import pyarrow as pa

        path: Path = tmp_path_factory.mktemp("delta")
        with leftovers.kept():
            deltalake.write_deltalake(path, pa.table({"a": [1]}))
