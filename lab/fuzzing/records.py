"""Searches for bytes on which the kernel's twins disagree, or that crash one of them.

``python -m lab.fuzzing.records --seconds 60 --seed 7``; add a finding to
``tests/record/kernel/reading/corpus.txt``. ``make sanitize`` runs it as well.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import time

from support.record.record_kit import mutated, read_by_both

from lab import ROOT
from lab.arguments import positive


def main() -> int:
    """Mutate the corpus, and mutants that are readable, until the time is over; return 1 for a finding."""
    parser = argparse.ArgumentParser(prog="python -m lab.fuzzing.records", description=__doc__)
    parser.add_argument("--seconds", type=positive, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    asked = parser.parse_args()
    twins = tuple(
        importlib.import_module(f"splashdam.record.kernel.{name}") for name in ("_kernel_py", "_kernel_c")
    )
    print(f"seed {asked.seed}, {twins[1].__file__}", flush=True)
    noise = random.Random(asked.seed)
    lines = (ROOT / "tests/record/kernel/reading/corpus.txt").read_text().splitlines()
    cases = [line.split() for line in lines if line and not line.startswith("#")]
    pool = [(bytes.fromhex(case[2] if len(case) > 2 else ""), int(case[1])) for case in cases]
    kept = len(pool)
    tried, end = 0, time.monotonic() + asked.seconds
    while time.monotonic() < end:
        records, count = noise.choice(pool)
        records, count = mutated(noise, records), count + noise.choice((0, 0, 0, 1, -1))
        seed = noise.randrange(10**6)
        try:
            found = read_by_both((twins[0], twins[1]), records, count, seed)
        except AssertionError:
            print(f"found-{asked.seed}-{tried} {count} {records.hex()}   # seed {seed}")
            return 1
        if not isinstance(found["scan"], str) and len(records) < 2000:
            if len(pool) >= kept + 500:
                del pool[kept + noise.randrange(500)]
            pool.append((records, count))
        tried += 1
    print(f"{tried} inputs, no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
