"""What can be wrong with the files of a log of ours with several segments, each planted by a function."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from support.storage.logs import NOW_MS

Damage: TypeAlias = Callable[[Path], object]
LOG, INDEX, TIMES = (f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex"))


def change(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)


def changed(name: str, at: int, data: bytes) -> Damage:
    return lambda path: change(path / name, at, data)


def cut(name: str, count: int) -> Damage:
    return lambda path: (path / name).write_bytes((path / name).read_bytes()[:-count])


def written(name: str, data: bytes) -> Damage:
    return lambda path: (path / name).write_bytes(data)


def lengthened(name: str, data: bytes) -> Damage:
    return lambda path: (path / name).write_bytes((path / name).read_bytes() + data)


EPOCHS, TXN = "leader-epoch-checkpoint", f"{0:020d}.txnindex"
DAMAGE: dict[str, tuple[Damage, str]] = {
    "a value changed": (changed(LOG, 150, b"\xff\x00\xff"), "its checksum is wrong"),
    "a torn tail": (cut(LOG, 5), "are no batch: a batch of"),
    "rubbish in the middle": (changed(LOG, 8, b"\xff" * 4), "are no batch: batch length -1"),
    "an entry that leads nowhere": (changed(INDEX, 4, b"\0\0\0\7"), "no batch begins at byte 7"),
    "an entry with another offset": (changed(INDEX, 0, b"\0\0\0\1"), "says offset 1, the batch"),
    "entries that fall": (changed(INDEX, 8, b"\0\0\0\1\0\0\0\1"), "does not rise above"),
    "an entry behind the end": (lengthened(INDEX, b"\x7f" * 8), "behind the last batch"),
    "a torn entry": (cut(INDEX, 3), "was cut off"),
    "another time": (changed(TIMES, 0, struct.pack(">q", NOW_MS - 9**9)), "whose largest"),
    "an orphan": (written(f"{7:020d}.index", b""), "an orphan"),
    "a strange name": (written("seven.log", b""), "Kafka would not load the log"),
    "a damaged snapshot": (written(f"{0:020d}.snapshot", bytes(10)), "version 0"),
    "damaged epochs": (written(EPOCHS, b"0\n1\n0 x\n"), "'0 x'"),
    "falling epochs": (written(EPOCHS, b"0\n2\n1 5\n0 9\n"), "does not rise"),
    "damaged metadata": (written("partition.metadata", b"version: 7"), "version '7'"),
    "a damaged txnindex": (written(TXN, struct.pack(">hqqqq", 0, 1, 5, 3, 9)), "cannot be"),
}
