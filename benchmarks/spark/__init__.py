"""Parts of ``pipeline.py``: scenarios, topics, processes of Spark, goals and picture."""
