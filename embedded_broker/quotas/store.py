"""The quotas of a cluster, in the file ``splashdam-quotas.json`` of its directory (docs/format/quotas.md).

Kafka keeps them in its metadata log. The brokers of one cluster share one store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from splashdam.embedded_broker.execution.turns import Steps, in_steps
from splashdam.embedded_broker.quotas.entities import Entity, Quotas, check_entity, check_quota
from splashdam.model.broker_errors import InvalidRequestError, KafkaStorageError
from splashdam.storage.files.disk import Files

FILE_NAME = "splashdam-quotas.json"

_VERSION = 1
_ILL_FORMED = (
    *(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError),
    InvalidRequestError,
)


class QuotaStore:
    """The quotas in a directory; only the process that has locked it may change them.

    Args:
        files: the file system.
        directory: of the file.
        on_change: called with the quotas after a change.

    Raises:
        KafkaStorageError: the file does not hold quotas.
    """

    def __init__(self, files: Files, directory: str, on_change: Callable[[Quotas], None]) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{FILE_NAME}"
        self._on_change = on_change
        data = files.read_bytes(self._path)
        self._quotas: Quotas = {} if not data else self._parsed(data)
        self._lines = {of: _line(of, values) for of, values in self._quotas.items()}

    @property
    def quotas(self) -> Quotas:
        """The quotas by entity; entities without quotas are left out."""
        return self._quotas

    def alter(self, changes: Mapping[Entity, Mapping[str, float | None]]) -> Steps[None]:
        """Set quotas of entities with one write of the file, and delete those whose new value is None.

        Raises:
            KafkaStorageError: they cannot be written; nothing has changed.
        """
        while True:
            before = self._quotas
            altered = yield from in_steps(changes.items(), partial(_altered, before))
            if self._quotas is before:  # no other request has altered them between the steps
                break
        quotas, lines = dict(before), dict(self._lines)
        for of, values, line in altered:
            if values:
                quotas[of], lines[of] = values, line
            elif of in quotas:
                del quotas[of], lines[of]
        if quotas == before:
            return
        self._files.make_directory(self._directory)
        # A change writes the whole file. Each entry was encoded when it was new: to encode tens of thousands
        # of them takes a second, to join their lines a millisecond.
        entries = ",\n".join(lines.values())
        text = f'{{"version": {_VERSION}, "quotas": [\n{entries}\n]}}\n'
        self._files.write_atomic(self._path, text.encode())
        self._quotas, self._lines = quotas, lines
        self._on_change(quotas)

    def _parsed(self, data: bytes) -> Quotas:
        try:
            found = json.loads(data)
            if found["version"] != _VERSION:
                raise KafkaStorageError(f"{self._path} has version {found['version']}, which is unknown here")
            return dict(_entry(kept) for kept in found["quotas"])
        except _ILL_FORMED as error:
            raise KafkaStorageError(
                f"{self._path} does not hold quotas ({type(error).__name__}: {error}); move it away"
            ) from None


def _altered(
    quotas: Quotas, change: tuple[Entity, Mapping[str, float | None]]
) -> tuple[Entity, dict[str, float], str]:
    of, wanted = change
    values = {**quotas.get(of, {}), **wanted}
    kept = {key: value for key, value in values.items() if value is not None}
    return of, kept, _line(of, kept)


def _line(of: Entity, values: Mapping[str, float]) -> str:
    return json.dumps({"entity": dict(sorted(of)), "values": dict(sorted(values.items()))})


def _entry(kept: Any) -> tuple[Entity, Mapping[str, float]]:
    of = check_entity(kept["entity"].items())
    values = {key: float(value) for key, value in kept["values"].items()}
    for key, value in values.items():
        check_quota(of, key, value)
    return of, values
