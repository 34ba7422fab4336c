"""Runs a cluster on small disks for hours, and checks that nothing grows and no record is lost.

The run has retention, compaction, replication, transactions, topics and groups that are created and deleted,
and brokers that are killed; consumers of kafka-python check every record. Memory, descriptors, files and disk
may not grow after the first quarter of the run: the last line says whether they did. The status is 1 if they
did, or if a record was lost, duplicated or out of order. Needs Linux (/proc).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from lab.arguments import positive
from lab.soak.cluster_process import BROKERS, ClusterProcess
from lab.soak.flatness import JUDGED_SECONDS, Flatness
from lab.soak.workloads import Churn, Compacted, Faults, Retained, Transactional, Workload
from lab.trial import Verdict, need_linux, run_trial, shown_for, trial_parser, verified_directory

_SAMPLE_SECONDS = 5.0
_END_SECONDS = 600


def soak(options: argparse.Namespace, folder: Path, console: Console) -> Verdict:
    """Run the trial, from an empty folder to the verdict."""
    verdict, data = Verdict(), folder / "data"
    cluster = ClusterProcess(data, folder / "cluster.log")
    try:
        share = options.rate / 4
        works: list[Workload] = [kind(cluster.address, share, options.seed) for kind in _KINDS]
        works.append(Faults(cluster, options.pause, options.seed))
        flatness = Flatness(cluster.pid, data)
        _run(works, flatness, options.hours * 3600, console)
        status = cluster.close()
        if status:
            verdict.violations.append(f"the cluster ended with status {status}: {cluster.last_words()}")
    except (ChildProcessError, BrokenPipeError) as error:
        verdict.violations.append(str(error))
        return verdict
    finally:
        cluster.kill()
    verdict.violations += idle(works, options.hours * 3600)
    for work in works:
        verdict.violations += work.violations[:5]
        verdict.facts += [(f"{work.name}: {what}", f"{count:,}") for what, count in work.counts.items()]
    verdict.violations += flatness.violations()
    verdict.facts += [(name, curve.drawn()) for name, curve in flatness.curves.items()]
    for node in range(1, BROKERS + 1):
        verdict.include(verified_directory(data / f"broker-{node}"))
    words = cluster.last_words()
    if "Traceback" in words:  # a warning that a killed broker does not answer is no finding
        verdict.violations.append(f"the cluster wrote: {words}")
    checked = sum(work.counts["records checked"] for work in works)
    broken = len(verdict.violations)
    books = f"{checked:,} records checked, {broken} promises broken (seed {options.seed})"
    verdict.closing = f"soak: {flatness.verdict()}, {books}"
    return verdict


_KINDS = (Retained, Compacted, Transactional, Churn)
_NEEDED = {
    Retained.name: "records checked",
    Compacted.name: "whole reads",
    Transactional.name: "records checked",
    Churn.name: "topics and groups",
}
"""What each workload has done at least once in a run that is long enough to be judged."""


def idle(works: Sequence[Workload], seconds: float) -> list[str]:
    """Return a violation for each workload that has checked nothing, though the run was long enough."""
    if seconds < JUDGED_SECONDS:
        return []
    return [
        f"{work.name}: no {_NEEDED[work.name]} in the whole run"
        for work in works
        if work.name in _NEEDED and not work.counts[_NEEDED[work.name]]
    ]


def _run(works: list[Workload], flatness: Flatness, seconds: float, console: Console) -> None:
    for work in works:
        work.start()
    began = time.monotonic()

    def status() -> str:
        checked = sum(work.counts["records checked"] for work in works)
        broken = sum(len(work.violations) for work in works)
        return f"{checked:,} records checked, {broken} violations"

    try:
        with shown_for(seconds, console, status) as show:
            while time.monotonic() - began < seconds:
                time.sleep(min(_SAMPLE_SECONDS, seconds))
                flatness.sample()
                show()
    finally:
        faults = works[-1]
        faults.ending.set()  # faults end first, so that every broker runs when the other workloads finish
        faults.join(_END_SECONDS)
        for work in works:
            work.ending.set()
        for work in works[:-1]:
            work.join(_END_SECONDS)


def main() -> int:
    """Run the command; return 1 if something grew or a promise was broken."""
    parser = trial_parser("soak", __doc__, rate=400, pause=45, pause_help="mean seconds between two faults")
    parser.add_argument("--hours", type=positive, default=2, help="length of the run (2)")
    options = parser.parse_args()
    need_linux(parser, "it reads memory and descriptors from /proc")
    return run_trial("soak", soak, options)


if __name__ == "__main__":
    raise SystemExit(main())
