"""Makes the helpers beside the tests importable, and gives property tests the time they need."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# An example may take long on a busy machine, or under the sanitizers, and be right.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# A shell that starts the suite in the background ignores Ctrl-C, and children inherit that;
# the tests of signals need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
