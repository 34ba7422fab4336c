"""The quotas of a cluster, in the file ``splashdam-quotas.json`` of its directory (docs/format/quotas.md).

Kafka keeps them in its metadata log. The brokers of one cluster share one store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from splashdam.embedded_broker.quotas.entities import Entity, Quotas, check_entity, check_quota
from splashdam.embedded_broker.storage.files import Files
from splashdam.model.broker_errors import InvalidRequestError, KafkaStorageError

FILE_NAME = "splashdam-quotas.json"

_VERSION = 1
_ILL_FORMED = (
    *(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError),
    InvalidRequestError,
)


class QuotaStore:
    """The quotas in a directory; only the process whose it is may change them.

    Args:
        files: the file system.
        directory: where the file is.
        told: is called with the quotas when they have changed.

    Raises:
        KafkaStorageError: the file does not hold quotas.
    """

    def __init__(self, files: Files, directory: str, told: Callable[[Quotas], None]) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{FILE_NAME}"
        self._told = told
        data = files.read_bytes(self._path)
        self._quotas: Quotas = {} if not data else self._parsed(data)

    @property
    def quotas(self) -> Quotas:
        """By entity; an entity without any is not there."""
        return self._quotas

    def alter(self, of: Entity, changes: Mapping[str, float | None]) -> None:
        """Sets quotas of one entity, and takes away those whose new value is None.

        Raises:
            KafkaStorageError: they cannot be written; nothing has changed.
        """
        values = {**self._quotas.get(of, {}), **changes}
        kept = {key: value for key, value in values.items() if value is not None}
        quotas = {other: values for other, values in self._quotas.items() if other != of}
        if kept:
            quotas[of] = kept
        if quotas == self._quotas:
            return
        content = {
            "version": _VERSION,
            "quotas": [
                {"entity": dict(sorted(each)), "values": dict(sorted(values.items()))}
                for each, values in quotas.items()
            ],
        }
        self._files.make_directory(self._directory)
        self._files.write_atomic(self._path, json.dumps(content, indent=1).encode() + b"\n")
        self._quotas = quotas
        self._told(quotas)

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


def _entry(kept: Any) -> tuple[Entity, Mapping[str, float]]:
    of = check_entity(kept["entity"].items())
    values = {key: float(value) for key, value in kept["values"].items()}
    for key, value in values.items():
        check_quota(of, key, value)
    return of, values
