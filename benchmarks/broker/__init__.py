"""Parts of ``serving.py``: brokers as processes, the raw client that asks them, ingest and stalls."""
