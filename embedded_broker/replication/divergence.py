"""Where a follower's log is cut when its leader's differs (KIP-101, KIP-595). Pure.

The leader compares the follower's last epoch and offset with its own epochs, and names the last epoch that it
knows up to there, with its end. The follower cuts its log to that end, or, where it does not know the epoch
either, to the end of its own last one below, and asks again.
"""

from __future__ import annotations

from collections.abc import Callable

from splashdam.storage.leader_epochs import EpochEnd


def truncation_offset(
    leader: EpochEnd, end_of_epoch: Callable[[int], EpochEnd], *, log_end_offset: int, high_watermark: int
) -> int:
    """The offset to cut the follower's log to.

    Args:
        leader: what the leader names.
        end_of_epoch: where an epoch ends in the follower's log.
        log_end_offset: of the follower.
        high_watermark: of the follower.
    """
    if leader.end_offset < 0:
        return min(high_watermark, log_end_offset)
    own = end_of_epoch(leader.epoch)
    if own.end_offset < 0:
        return min(leader.end_offset, log_end_offset)
    if own.epoch != leader.epoch:
        return min(own.end_offset, log_end_offset)
    return min(own.end_offset, leader.end_offset, log_end_offset)
