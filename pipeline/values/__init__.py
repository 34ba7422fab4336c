"""Record values by schema: bytes to Arrow columns, with a verdict on every row.

Lives here: JSON and Avro decoders, and schema files. No Spark: workers call the decoders on Arrow arrays.
May import: nothing.
"""
