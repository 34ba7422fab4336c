"""Tables that take a micro-batch exactly once: Parquet, Delta, Iceberg.

Lives here: where a table is (``locations.py``), what else is there (``surroundings.py``), what tasks write
(``writing.py``), what every table promises (``table.py``), and one adapter per format, each with the identity
of the batch in the table's own log. Only ``streaming.py``, which joins a stream and a table, needs Spark.
May import: failures, options.
"""

from splashdam.pipeline.tables.opening import FORMATS, check_table, existing_table, open_table
from splashdam.pipeline.tables.table import Table

__all__ = ["FORMATS", "Table", "check_table", "existing_table", "open_table"]
