"""Runs the tests in random order, and says how to run them in that order again.

Files are shuffled, and the tests of a file; a file's tests stay together, and with them the fixtures that
they share. The seed is hypothesis' too. Of several workers each keeps a list of what it ran in
`build/test-order`: which of them runs which test is a matter of time, so the seed alone does not bring
back what one worker did.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from support.running.worker_groups import name_without_group

LISTS = Path("build/test-order")
AS_WRITTEN = "none"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares the two ways to get an order again."""
    group = parser.getgroup("order", "the order of the tests")
    group.addoption("--order-seed", help=f"as in the run that printed this number; {AS_WRITTEN}: as written")
    group.addoption("--repeat", metavar="FILE", help="only the tests that FILE names, in its order")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draws the seed, before hypothesis looks for its own; workers are given it."""
    given: str | None = config.getoption("--order-seed")
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    seed = given or (worker["order_seed"] if worker else str(random.SystemRandom().randrange(1, 1_000_000)))
    if seed != AS_WRITTEN and config.getoption("--hypothesis-seed", None) is None:
        config.option.hypothesis_seed = seed
    order = Order(seed, config.getoption("--repeat"))
    config.pluginmanager.register(order, "running-order")
    if worker:
        config.pluginmanager.register(Ran(config.rootpath / LISTS / f"{worker['workerid']}.txt"), "ran")
    else:
        config.pluginmanager.register(ForWorkers(order), "order-for-workers")


class Order:
    """How the tests of one run follow each other."""

    def __init__(self, seed: str, listed: str | None) -> None:
        self.seed = seed
        self.listed = listed

    # First, so that pytest brings together again what shares a fixture that is made for each parameter.
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Shuffles, or takes what the list names."""
        if self.listed is not None:
            known = {item.nodeid: item for item in items}
            wanted = dict.fromkeys(Path(self.listed).read_text().splitlines())
            config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
            items[:] = [known[name] for name in wanted if name in known]
        elif self.seed != AS_WRITTEN:
            items[:] = shuffled(items, self.seed)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The line that brings the order back; after a failure, for each worker that had one."""
        if self.listed is not None or self.seed == AS_WRITTEN:
            return
        terminalreporter.write_line(f"order of the tests: again with --order-seed {self.seed}")
        failed = terminalreporter.stats.get("failed", []) + terminalreporter.stats.get("error", [])
        for worker in sorted({name for each in failed if (name := getattr(each, "worker_id", None))}):
            terminalreporter.write_line(
                f"what {worker} ran, in its order: "
                # The seed draws examples and fault points; the file has the order. "=": pytest takes a file
                # that stands alone for a test, and then does not find this option.
                f"pytest -n 0 --order-seed {self.seed} --repeat={LISTS / worker}.txt"
            )


def shuffled(items: list[pytest.Item], seed: str) -> list[pytest.Item]:
    """The same for the same tests and seed, in whatever process."""
    by_file: dict[Path, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.path, []).append(item)
    draw = random.Random(seed)
    files = list(by_file.values())
    draw.shuffle(files)
    for tests in files:
        draw.shuffle(tests)
    return [item for tests in files for item in tests]


class ForWorkers:
    """Gives the seed to workers that xdist starts."""

    def __init__(self, order: Order) -> None:
        self._order = order

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Before the worker begins."""
        node.workerinput["order_seed"] = self._order.seed


class Ran:
    """The list of what a worker runs, line by line: one that dies has left it, too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._list: TextIO | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Notes the test before it runs."""
        if self._list is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._list = self._path.open("w", buffering=1)
        self._list.write(name_without_group(item) + os.linesep)
        return (yield)

    def pytest_unconfigure(self) -> None:
        """Ends the list."""
        if self._list is not None:
            self._list.close()
