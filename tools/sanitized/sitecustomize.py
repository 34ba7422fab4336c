"""Puts the sanitized kernel in the place of the usual one, in every Python that ``make sanitize`` starts."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location


class _SanitizedKernel:
    """Found before the finder of the editable installation."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name == "splashdam.record._kernel_c":
            return spec_from_file_location(name, os.environ["SPLASHDAM_SANITIZED_KERNEL"])
        return None


sys.meta_path.insert(0, _SanitizedKernel)  # type: ignore[arg-type]  # typeshed wants an instance
