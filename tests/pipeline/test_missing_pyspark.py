"""Spark is an extra: without it, one sentence says what to install."""

from __future__ import annotations

import sys

import pytest

from splashdam.pipeline import spark_session


def test_a_session_without_pyspark_named_no_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a ModuleNotFoundError of a line inside the package."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ImportError, match=r"needs pyspark: pip install 'splashdam\[spark\]'"):
        spark_session()
