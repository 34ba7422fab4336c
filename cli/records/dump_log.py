"""``splashdam dump-log``: print the contents of log files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.exiting import file_failures_reported
from splashdam.cli.output import bytes_read, is_terminal, output_failures, standard_output
from splashdam.model.broker_errors import BrokerResponseError, KafkaStorageError
from splashdam.record.json_lines import text_or_base64
from splashdam.storage.inspect.dump import Entry, dump_file


@click.command(
    "dump-log",
    cls=OnceCommand,
    example="splashdam dump-log ./data/orders-0/00000000000000000000.log --print-data",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@click.option("--deep", is_flag=True, help="Also print the records of each batch.")
@click.option("--print-data", is_flag=True, help="Print keys, values and headers of records; implies --deep.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line for each entry.")
def dump_log(paths: tuple[str, ...], deep: bool, print_data: bool, as_json: bool) -> None:
    """Print the contents of a log's files, whichever Kafka wrote them: .log, .index, .timeindex, .txnindex,
    .snapshot, checkpoints, partition.metadata.

    A directory means all such files in it. Nothing is changed; files that a broker is writing are read as
    they are now. Damage is printed where it is found, and the status is then 1.
    """
    with file_failures_reported():
        files = [file for path in paths for file in _files(path)]
        is_sound = True
        total = sum(os.path.getsize(file) for file in files if file.endswith(".log"))
        with bytes_read(total, is_wanted=not is_terminal(sys.stdout)) as on_bytes:
            for file in files:
                _heading(file, as_json)
                try:
                    for entry in dump_file(file, deep=deep, print_data=print_data, on_bytes=on_bytes):
                        is_sound &= "problem" not in entry
                        _print(entry, file, as_json)
                except BrokerResponseError as damage:
                    is_sound = False
                    _print({"problem": damage.message}, file, as_json)
        with output_failures():
            standard_output().flush()
    if not is_sound:
        raise click.exceptions.Exit(1)


def _files(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        if not os.path.exists(path):
            raise KafkaStorageError(f"{path} does not exist")
        yield path
        return
    kinds = (".log", "index", ".snapshot", "-checkpoint", "partition.metadata", "meta.properties")
    found = sorted(name for name in os.listdir(path) if name.endswith(kinds))
    if not found:
        raise KafkaStorageError(f"{path} holds no file of a log; name the directory of a partition, as t-0")
    yield from (os.path.join(path, name) for name in found)


def _heading(file: str, as_json: bool) -> None:
    if not as_json:
        _write(f"Dumping {file}")


def _print(entry: Entry, file: str, as_json: bool) -> None:
    if as_json:
        line = json.dumps({"file": file, **{name: _plain(value) for name, value in entry.items()}})
    else:
        line = ("| " if "offset" in entry and "keySize" in entry else "") + " ".join(
            f"{name}: {_text(value)}" for name, value in entry.items()
        )
    _write(line)


def _write(line: str) -> None:
    with output_failures():
        standard_output().write(line.encode(errors="surrogateescape") + b"\n")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return text_or_base64(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    """Return bytes as printable text on one line, without quotes."""
    if isinstance(value, bytes):
        text = value.decode(errors="backslashreplace")
        return text if text.isprintable() else text.encode("unicode_escape").decode()
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, tuple):
        return ": ".join(map(_text, value))
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)
