"""Parts of ``serving.py`` and ``scaling.py``: brokers as processes, a raw client, large logs."""
