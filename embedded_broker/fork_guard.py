"""What a forked child may do with its parent's broker: nothing, and it is told so.

The child has copies of the parent's descriptors. While it holds them, the port stays taken and clients see no
end after the parent is gone, so they are closed in the child; the storage does the same with its directory
lock. A connection that is being accepted at the very moment of the fork is not known here yet and stays open
in the child: its client sees the end only when the child ends, too.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from typing import Protocol

from splashdam.model.errors import IllegalStateError


class OwnsSockets(Protocol):
    """Something whose sockets a forked child must not keep open."""

    def close_in_child(self) -> None:
        """Closes the sockets, without a word to the loop they belong to: it did not come along."""
        ...


_owners: weakref.WeakSet[OwnsSockets] = weakref.WeakSet()


def guard(owner: OwnsSockets) -> None:
    """From now on every forked child closes the owner's sockets."""
    _owners.add(owner)


def check_process(pid: int) -> None:
    """Refuses calls in another process than the one that started the broker.

    Raises:
        IllegalStateError: this is a forked child.
    """
    if os.getpid() != pid:
        raise IllegalStateError(
            f"this broker belongs to process {pid} and did not come along into its child {os.getpid()};"
            " create the broker in the worker, on a directory of its own, or connect to the parent's by TCP"
        )


def _close_all_in_child() -> None:
    for owner in list(_owners):
        with suppress(Exception):
            owner.close_in_child()


os.register_at_fork(after_in_child=_close_all_in_child)
