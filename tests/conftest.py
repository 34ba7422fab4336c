"""Makes the helpers beside the tests importable, and gives property tests the time they need."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# An example may take long on a busy machine, or under the sanitizers, and be right.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
