"""Lets workers share out tests by groups, with ``--dist loadgroup``, whatever pytest and xdist there are.

A worker tells the group of a test behind its name: ``test_it.py::test_it@group``. xdist 3.8 writes that into
an attribute that pytest 9.2 no longer reads (pytest-xdist's issue 1386), says nothing, and deals the tests
out one by one: each worker then starts a JVM of its own.
"""

from __future__ import annotations

import pytest

_GROUPED = pytest.StashKey[str]()


# After xdist, and after whoever adds marks.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Names the groups where xdist has not; only a worker of ``--dist loadgroup`` has the option."""
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        group = "_".join(sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")}))
        if not group:
            continue
        suffix = f"@{group}"
        if not item.nodeid.endswith(suffix):
            item._id = item._id.parse(item.nodeid + suffix)
        item.stash[_GROUPED] = item.nodeid.removesuffix(suffix)


def name_without_group(item: pytest.Item) -> str:
    """What the test is called on a command line."""
    return item.stash.get(_GROUPED, item.nodeid)
