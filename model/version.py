"""The version of splashdam, for rooms below the facade. A test compares it with ``splashdam.__version__``."""

from __future__ import annotations

VERSION = "0.1.0"
