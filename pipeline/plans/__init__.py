"""What a pipeline would do, said before Spark is started: what it reads, writes and commits, with sizes.

Lives here: the plan and its lines, progress in a checkpoint, and the checks of topics, tables and checkpoints
that would otherwise fail after a session's ten seconds. Nothing is changed, and no JVM is needed.
May import: audit, clusters, jobs, local_source, log_source, schema, sink, tables, values.
"""

from splashdam.pipeline.plans.plan import Entry, Plan

__all__ = ["Entry", "Plan"]
