"""The hot kernels, as whichever twin serves: the compiled one where it is built, else the Python one.

``SPLASHDAM_PURE=1`` (any text) in the environment forces the Python twin; ``IMPL`` says which one is in use,
"c" or "python". Type checkers always see the Python twin. Each idea is a file with its twin beside it: the
Python one says what it does, the ``.pxi`` is compiled as a part of ``_kernel_c.pyx``.
May import: batch, checksum, damage, record.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from splashdam.record.kernel.outcomes.outcome_table import FAILED, PENDING, SPLIT, SUCCEEDED

__all__ = [
    "FAILED",
    "IMPL",
    "PENDING",
    "SPLIT",
    "SUCCEEDED",
    "BatchBuffer",
    "BatchOutcome",
    "BlobColumn",
    "BulkRecords",
    "ColumnBuffers",
    "FutureCell",
    "HeaderLists",
    "NowaitSends",
    "OffsetMap",
    "PartitionLane",
    "RunTails",
    "Sends",
    "StraightPath",
    "TopicLanes",
    "count_slot",
    "decode_records",
    "faulty_records",
    "find_by_time",
    "header_block",
    "murmur2",
    "record_size_upper_bound",
    "scan_records",
    "uncollected",
    "usual_batch",
    "zstd_frame",
]

if TYPE_CHECKING:
    from splashdam.record.kernel._kernel_py import *
else:
    if os.environ.get("SPLASHDAM_PURE"):
        from splashdam.record.kernel import _kernel_py as twin
    else:
        try:
            from splashdam.record.kernel import _kernel_c as twin
        except ImportError:
            from splashdam.record.kernel import _kernel_py as twin
    globals().update((name, getattr(twin, name)) for name in __all__ if name not in globals())
