"""The laboratory: programs that try to break splashdam, and programs of other projects that test it.

``simulator`` runs producers and brokers in virtual time with faults drawn from a seed. ``endurance``,
``storm``, ``soak``, ``pipeline_chaos`` and ``pipeline_cluster`` kill real processes, ``kill_points`` does so
at single system calls. ``every_write`` fails each write of a broker in turn, ``fuzzing`` sends hostile bytes,
and ``drivers`` has the contract's clients in Go, Java and JavaScript. ``failing_calls`` is what fails system
calls of real processes. ``judges`` runs all judges as one list. The laboratory is not installed, and runs
from the root of a checkout (``python -m lab.simulator``, ``make simulate``). It may import everything, also
the tests' ``support``; no room of the product imports it.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The root of the checkout."""

if str(ROOT / "tests") not in sys.path:
    sys.path.append(str(ROOT / "tests"))  # for `support`
