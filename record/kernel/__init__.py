"""The hot kernels, as one of two twins: the compiled one where it is built, else the Python one.

``SPLASHDAM_PURE=1`` (any text) in the environment forces the Python twin; ``IMPL`` says which one is in use,
"c" or "python". Type checkers always see the Python twin. Each idea is a file with its twin beside it: the
Python one says what it does, the ``.pxi`` is compiled as a part of ``_kernel_c.pyx``. ``_kernel_py.py`` lists
what both export; ``tests/record/kernel/test_kernel_choice.py`` compares them.
May import: batch, checksum, damage, record.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from splashdam.record.kernel.outcomes.outcome_table import FAILED as FAILED
from splashdam.record.kernel.outcomes.outcome_table import PENDING as PENDING
from splashdam.record.kernel.outcomes.outcome_table import SPLIT as SPLIT
from splashdam.record.kernel.outcomes.outcome_table import SUCCEEDED as SUCCEEDED

if TYPE_CHECKING or os.environ.get("SPLASHDAM_PURE"):
    from splashdam.record.kernel._kernel_py import *
else:
    try:
        from splashdam.record.kernel import _kernel_c
    except ImportError:
        from splashdam.record.kernel._kernel_py import *
    else:
        # Not ``import *``: import-linter finds no source of a compiled module and counts it as the facade.
        globals().update({name: each for name, each in vars(_kernel_c).items() if not name.startswith("_")})
