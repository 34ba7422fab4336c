"""Replaces the usual twins by the sanitized ones, in every Python that ``make sanitize`` starts."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location

_BUILT = dict(entry.split("=", 1) for entry in os.environ["SPLASHDAM_SANITIZED"].split(os.pathsep))


class _SanitizedTwins:
    """A finder of the sanitized twins, which comes before the finder of the editable installation."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        return spec_from_file_location(name, _BUILT[name]) if name in _BUILT else None


sys.meta_path.insert(0, _SanitizedTwins)  # type: ignore[arg-type]  # typeshed wants an instance
