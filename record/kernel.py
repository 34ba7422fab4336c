"""Chooses the twin: the compiled kernel where it is built, else the Python one.

``SPLASHDAM_PURE=1`` (any text) in the environment forces the Python twin; ``IMPL`` says which one is in use,
"c" or "python". Type checkers always see the Python twin.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from splashdam.record.outcome_table import FAILED, PENDING, SPLIT, SUCCEEDED

if TYPE_CHECKING:
    from splashdam.record._kernel_py import (
        IMPL,
        BatchBuffer,
        BatchOutcome,
        BlobColumn,
        BulkRecords,
        ColumnBuffers,
        FutureCell,
        HeaderLists,
        NowaitSends,
        OffsetMap,
        PartitionLane,
        RunTails,
        Sends,
        StraightPath,
        TopicLanes,
        count_slot,
        decode_records,
        faulty_records,
        find_by_time,
        header_block,
        murmur2,
        record_size_upper_bound,
        scan_records,
        uncollected,
        usual_batch,
        zstd_frame,
    )
else:
    if os.environ.get("SPLASHDAM_PURE"):
        from splashdam.record import _kernel_py as twin
    else:
        try:
            from splashdam.record import _kernel_c as twin
        except ImportError:
            from splashdam.record import _kernel_py as twin
    globals().update({name: getattr(twin, name) for name in twin.__all__})

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
