"""Compares the calls that the preloaded library sees with those that strace sees.

The library misses system calls that do not go through the C library; strace sees them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from lab.failing_calls.library import Call

_LINE = re.compile(r"\d+ +(?P<name>\w+)\((?P<arguments>.*)")
_ALIKE = {
    "open": "openat",
    "creat": "openat",
    "pwrite": "pwrite64",
    "pwritev2": "pwritev",
    "pwritevv2": "pwritev",
    "posix_fallocate": "fallocate",
    "futimens": "utimensat",
    "renameat": "rename",
    "renameat2": "rename",
    "mkdirat": "mkdir",
}
"""One name for the functions of libc and the system calls that do the same."""
_WATCHED = (
    "write,pwrite64,writev,pwritev,pwritev2,sendfile,copy_file_range,splice,ftruncate,truncate,fallocate,"
    "fsync,fdatasync,sync_file_range,syncfs,open,openat,openat2,creat,rename,renameat,renameat2,unlink,"
    "unlinkat,rmdir,mkdir,mkdirat,link,linkat,symlink,symlinkat,mknod,mknodat,utimensat,utime,utimes,"
    "futimesat,chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,setxattr,fsetxattr,removexattr,mmap,"
    "io_submit,io_uring_setup,io_uring_enter"
)
"""Calls that change files; the library does not handle some of them, because no code should make them."""
_ANYWHERE = ("io_submit", "io_uring_setup", "io_uring_enter")
"""Calls whose arguments do not tell which file they change."""

_END_SECONDS = 60
_STEP_SECONDS = 0.02


class Strace:
    """Watches one process.

    Args:
        folder: for its output.
        under: calls that change files below this directory count.
    """

    def __init__(self, folder: Path, under: Path) -> None:
        self._output = folder / "strace"
        self._under = str(under)

    @property
    def prefix(self) -> Sequence[str]:
        """The words before the command; ``-D`` makes strace a grandchild, so signals reach the command."""
        return ("strace", "-D", "-f", "-y", "-q", "-e", f"trace={_WATCHED}", "-o", str(self._output), "--")

    def unseen(self, calls: Iterable[Call]) -> list[str]:
        """Return the calls of which library and strace have seen different numbers; the process has ended."""
        theirs = seen_in(self._lines(), self._under)
        ours = Counter(_plain(call.name) for call in calls)
        return [
            f"{name}: {ours[name]} by the library, {theirs[name]} by strace"
            for name in sorted(ours | theirs)
            if ours[name] != theirs[name]
        ]

    def _lines(self) -> list[str]:
        """Wait until strace has written its last line, which it does after the end of the process."""
        deadline = time.monotonic() + _END_SECONDS
        while True:
            lines = self._output.read_text().splitlines()
            if (lines and lines[-1].endswith("+++")) or time.monotonic() > deadline:
                return lines
            time.sleep(_STEP_SECONDS)


def why_not() -> str:
    """Return why strace cannot be used here; empty if it can."""
    if shutil.which("strace") is None:
        return "strace is not on the path"
    tried = subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "strace may not trace here"


def seen_in(lines: Iterable[str], under: str) -> Counter[str]:
    """Count the calls in strace's output that change something below a directory."""
    found: Counter[str] = Counter()
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        name, arguments = match["name"], match["arguments"]
        if name in _ANYWHERE or (_is_under(arguments, under) and _changes(name, arguments)):
            found[_plain(name)] += 1
    return found


def _is_under(arguments: str, under: str) -> bool:
    """Whether a path, or the path of a descriptor, is below the directory; data of a write is ignored."""
    place = re.escape(under) + r"[/\">]"
    descriptor, path, relative = rf"^-?\w+<{place}", rf'^"{place}', rf'^-?\w+(<[^>]*>)?, "{place}'
    renamed = rf'^"[^"]*", "{place}|^[^,]*, "[^"]*", [^,]*, "{place}'
    mapped = rf"MAP_SHARED.*<{place}"
    return bool(re.search("|".join((descriptor, path, relative, renamed, mapped)), arguments))


def _changes(name: str, arguments: str) -> bool:
    if name in ("open", "openat", "openat2"):
        return "O_CREAT" in arguments or "O_TRUNC" in arguments
    if name == "mmap":
        return "PROT_WRITE" in arguments and "MAP_SHARED" in arguments
    return True


def _plain(name: str) -> str:
    """Return one name for a function of libc and its system call: ``pwritev64v2`` is ``pwritev``."""
    plain = name if name == "pwrite64" else name.replace("64", "")
    return _ALIKE.get(plain, plain)
