"""A standalone Spark cluster on loopback, whose executors and drivers are killed: ``make pipeline-cluster``.

``spark_processes`` runs Spark's own master and workers, ``job_archive`` packs the environment that travels to
them, ``jobs`` runs ``splashdam pipeline`` on them, ``books`` compares the results with the records sent.
"""
