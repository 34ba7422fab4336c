"""Ctrl-C at any point of ``send``: the producer goes on, for this thread and for others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SENDS_UNTIL_STRUCK = """
import signal, sys, threading
from splashdam import KafkaProducer

KEYED = sys.argv[1] == "keyed"


def strike(signal_number, frame):
    raise KeyboardInterrupt


signal.signal(signal.SIGVTALRM, strike)
producer = KafkaProducer(bootstrap_servers="embedded:" + sys.argv[2], batch_size=200, linger_ms=0)
key = b"k" if KEYED else None
sent = producer.send("t", b"first", key=key)
sent.get(300)
struck = 0
while struck < int(sys.argv[3]):
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0003 + 0.00001 * (struck % 37))
        while True:
            producer.send("t", b"v", key=key)
    except KeyboardInterrupt:
        struck += 1
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
report = producer.flush(300)
print("flushed")
other = threading.Thread(target=lambda: print("other", producer.send("t", b"v").get(300).topic), daemon=True)
other.start()
other.join(300)
producer.close(30)
print("closed")
"""


@pytest.mark.parametrize("pure", ["", "1"], ids=["compiled", "pure"])
@pytest.mark.parametrize("kind", ["plain", "keyed"])
@pytest.mark.parametrize("times", [37, pytest.param(200, marks=pytest.mark.slow)])
def test_many_times_ctrl_c_inside_send_wedged_the_producer(
    pure: str, kind: str, times: int, tmp_path: Path
) -> None:
    """The process is a child, whose signals are its own; Python 3.14 left the guard taken there."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", SENDS_UNTIL_STRUCK, kind, str(tmp_path), str(times)],
        env={**os.environ, "SPLASHDAM_PURE": pure},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.stdout.split("\n") == ["flushed", "other t", "closed", ""], done.stdout + done.stderr
    assert done.returncode == 0
