"""Tables that take a micro-batch exactly once: Parquet, Delta, Iceberg.

Lives here: where a table is (``locations.py``), what tasks write and say of it (``writing.py``,
``data_files.py``), what every table promises (``table.py``) and one adapter per format, each with the
identity of the batch in the table's own log. Nothing of it needs Spark but ``streaming.py``, which joins a
stream and a table.
May import: failures, option_values.
"""

from splashdam.pipeline.tables.opening import FORMATS, existing_table, open_table
from splashdam.pipeline.tables.table import Table

__all__ = ["FORMATS", "Table", "existing_table", "open_table"]
