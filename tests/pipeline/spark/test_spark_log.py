"""What a child writes on standard error lands in the file, and afterwards ours is ours again."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import pytest

from splashdam.pipeline.session import children_log_into, interrupts_unlogged


def test_children_write_into_the_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also after the block, if they were started in it; later ones do not."""
    path = tmp_path / "log"
    with children_log_into(str(path)):
        child = subprocess.Popen(["sh", "-c", "read line; echo $line >&2"], stdin=subprocess.PIPE)
    subprocess.run(["sh", "-c", "echo later >&2"], check=True)
    child.communicate(b"from a JVM\n")
    assert path.read_text() == "from a JVM\n"
    assert capfd.readouterr().err == "later\n"


def test_a_file_that_cannot_be_opened(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Is named, and nothing was redirected."""
    with pytest.raises(FileNotFoundError), children_log_into(str(tmp_path / "none" / "log")):
        pass
    os.write(2, b"here")
    assert capfd.readouterr().err == "here"


def test_ctrl_c_during_a_call_into_the_jvm_is_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """py4j logs it to the root logger and raises it anyway; its other messages are seen."""
    with interrupts_unlogged():
        logging.exception("KeyboardInterrupt while sending command.")
        logging.error("Unknown command x")
    logging.error("KeyboardInterrupt while sending command.")
    assert [record.getMessage() for record in caplog.records] == [
        "Unknown command x",
        "KeyboardInterrupt while sending command.",
    ]
