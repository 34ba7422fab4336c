"""What the columns of a DataFrame mean to the sink: Spark's own names, types and rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import nearest_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

VALUE, KEY, TOPIC, HEADERS = "value", "key", "topic", "headers"
PARTITION, TIMESTAMP = "partition", "timestamp"

_BYTES = ("string", "binary")
_TYPES = {
    VALUE: _BYTES,
    KEY: _BYTES,
    TOPIC: ("string",),
    HEADERS: ("array<struct<key:string,value:binary>>",),
    PARTITION: ("int",),
    TIMESTAMP: ("timestamp", "double"),
}
"""By column, the types it may have, as Spark writes them."""


@attrs.frozen
class SinkColumns:
    """The columns that a DataFrame has for the sink; others are left out, as Spark's sink does.

    Attributes:
        names: those that are there.
        in_seconds: ``timestamp`` is a number of seconds since the epoch.
    """

    names: frozenset[str]
    in_seconds: bool = False

    def has(self, name: str) -> bool:
        """Whether a column is there."""
        return name in self.names


def sink_columns(schema: StructType, topic: str | None) -> SinkColumns:
    """The columns of a DataFrame.

    Args:
        schema: of the DataFrame.
        topic: the option.

    Raises:
        KafkaConfigurationError: ``value`` is missing, or both column and option ``topic`` are, or a column
            has a type that the sink does not take.
    """
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if VALUE not in types:
        raise KafkaConfigurationError(
            f"the DataFrame has no column 'value', it has {', '.join(types) or 'none'}."
            f"{nearest_name(VALUE, types)} Name the bytes or text to send: df.selectExpr('… AS value')"
        )
    if topic is None and TOPIC not in types:
        raise KafkaConfigurationError(
            "nothing says where the rows go: set the option 'topic', or add a column 'topic'"
        )
    for name, allowed in _TYPES.items():
        if name in types and types[name] not in allowed:
            raise KafkaConfigurationError(
                f"column {name!r} is {types[name]}; the sink takes {' or '.join(allowed)}. Cast or drop it"
            )
    return SinkColumns(frozenset(types) & frozenset(_TYPES), types.get(TIMESTAMP) == "double")
