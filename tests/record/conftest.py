"""Runs the tests of the kernels on both twins, whatever ``SPLASHDAM_PURE`` says."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest


def _twin(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"splashdam.record.kernel.{name}")
    except ImportError:
        pytest.skip("the compiled twin is not built")


@pytest.fixture(scope="session", params=["_kernel_py", "_kernel_c"], ids=["python", "c"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """One twin after the other."""
    return _twin(request.param)


@pytest.fixture(scope="session")
def twins() -> tuple[ModuleType, ModuleType]:
    """Both twins, to compare them."""
    return _twin("_kernel_py"), _twin("_kernel_c")
