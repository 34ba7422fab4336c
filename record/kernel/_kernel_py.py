"""The Python twin as one module, and the one list of what both twins export.

``_kernel_c.pyx`` has the same names and makes the same bytes. Import both through the package.
"""

from __future__ import annotations

from splashdam.record.kernel.building.buffer import BatchBuffer as BatchBuffer
from splashdam.record.kernel.building.buffer import record_size_upper_bound as record_size_upper_bound
from splashdam.record.kernel.building.fast_path import FastPath as FastPath
from splashdam.record.kernel.building.fast_path import NowaitSends as NowaitSends
from splashdam.record.kernel.building.fast_path import Sends as Sends
from splashdam.record.kernel.building.headers import header_block as header_block
from splashdam.record.kernel.building.lanes import PartitionLane as PartitionLane
from splashdam.record.kernel.building.lanes import TopicLanes as TopicLanes
from splashdam.record.kernel.building.murmur2 import murmur2 as murmur2
from splashdam.record.kernel.bulk.blob_column import BlobColumn as BlobColumn
from splashdam.record.kernel.bulk.bulk import BulkRecords as BulkRecords
from splashdam.record.kernel.bulk.bulk import RunTails as RunTails
from splashdam.record.kernel.bulk.bulk import count_slot as count_slot
from splashdam.record.kernel.bulk.header_lists import HeaderLists as HeaderLists
from splashdam.record.kernel.compacting.offset_map import OffsetMap as OffsetMap
from splashdam.record.kernel.outcomes.event_loops import LoopFuture as LoopFuture
from splashdam.record.kernel.outcomes.event_loops import LoopWatch as LoopWatch
from splashdam.record.kernel.outcomes.event_loops import Telling as Telling
from splashdam.record.kernel.outcomes.event_loops import Wait as Wait
from splashdam.record.kernel.outcomes.event_loops import use_asyncio as use_asyncio
from splashdam.record.kernel.outcomes.outcome import BatchOutcome as BatchOutcome
from splashdam.record.kernel.outcomes.outcome import FutureCell as FutureCell
from splashdam.record.kernel.outcomes.outcome import uncollected as uncollected
from splashdam.record.kernel.reading.columns import ColumnBuffers as ColumnBuffers
from splashdam.record.kernel.reading.records import decode_records as decode_records
from splashdam.record.kernel.reading.records import faulty_records as faulty_records
from splashdam.record.kernel.reading.records import find_by_time as find_by_time
from splashdam.record.kernel.reading.records import scan_records as scan_records
from splashdam.record.kernel.reading.records import usual_batch as usual_batch
from splashdam.record.kernel.reading.zstd_frame import zstd_frame as zstd_frame

IMPL = "python"
