"""Parts of ``serving.py``: brokers as processes, a raw client for their requests, ingest and stalls."""
