"""Values of our own classes as options, which Spark hands to planners and tasks as text."""

from __future__ import annotations

import base64
import pickle
from typing import Any


def to_text(value: object) -> str:
    """A value that pickles, as the text of an option.

    Name such an option with ``secret`` in it where there may be keys of object storage in the value: Spark
    hides those.
    """
    return base64.b64encode(pickle.dumps(value)).decode()


def from_text(text: str) -> Any:
    """What ``to_text`` made; for options that this package has set itself."""
    return pickle.loads(base64.b64decode(text))
