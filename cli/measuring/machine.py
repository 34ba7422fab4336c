"""The machine and the versions of a comparison."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

LIBRARIES = ("trio", "crc32c", "lz4", "zstandard", "pyarrow")
"""Libraries that the figures depend on, besides the clients."""


def machine_facts(clients: Iterable[str]) -> dict[str, Any]:
    """Return processor, memory, system, load, time and versions, for the report and its JSON."""
    from splashdam.record.kernel import IMPL

    return {
        "measured_at": time.strftime("%Y-%m-%d %H:%M %Z"),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load_before": round(os.getloadavg()[0], 2),
        "splashdam_twin": "compiled" if IMPL == "c" else "Python",
        "versions": versions([*clients, *LIBRARIES]),
    }


def versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of those distributions that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
