"""How the suite runs: its order, what is left behind, and what is said of tests that did not run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from support.running.fault_points import FaultPoints
from support.running.house_tree import PYPROJECT, ROOT
from support.running.skip_reasons import MARKS

pytest_plugins = ["pytester"]

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest in this process, with the suite's own ways, on the files of the test."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # looking for them takes longer than the tests
    pytester.makeini(
        "[pytest]\nfilterwarnings = error\n"
        "addopts = -q -p no:cacheprovider -p xdist.plugin -p _hypothesis_pytestplugin\n"
        "markers =\n slow: s\n spark: s"
    )
    pytester.makeconftest(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        "pytest_plugins = ['support.running.worker_groups', 'support.running.running_order',"
        " 'support.running.skip_reasons', 'support.running.leftovers']"
    )
    return pytester.runpytest_inprocess


def names_run(result: pytest.RunResult) -> list[str]:
    return [line.split("::")[1].split()[0] for line in result.outlines if "PASSED" in line]


SEVERAL = "".join(f"def test_{letter}(): pass\n" for letter in "abcdefghij")


def test_a_seed_brings_its_order_back(run: Run, pytester: pytest.Pytester) -> None:
    """The seed that a run has drawn is printed with the option that takes it; another gives another order."""
    pytester.makepyfile(test_one=SEVERAL, test_two=SEVERAL)
    first = run("-vv")
    seed = re.search(r"again with --order-seed (\d+)", first.stdout.str())
    assert seed is not None
    again = run("-vv", "--order-seed", seed[1])
    assert names_run(again) == names_run(first)
    assert sorted(names_run(first)) == sorted([f"test_{letter}" for letter in "abcdefghij"] * 2)
    assert len({tuple(names_run(run("-vv", "--order-seed", str(number)))) for number in range(5)}) > 1


def test_files_are_not_mixed(run: Run, pytester: pytest.Pytester) -> None:
    """What a file's tests share is made once, and ended before the next file's."""
    shares = "import pytest\n@pytest.fixture(scope='module', autouse=True)\ndef once(): print('MADE')\n"
    pytester.makepyfile(test_one=shares + SEVERAL, test_two=shares + SEVERAL, test_three=shares + SEVERAL)
    assert run("-s").stdout.str().count("MADE") == 3


def test_tests_run_as_written_if_that_is_asked_for(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SEVERAL)
    assert names_run(run("-vv", "--order-seed", "none")) == [f"test_{letter}" for letter in "abcdefghij"]


def test_what_a_worker_ran_can_be_run_again(run: Run, pytester: pytest.Pytester) -> None:
    """After a failure the command is printed; its list has the worker's tests, in their order."""
    pytester.makepyfile(SEVERAL + "def test_k(): assert 0")
    result = run("-n", "1", "--dist", "worksteal", "--order-seed", "7")
    result.assert_outcomes(passed=10, failed=1)
    command = re.search(r"what gw0 ran, in its order: pytest (.*)", result.stdout.str())
    assert command is not None
    options = command[1].split()
    listed = Path(options[-1].removeprefix("--repeat=")).read_text().splitlines()
    again = run("-vv", *options)
    again.assert_outcomes(passed=10, failed=1)
    assert [line.split()[0] for line in again.outlines if re.search("PASSED|FAILED +", line)][:11] == listed


def test_a_group_is_one_workers(run: Run, pytester: pytest.Pytester) -> None:
    """All of its tests, of whatever file; each worker had some of them, and nobody was told."""
    grouped = (
        "import os, pathlib, pytest\n"
        "@pytest.mark.parametrize('number', range(10))\n"
        "@pytest.mark.xdist_group('shared')\n"
        "def test_it(number):\n"
        "    with pathlib.Path('workers.txt').open('a') as file:\n"
        "        print(os.environ['PYTEST_XDIST_WORKER'], file=file)\n"
    )
    pytester.makepyfile(test_one=grouped, test_two=grouped, test_three=SEVERAL)
    run("-n", "2", "--dist", "loadgroup").assert_outcomes(passed=30)
    workers = Path("workers.txt").read_text().split()
    assert (len(workers), len(set(workers))) == (20, 1)
    ran = "".join(each.read_text() for each in Path("build/test-order").glob("*.txt"))
    assert "test_it[9]\n" in ran  # a name that a command line takes
    assert "@shared" not in ran


LEAVES = {
    "a thread": (
        "import threading\n"
        "stop = threading.Event()\n"
        "def test_it(): threading.Thread(target=stop.wait, name='forgotten', daemon=True).start()\n",
        "*left behind: thread forgotten*",
    ),
    "a file": (
        "held = []\ndef test_it(): held.append(open(__file__))\n",
        "*left behind: descriptor *test_leaves.py*",
    ),
    "a socket": (
        "import socket\nheld = []\ndef test_it(): held.append(socket.socket())\n",
        "*left behind: descriptor *socket:*",
    ),
    "a child": (
        "import subprocess\nheld = []\ndef test_it(): held.append(subprocess.Popen(['sleep', '1000']))\n",
        "*left behind: child process * sleep 1000*",
    ),
    "a child that nobody has waited for": (
        "import subprocess\nheld = []\ndef test_it(): held.append(subprocess.Popen(['true']))\n",
        "*left behind: child process * has ended, unwaited for*",
    ),
}


@pytest.fixture
def tidy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of what is left there lasts long, so it need not be waited for."""
    from support.running import leftovers

    monkeypatch.setattr(leftovers, "_ENDING_SECONDS", 0.5)


@pytest.mark.parametrize("what", LEAVES)
@pytest.mark.usefixtures("tidy")
def test_what_a_test_leaves_behind_is_its_error(what: str, run: Run, pytester: pytest.Pytester) -> None:
    """It has passed, and fails all the same; the next one does not."""
    source, complaint = LEAVES[what]
    end = (
        "import pytest\n"
        "@pytest.fixture(scope='session', autouse=True)\n"
        "def end():\n"
        "    yield\n"
        "    if 'stop' in globals(): stop.set()\n"
        "    for each in globals().get('held', []):\n"
        "        if hasattr(each, 'kill'): each.kill(); each.wait()\n"
        "        else: each.close()\n"
        "def test_next(): pass\n"
    )
    pytester.makepyfile(test_leaves=source + end)
    result = run("--order-seed", "none")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines([complaint])
    result.stdout.no_fnmatch_line("*ERROR*test_next*")


def test_a_file_that_a_library_closes_a_moment_later_was_left_behind(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyarrow's threads do so, once in forty runs of a test that reads a table on a busy machine."""
    from support.running import leftovers

    held: list[IO[str]] = []
    monkeypatch.setattr(leftovers, "held", held, raising=False)
    monkeypatch.setattr(leftovers.time, "sleep", lambda _: held.pop().close())
    source = "from support.running import leftovers\ndef test_it(): leftovers.held.append(open(__file__))\n"
    pytester.makepyfile(source)
    run().assert_outcomes(passed=1)
    assert held == []


def test_a_test_that_fails_has_one_error(run: Run, pytester: pytest.Pytester) -> None:
    """What its traceback holds is not told as well, and is not the next test's."""
    source = "held = []\ndef test_it():\n    held.append(open(__file__))\n    assert 0\n"
    pytester.makepyfile(source + "def test_next(): pass\ndef test_after(): held[0].close()")
    run("--order-seed", "none").assert_outcomes(passed=2, failed=1)


def test_a_time_limit_within_a_run_of_trio_failed_all_runs_after_it(
    run: Run, pytester: pytest.Pytester
) -> None:
    """The limit is a signal, which mostly comes while trio waits: to trio its run then still went on."""
    pytester.makepyfile(
        """
        import trio
        from trio._core import _run

        waits = _run.TheIOManager.get_events
        left = [3]

        def limited(io, timeout):
            left[0] -= 1
            if left[0] == 0:
                raise TimeoutError
            return waits(io, min(timeout, 0.001))

        def test_that_takes_too_long(monkeypatch):
            monkeypatch.setattr(_run.TheIOManager, "get_events", limited)
            trio.run(trio.sleep_forever)

        def test_after(): trio.run(trio.sleep, 0)
        """
    )
    run("--order-seed", "none").assert_outcomes(passed=1, failed=1)


def test_what_several_tests_share_may_stay_until_it_ends(run: Run, pytester: pytest.Pytester) -> None:
    """Afterwards it must be gone: the test after which it ended names what is left."""
    shares = (
        "import pytest\n"
        "@pytest.fixture(scope='class')\n"
        "def shared():\n"
        "    held.append(open(__file__))\n"
        "    yield\n"
        "    {end}\n"
        "held = []\n"
        "class TestShared:\n"
        "    def test_a(self, shared): pass\n"
        "    def test_b(self, shared): pass\n"
        "def test_after(): held[0].close()\n"
    )
    pytester.makepyfile(test_one=shares.format(end="held[0].close()"))
    run("--order-seed", "none").assert_outcomes(passed=3)
    pytester.makepyfile(test_one=shares.format(end="pass"))
    result = run("--order-seed", "none")
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of *test_b*"])


def test_a_cycle_that_is_not_closed_warns_in_its_own_test(run: Run, pytester: pytest.Pytester) -> None:
    """Warnings that nobody can catch, of collected objects and of threads, fail the test they come from."""
    pytester.makepyfile(
        """
        import gc, threading

        gc.disable()

        def test_cycle():
            cycle = []
            cycle.append([open(__file__), cycle])

        def test_thread():
            def fail(): raise ValueError("in the thread")
            thread = threading.Thread(target=fail)
            thread.start()
            thread.join()

        def test_last():
            gc.enable()
        """
    )
    result = run("--order-seed", "none")
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_cycle*", "*ResourceWarning: unclosed file*"])
    result.stdout.fnmatch_lines(["*test_thread*", "*ValueError: in the thread*"])
    result.assert_outcomes(passed=2, failed=1, errors=1)


def test_reasons_of_skips_are_counted(run: Run, pytester: pytest.Pytester) -> None:
    """One line for each reason, of workers too; what the command line left out is counted by marks."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(3))
        def test_it(number): pytest.skip("needs what is not here")

        @pytest.mark.skipif(True, reason="another system")
        def test_other(): pass

        @pytest.mark.slow
        @pytest.mark.spark
        def test_slow(): pass
        """
    )
    for options in ((), ("-n", "2")):
        result = run("-m", "not slow", *options)
        result.stdout.fnmatch_lines(
            [
                "skipped     3: needs what is not here",
                "skipped     1: another system",
                "left out    1: slow and spark",
            ]
        )


def test_tests_of_the_browser_were_left_out_without_a_mark() -> None:
    """Every mark of the project leaves tests out of some run, and is named there."""
    declared = PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]
    assert set(MARKS) == {line.partition(":")[0] for line in declared}


def test_the_three_thirds_are_all_fault_points() -> None:
    """And no point is in two of them."""
    every = range(0, 100, 7)
    taken = [each for first in range(3) for each in FaultPoints(first, 3).of(every)]
    assert sorted(taken) == list(every)
    assert FaultPoints(0, 1).of(every) == every
