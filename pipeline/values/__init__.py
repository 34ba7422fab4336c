"""Records' values by schema: bytes to Arrow, and why some of them cannot be.

Lives here: JSON and Avro as columns with a verdict on every row. No Spark: workers call it on Arrow arrays.
May import: nothing.
"""
