"""Measures a function in a process that does nothing else.

The suite's own process has threads: of brokers that an earlier test has stopped, of trio, of foreign clients.
What they allocate, open and close would be counted with what a test measures. So whatever is counted for
the whole process (memory that tracemalloc traces, descriptors, loaded modules, garbage) is counted in a
child, which has one thread. It is started once, at the first measurement.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import os
import pickle
import subprocess
import sys
import traceback
import tracemalloc
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_KAFKA_PYTHON = [f"-Wignore:{name} is deprecated:DeprecationWarning" for name in ("read_text", "open_text")]
"""It reads its schemas through a call that Python 3.11 deprecates."""

_child: subprocess.Popen[bytes] | None = None


def alone(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a function returns in the child. It stands at the top of a file; so do the classes of what goes
    in and comes out, which is pickled.

    Raises:
        AssertionError: it has raised; the child's traceback is the text.
    """
    result: T = _asked(function, args, kwargs, is_traced=False)
    return result


class Traced(NamedTuple):
    """What a call took of memory: at most, and after it, with its result, which nobody has let go."""

    peak_bytes: int
    held_bytes: int
    result: Any


def traced(function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Traced:
    """Calls it twice in the child, and measures the second time: the first one compiles and loads."""
    return Traced(*_asked(function, args, kwargs, is_traced=True))


def _asked(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, is_traced: bool
) -> Any:
    global _child  # noqa: PLW0603 (one for the whole session)
    origin = function.__module__, sys.modules[function.__module__].__file__
    # One inside the other: a file that cannot be imported there leaves nothing half read.
    call = pickle.dumps((origin, pickle.dumps((function, args, kwargs, is_traced))))
    if _child is None:
        _child = _started()
    assert _child.stdin is not None
    assert _child.stdout is not None
    try:
        _child.stdin.write(call)
        _child.stdin.flush()
        is_right, result = pickle.load(_child.stdout)
    except BaseException:  # nobody knows where the two are in their talk
        _end()
        raise
    if not is_right:
        _end()
        raise AssertionError(f"in the process of its own:\n{result}")
    return result


def files_open_below(directory: Path | str) -> list[str]:
    """Names of the files below a directory of the test's own that this process has open; Linux.

    All descriptors of the process would count those of other threads, too.
    """
    root = os.path.realpath(directory) + os.sep
    opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    return sorted(path.removeprefix(root) for path in opened if path.startswith(root))


def descriptor_count() -> int:
    """The number of open descriptors of this process, for functions that run alone; Linux."""
    return len(os.listdir("/proc/self/fd"))


def _started() -> subprocess.Popen[bytes]:
    from support.running import (
        leftovers,  # not at the top: the child runs this file, and needs neither pytest nor trio
    )

    with leftovers.kept():
        child = subprocess.Popen(
            [sys.executable, "-W", "error", *_KAFKA_PYTHON, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    assert child.stdin is not None
    pickle.dump(sys.path, child.stdin)
    return child


@atexit.register
def _end() -> None:
    global _child
    child, _child = _child, None
    if child is not None:
        child.kill()
        child.communicate()


def _load(name: str, file: str) -> None:
    """Imports a test's file under the name that pytest gave it, which may be no module's here."""
    if name in sys.modules or not Path(file).is_relative_to(Path(__file__).parents[2]):
        importlib.import_module(name)
        return
    for end in (at for at, letter in enumerate(name) if letter == "."):  # folders without an __init__.py
        sys.modules.setdefault(name[:end], types.ModuleType(name[:end]))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def _serve(calls: BinaryIO, answers: BinaryIO) -> None:
    sys.path[:] = pickle.load(calls)
    while True:
        try:
            origin, call = pickle.load(calls)
        except EOFError:
            return
        try:
            modules = len(sys.modules)
            if origin[0] not in sys.modules:
                gc.unfreeze()  # hypothesis asks who refers to what; frozen objects would not be told
            _load(*origin)
            function, args, kwargs, is_traced = pickle.loads(call)
            if len(sys.modules) != modules:  # what they hold stays, and need not be looked at by every call
                gc.collect()
                gc.freeze()
            call = _traced if is_traced else _called
            answer = pickle.dumps((True, call(function, args, kwargs)))
        except BaseException:
            answer = pickle.dumps((False, traceback.format_exc()))
        answers.write(answer)
        answers.flush()


def _called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    gc.collect()
    return function(*args, **kwargs)


def _traced(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    function(*args, **kwargs)
    gc.collect()
    tracemalloc.start()
    try:
        result = function(*args, **kwargs)
        gc.collect()
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak, held, result


if __name__ == "__main__":
    _answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a test prints is no answer
    _serve(sys.stdin.buffer, _answers)
