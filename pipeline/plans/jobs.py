"""The plan of each job. Making one raises what the job would fail by, as far as that shows without Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.audit.files import file_tasks
from splashdam.pipeline.audit.run import LEFT_OUT, ONLY_ON_DISK, plan_of, slices
from splashdam.pipeline.jobs.continuing import need_table
from splashdam.pipeline.jobs.decode import need_decoded
from splashdam.pipeline.jobs.ingest import Target
from splashdam.pipeline.jobs.outputs import EXACTLY_ONCE, Output, TableOutput, TopicOutput
from splashdam.pipeline.jobs.replay import planned_replay
from splashdam.pipeline.jobs.window import FOLDER, Finished, need_windows
from splashdam.pipeline.jobs.window_expressions import need_columns, need_expressions
from splashdam.pipeline.jobs.window_query import WindowQuery
from splashdam.pipeline.local_source.options import source_options
from splashdam.pipeline.log_source.directories import find_logs
from splashdam.pipeline.log_source.filesystems import location_of
from splashdam.pipeline.plans.checkpoints import Progress, progress_in
from splashdam.pipeline.plans.places import need_apart, table_entry, topic_entry
from splashdam.pipeline.plans.plan import Entry, Plan, counted, shown_size
from splashdam.pipeline.plans.topics import Backlog, SizedCluster, backlog
from splashdam.pipeline.schema import all_columns
from splashdam.pipeline.sink.options import DEFAULT_MARKER_TOPIC, sink_options
from splashdam.pipeline.tables.delta_table import deltalake_module
from splashdam.pipeline.tables.locations import Location
from splashdam.pipeline.tables.table import plain_schema
from splashdam.pipeline.values.verdicts import ValueFormat
from splashdam.storage.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@attrs.frozen
class StreamPlan:
    """A stream of topics and its checkpoint.

    Attributes:
        source: options of ``kafka-local``.
        checkpoint: the folder.
        trigger_seconds: how often it looks for new records; None: it ends.
        cluster: to ask; None for that of the options.
    """

    source: Mapping[str, str]
    checkpoint: str
    trigger_seconds: float | None = None
    cluster: SizedCluster | None = None

    def plan(
        self,
        writes: Sequence[Entry],
        commit: str,
        *tables: str | None,
        committed_in: Collection[str] = (),
    ) -> Plan:
        """Return the plan.

        Args:
            writes: the outputs' lines.
            commit: what makes a micro-batch count in them.
            tables: places of its tables, from which the checkpoint must be apart.
            committed_in: topics that a commit of each micro-batch is written to.

        Raises:
            KafkaConfigurationError: the query would read its own commits.
            KafkaError: see `progress_in` and `backlog`.
        """
        options = source_options(self.source, streaming=True)
        progress = progress_in(self.checkpoint, apart_from=tuple(each for each in tables if each is not None))
        behind = backlog(options, progress, self.cluster)
        for each in behind.ranges:
            if each.where.topic in committed_in:
                raise KafkaConfigurationError(
                    f"topic {each.where.topic} cannot be read by a query that writes to a topic: each "
                    "micro-batch commits there, so the query would read its own commits, for ever. Write to "
                    "tables, or read other topics"
                )
        commits = [Entry(f"{self._steps(behind, options.max_offsets)}: {commit}"), progress.entry]
        return Plan(behind.entries(), writes, commits)

    def _steps(self, behind: Backlog, max_records: int | None) -> str:
        batches = behind.batches(max_records)
        limit = "" if max_records is None else f" of about {counted(max_records, 'offset')}"
        if self.trigger_seconds is None:
            return (
                f"{counted(batches, 'micro-batch', 'micro-batches')}{limit}" if batches else "no micro-batch"
            )
        return f"a micro-batch{limit} every {self.trigger_seconds:g} s, until it is stopped"


_ONE_COMMIT = "each is one commit of the table's log, with the query's id and the batch's number"


def ingest_plan(stream: StreamPlan, target: Target) -> Plan:
    """Return the plan of ``ingest``.

    Raises:
        KafkaConfigurationError: the checkpoint has been used, and the table is new.
        KafkaError: see `backlog` and `table_entry`.
    """
    options = source_options(stream.source, streaming=True)
    entry = table_entry(
        target.table_format,
        str(target.place),
        schema=plain_schema(all_columns(options.include_headers).arrow),
        partition_by=target.partition_by,
        options=target.options,
    )
    made = stream.plan([entry], _ONE_COMMIT, str(target.place))
    need_table(stream.checkpoint, target.output)
    return made


def decode_plan(stream: StreamPlan, form: ValueFormat, good: Output, bad: Output) -> Plan:
    """Return the plan of ``decode``.

    Raises:
        KafkaConfigurationError: the schema has a type that values are not decoded to, or see `need_decoded`.
        KafkaError: see `backlog`, `table_entry` and `topic_entry`.
    """
    form.open()
    rows = plain_schema(all_columns(True).arrow)
    value = rows.get_field_index("value")
    decoded = plain_schema(rows.set(value, pa.field("value", form.type)))
    rejected = rows.append(pa.field("reason", pa.string())).append(pa.field("detail", pa.string()))
    need_apart(_place(good), _place(bad))
    writes = [
        _output_entry(good, decoded, "good rows"),
        _output_entry(bad, rejected, "bad rows, with the reason"),
    ]
    commit = "each is committed to both outputs under the query's id and the batch's number"
    committed_in = {topic for output in (good, bad) for topic in _committed_in(output)}
    made = stream.plan(writes, commit, _place(good), _place(bad), committed_in=committed_in)
    need_decoded(stream.checkpoint, good, bad)
    return made


def window_plan(
    stream: StreamPlan, query: WindowQuery, form: ValueFormat | None, output: TableOutput, side: TableOutput
) -> Plan:
    """Return the plan of ``window``. Expressions that are more than a column's name are left to Spark.

    Raises:
        KafkaConfigurationError: the checkpoint has the windows of another query; or see `decode_plan`,
            `need_windows` and `need_columns`.
        KafkaError: see `backlog` and `table_entry`.
    """
    rows = all_columns(True).arrow
    if form is not None:
        form.open()
        rows = rows.append(pa.field("decoded", form.type)).append(pa.field("rejected", pa.string()))
    are_names = need_columns(query, rows)
    need_apart(output.place, side.place)
    columns = ["window_start", "window_end", *(key.name for key in query.keys)]
    columns += [each.name for each in query.aggregates]
    writes = [
        _output_entry(output, None, "closed windows: " + ", ".join(columns)),
        _output_entry(side, None, "late rows"),
    ]
    kept = _kept_windows(stream.checkpoint)
    if kept is not None and kept.shape != query.shape:
        raise KafkaConfigurationError(
            f"checkpoint {stream.checkpoint} belongs to other windows, keys or aggregates: use a new one. "
            f"It has {kept.shape}, and this query {query.shape}"
        )
    commit = "each is committed to both tables, then the open windows are kept beside the checkpoint"
    made = stream.plan(writes, commit, output.place, side.place)
    need_windows(stream.checkpoint, output, side)
    return made if are_names else attrs.evolve(made, left_to_spark=partial(_check_expressions, query, rows))


def _check_expressions(query: WindowQuery, columns: pa.Schema, spark: SparkSession) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    need_expressions(spark.createDataFrame([], from_arrow_schema(columns)), query)


def _kept_windows(checkpoint: str) -> Finished | None:
    """Return the record of the last finished batch, None if there is none or only Spark can read it."""
    folder = Location.of(checkpoint)
    if not folder.is_local:
        return None
    beside = Location(f"{folder.uri}/{FOLDER}")
    done = [int(name[:-5]) for name in beside.entries() if re.fullmatch(r"\d+\.json", name)]
    return Finished(**json.loads(beside.read_bytes(f"{max(done)}.json"))) if done else None


def latest_plan(stream: StreamPlan, place: str) -> Plan:
    """Return the plan of ``latest``.

    Raises:
        KafkaConfigurationError: the checkpoint has been used, and the table is new.
        KafkaError: see `backlog` and `table_entry`.
    """
    deltalake_module()
    schema = plain_schema(all_columns(True).arrow)
    entry = table_entry("delta", place, schema=schema, what="a row for each key")
    made = stream.plan([entry], "each is one commit: the newest rows are merged, tombstones delete", place)
    need_table(stream.checkpoint, TableOutput("delta", place))
    return made


def _place(output: Output) -> str | None:
    return output.place if isinstance(output, TableOutput) else None


def _committed_in(output: Output) -> Collection[str]:
    """Return the topics that an output's transactions write to, beside its own."""
    if not isinstance(output, TopicOutput) or output.delivery != EXACTLY_ONCE:
        return ()
    return (DEFAULT_MARKER_TOPIC, CONSUMER_OFFSETS, TRANSACTION_STATE)


def _output_entry(output: Output, schema: pa.Schema | None, what: str) -> Entry:
    if isinstance(output, TableOutput):
        return table_entry(
            output.table_format,
            output.place,
            schema=schema,
            partition_by=output.partition_by,
            options=output.options,
            what=what,
        )
    assert isinstance(output, TopicOutput), output
    return topic_entry(output.topic, output.kafka, delivery=output.delivery, what=what)


def replay_plan(
    table_format: str,
    place: str,
    sink: Mapping[str, str],
    *,
    checkpoint: str,
    table_options: Mapping[str, str] | None = None,
) -> Plan:
    """Return the plan of ``replay``.

    Raises:
        KafkaError: see `planned_replay` and `progress_in`.
    """
    options = sink_options(sink)
    progress = progress_in(checkpoint, apart_from=(place,))
    found = planned_replay(table_format, place, sink, checkpoint, table_options)
    done = _steps_done(progress)
    state = (
        f"{counted(len(found.steps), 'step')}, {done} of them done"
        if done
        else counted(len(found.steps), "step")
    )
    reads = Entry(
        f"{table_format} table {Location.of(place, table_options).uri}: {counted(found.files, 'file')}, "
        f"{counted(found.records, 'record')}, {shown_size(found.size_bytes)} uncompressed",
        []
        if found.is_new
        else ["by the plan that is kept beside the checkpoint: later additions are not sent"],
    )
    writes = [
        topic_entry(
            topic,
            sink_without_topic(sink),
            delivery=options.delivery,
            what=f"{partitions} of them written to",
        )
        for topic, partitions in sorted(found.partitions.items())
    ]
    return Plan([reads], writes, [Entry(f"{state}; each is a micro-batch"), progress.entry])


def sink_without_topic(sink: Mapping[str, str]) -> dict[str, str]:
    """Return the options that a sink has for the cluster alone."""
    return {name: text for name, text in sink.items() if name not in ("topic", "delivery")}


def _steps_done(progress: Progress) -> int:
    if progress.begin is None:
        return 0
    step = progress.begin.get("step")
    if not isinstance(step, int):
        raise KafkaConfigurationError(
            f"checkpoint {progress.place} is not of a replay: give each query a checkpoint of its own"
        )
    return step


def audit_plan(
    path: str,
    *,
    compacted: Collection[str] = (),
    with_files: bool = True,
    storage: Mapping[str, str] | None = None,
    report: str | None = None,
) -> Plan:
    """Return the plan of ``audit``.

    Raises:
        KafkaStorageError: the directory cannot be listed, or is not such a directory.
        WrongSettingError: it has no log of a topic of ``compacted``.
    """
    location = location_of(path, tuple(sorted((storage or {}).items())))
    logs = find_logs([location], lambda _: True)
    plan_of(logs, compacted)
    segments = [segment for log in logs for segment in log.segments]
    details = [f"{counted(len(list(slices(logs))), 'task')} read batches"]
    if not with_files:
        details.append(LEFT_OUT)
    elif not location.open()[0].is_local:
        details.append(ONLY_ON_DISK)
    else:
        count = len(file_tasks([log.directory for log in logs]))
        details.append(f"{counted(count, 'task')} read records, indexes and other files")
    reads = Entry(
        f"{path}: {counted(len(logs), 'partition')}, {counted(len(segments), 'segment')}, "
        f"{shown_size(sum(segment.size_bytes for segment in segments))}",
        details,
    )
    writes = Entry("nothing" if report is None else f"the page {report}")
    return Plan([reads], [writes], [Entry("nothing: the directory is only read")])
