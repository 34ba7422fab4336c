"""Patches that have to be hit: one that nobody runs into fails its test, instead of proving nothing.

pytest's ``monkeypatch`` is replaced by `Patches` in all tests, so that no test can forget it. A function
that was put somewhere has to run, an ``async`` one has to be awaited, before its test ends well. Of values
and classes nobody can be told that they were used; a function of the patched module has to name them.

Two kinds of patch are not faults, and say so: ``guard`` must not be hit, ``perhaps`` may be.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import types
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.running.house_tree import ROOT

_NOT_GIVEN = object()


class UnhitPatchError(AssertionError):
    """A patch was made, and what it replaces was never used."""


class _Guard:
    """See `guard`."""

    def __init__(self, instead: Callable[..., Any]) -> None:
        self.instead = instead


class _Perhaps:
    """See `perhaps`."""

    def __init__(self, instead: object) -> None:
        self.instead = instead


def guard(what: str) -> Any:
    """A function that must not be called: its test fails if it is, even if somebody catches the error."""

    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError(f"called, which it must not be: {what}")

    return _Guard(refuse)


def perhaps(instead: Any, *, because: str) -> Any:
    """A patch that may remain unused.

    Args:
        instead: what is put there.
        because: the reason, for whoever reads the test.
    """
    assert because
    return _Perhaps(instead)


class _Planted:
    """One function that was put somewhere, and how often it has run."""

    def __init__(self, place: str, *, is_guard: bool) -> None:
        self.place = place
        self.hits = 0
        self.is_guard = is_guard

    def complaint(self) -> str | None:
        """What is wrong with it by the end of the test."""
        if self.is_guard:
            return f"{self.place} was called {self.hits} times, and must not be" if self.hits else None
        return None if self.hits else f"{self.place} was never called"

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, counted; an ``async`` one when it begins to run."""
        if inspect.iscoroutinefunction(function):

            async def awaited(*args: Any, **options: Any) -> Any:
                self.hits += 1
                return await function(*args, **options)

            counted: Callable[..., Any] = awaited
        else:

            def called(*args: Any, **options: Any) -> Any:
                self.hits += 1
                return function(*args, **options)

            counted = called
        functools.update_wrapper(counted, function)
        return counted


# `MonkeyPatch` is final for type checkers; its context() makes instances of whatever class it is called on.
class Patches(pytest.MonkeyPatch):  # type: ignore[misc]
    """As ``pytest.MonkeyPatch``; ``check`` raises if a function that ``setattr`` put somewhere never ran."""

    def __init__(self) -> None:
        super().__init__()
        self._planted: list[_Planted] = []

    @classmethod
    @contextmanager
    def context(cls) -> Generator[Patches]:
        """Patches for a block; one that ends without an error is checked."""
        patches = cls()
        try:
            yield patches
        finally:
            patches.undo()
        patches.check()

    def setattr(self, target: Any, name: Any, value: Any = _NOT_GIVEN, raising: bool = True) -> None:
        """As ``pytest.MonkeyPatch.setattr``.

        Raises:
            UnhitPatchError: the patch cannot be hit.
        """
        if value is _NOT_GIVEN:
            value = name
            target, name = _resolve(target)
        is_perhaps = isinstance(value, _Perhaps)
        is_guard = isinstance(value, _Guard)
        if isinstance(value, _Perhaps | _Guard):
            value = value.instead
        place = f"{getattr(target, '__name__', type(target).__name__)}.{name}"
        present = inspect.getattr_static(target, name, None)
        _refuse_another_kind(place, present, value)
        if is_perhaps or is_guard or not _runs(value):
            _refuse_an_unread_name(place, target, name)
        if not is_perhaps:
            planted = _Planted(place, is_guard=is_guard)
            wrapped = _counted(planted, target, present, value)
            if wrapped is not None:
                value = wrapped
                self._planted.append(planted)
        super().setattr(target, name, value, raising)

    def check(self) -> None:
        """Looks at every patch that was made, undone ones too.

        Raises:
            UnhitPatchError: one was never hit, or a guard was.
        """
        planted, self._planted = self._planted, []
        complaints = [found for each in planted if (found := each.complaint()) is not None]
        if complaints:
            raise UnhitPatchError(
                f"{'; '.join(complaints)}. A patch that nothing runs into proves nothing: patch what the"
                " product uses now, or say patches.guard() or patches.perhaps()"
            )


def _resolve(path: str) -> tuple[Any, str]:
    """The owner and the name of a dotted path, found as pytest finds it: by attributes first."""
    owner, _, name = path.rpartition(".")
    found: Any = importlib.import_module(owner.partition(".")[0])
    used = owner.partition(".")[0]
    for part in owner.split(".")[1:]:
        used += f".{part}"
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(used)
    return found, name


def _runs(value: object) -> bool:
    """Whether it is a function, or becomes one: these are counted."""
    if isinstance(value, classmethod | staticmethod | property):
        return True
    return callable(value) and not isinstance(value, type)


def _counted(planted: _Planted, target: object, present: object, value: Any) -> Any:
    """What is put there so that it counts; None where nothing can be counted."""
    if isinstance(value, classmethod | staticmethod):
        return type(value)(planted.wrap(value.__func__))
    if isinstance(value, property):
        return property(planted.wrap(value.fget), value.fset, value.fdel) if value.fget else None
    if isinstance(present, property) and not _runs(value):  # a value in a property's place
        return property(planted.wrap(lambda _self: value))
    if not _runs(value):
        return None
    # What is no function does not bind: a builtin, or a bound method, in a class gets no instance.
    binds = isinstance(value, types.FunctionType) or type(value).__name__ == "cython_function_or_method"
    wrapped = planted.wrap(value)
    return staticmethod(wrapped) if isinstance(target, type) and not binds else wrapped


def _function(value: object) -> object:
    return value.__func__ if isinstance(value, classmethod | staticmethod | types.MethodType) else value


def _refuse_another_kind(place: str, present: object, value: object) -> None:
    """A coroutine function in the place of a plain one: its caller does not await it, and it never runs."""
    present, value = _function(present), _function(value)
    if not (isinstance(present, types.FunctionType) and inspect.iscoroutinefunction(value)):
        return
    if not inspect.iscoroutinefunction(present) and not _may_return_awaitable(present):
        raise UnhitPatchError(f"{place} is a plain function, and a coroutine function is put in its place")


def _may_return_awaitable(function: types.FunctionType) -> bool:
    """Whether its annotation speaks of something that is awaited."""
    said = str(function.__annotations__.get("return", ""))
    return any(word in said for word in ("Awaitable", "Coroutine", "Answer", "Any"))


def _refuse_an_unread_name(place: str, target: object, name: str) -> None:
    """A value of a module that no function of the module reads, nor anybody as its attribute."""
    if not (isinstance(target, types.ModuleType) and target.__name__.startswith("splashdam.")):
        return
    path = getattr(target, "__file__", None) or ""
    if path.endswith(".py") and name not in _names_read(path) and not _is_read_elsewhere(target, name):
        raise UnhitPatchError(
            f"no function of {target.__name__} reads {name}: patch {place} where it is read"
        )


@functools.cache
def _names_read(path: str) -> frozenset[str]:
    """The names that functions of a file read when they run."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            body = node.body if isinstance(node.body, list) else [node.body]
            inside = (each for part in body for each in ast.walk(part))
            found.update(
                each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
            )
    return frozenset(found)


def _is_read_elsewhere(target: types.ModuleType, name: str) -> bool:
    """Whether another file of the product says ``target.name``, or imports it when it is used."""
    owner = target.__name__.rpartition(".")[2]
    return any((owner, name) in _read_of_others(path) for path, text in _product().items() if name in text)


@functools.cache
def _product() -> dict[str, str]:
    """The text of each of its files."""
    rooms = [folder for folder in ROOT.iterdir() if (folder / "__init__.py").exists()]
    return {str(path): path.read_text() for room in rooms for path in room.rglob("*.py")}


@functools.cache
def _read_of_others(path: str) -> frozenset[tuple[str, str]]:
    """What a file reads as ``owner.name``, and what its functions import when they run."""
    tree = ast.parse(Path(path).read_text())
    found = {
        (node.value.id, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom):
                    owner = (node.module or "").rpartition(".")[2]
                    found.update((owner, each.name) for each in node.names)
    return frozenset(found)
