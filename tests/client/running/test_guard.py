"""All guards of a process are asked whether somebody is inside a ``send``."""

from __future__ import annotations

import gc
import sys
import threading

from splashdam.client.running.process import make_guard, refuse_inside_a_send
from splashdam.model.alive import AliveSet


def test_making_producers_does_not_disturb_who_looks_for_an_interrupted_send() -> None:
    """Guards come and go in one thread while another asks all of them."""
    kept = [make_guard() for _ in range(20)]
    stop = threading.Event()

    def make() -> None:
        while not stop.is_set():
            [make_guard() for _ in range(5)]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=make)
    thread.start()
    try:
        for _ in range(3_000):
            refuse_inside_a_send("flush()")
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)
    assert not any(guard.interrupted() for guard in kept)


def test_the_set_of_the_living() -> None:
    """Members are there until they are discarded or collected."""

    class Member:
        pass

    members = [Member() for _ in range(3)]
    alive: AliveSet[Member] = AliveSet()
    for member in members:
        alive.add(member)
    assert alive.snapshot() == members
    alive.discard(members[0])
    alive.discard(members[0])
    assert alive.snapshot() == members[1:]
    del members[1], member
    gc.collect()
    assert alive.snapshot() == members[1:]
    alive.clear()
    assert alive.snapshot() == []
