"""Makes ``support`` and the laboratory (``lab``) importable, says how all tests run, has patches checked."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

from support.pipeline.spark_fixture import spark
from support.running.patches import Patches

__all__ = ["spark"]

pytest_plugins = [
    "support.running.worker_groups",
    "support.running.running_order",
    "support.running.skip_reasons",
    "support.running.leftovers",
    "support.running.garbage",
    "support.running.fault_points",
]

# An example may take long on a busy machine, or under the sanitizers, and be right: there is no deadline, and
# the time that drawing takes is no failure.
# Everybody's run draws fewer examples; what it draws differs each time. `make test-rest` draws all of them.
for name, most in (("everyday", 25), ("thorough", 100)):
    settings.register_profile(
        name, deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=most
    )
settings.load_profile("everyday")

# A shell that starts the suite in the background ignores Ctrl-C, nohup ignores SIGHUP, and children inherit
# that; the tests of signals need both.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Workers share no Spark session: with ``--dist loadgroup`` one of them runs all that need it."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


_passed_key = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes which tests have passed: one that has failed, or was skipped, need not have hit its patches."""
    report = yield
    if call.when == "call":
        item.stash[_passed_key] = report.passed
    return report


@pytest.fixture
def monkeypatch(request: pytest.FixtureRequest) -> Iterator[Patches]:
    """pytest's own, whose patches have to be hit: see `patches`."""
    patches = Patches()
    yield patches
    patches.undo()
    if request.node.stash.get(_passed_key, False):
        patches.check()
