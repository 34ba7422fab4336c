"""Measures sources and sink of the pipeline beside Spark's own Kafka connector, on the same broker.

`make bench-pipeline` fetches the connector and runs all scenarios; without the connector (the folder
``SPARK_KAFKA_JARS``) only ours are measured. The broker is a process of its own, Spark has two cores, all
contenders take turns in one session, and the first turn of each is not counted. A run in which a record is
missing or duplicated ends with status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import checked
from compare import save
from spark import picture as pipeline_picture
from spark.goals import print_goals
from spark.processes import cpu_seconds_of_tree, peak_of_workers
from spark.scenarios import CALLS, SCENARIOS, THEIRS, Laboratory
from spark.topics import Topic, broker, fill

from splashdam.cli.measuring.figures import Results
from splashdam.cli.measuring.machine import machine_facts
from splashdam.cli.measuring.scenarios import Scenario
from splashdam.cli.measuring.tables import print_machine, print_tables, wide_console
from splashdam.cli.measuring.turns import Run, Turn, measure_all, turns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"
MEMORY = "2g"
RECORDS = {100: 4_000_000, 1000: 600_000}
"""Number of records by the size of a value: enough for some seconds."""
ROUNDS = 3
VERSIONS = ("splashdam", "pyspark", "pyarrow")


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [each.name for each in SCENARIOS]
    parser.add_argument(
        "--scenarios", nargs="+", choices=names, metavar="NAME", help=f"run only these, of {' '.join(names)}"
    )
    parser.add_argument(
        "--rounds",
        type=checked.rounds,
        default=ROUNDS,
        help=f"number of rounds after one that warms up ({ROUNDS})",
    )
    parser.add_argument("--scale", type=checked.scale, default=1.0, help="factor on the number of records")
    parser.add_argument(
        "--data", type=checked.folder, help="where the broker writes; by default the temporary folder"
    )
    parser.add_argument("--json", type=checked.output_file, help="write every measurement to this file")
    parser.add_argument("--svg", type=checked.output_file, help="draw the bars into this file")
    return parser.parse_args(argv)


def connector_jars() -> list[str]:
    """Return the jars of Spark's own connector; none if ``SPARK_KAFKA_JARS`` is not set."""
    folder = os.environ.get("SPARK_KAFKA_JARS")
    return sorted(map(str, Path(folder).glob("*.jar"))) if folder else []


def chosen(names: Sequence[str] | None, *, connector: bool) -> list[Scenario]:
    """Return the scenarios of this run; without the connector only our contenders take part."""
    named = [each for each in SCENARIOS if not names or each.name in names]
    if connector:
        return named
    return [
        attrs.evolve(each, contenders=tuple(who for who in each.contenders if who.ours)) for each in named
    ]


@contextmanager
def session(jars: Sequence[str]) -> Iterator[SparkSession]:
    """Open a Spark session with two cores and a heap of 2 GiB."""
    from splashdam.pipeline import spark_session

    settings = {"spark.jars": ",".join(jars)} if jars else {}
    spark = spark_session("benchmark", master=MASTER, memory=MEMORY, settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def measure(lab: Laboratory, turn: Turn) -> Run:
    """Measure one turn, in an empty directory."""
    shutil.rmtree(lab.scratch, ignore_errors=True)
    lab.scratch.mkdir()
    topic = lab.topics[turn.scenario.size]
    cpu = cpu_seconds_of_tree(os.getpid())
    seconds = CALLS[turn.contender.call](lab, topic)
    per_second = topic.records / seconds
    figures = {
        "count": topic.records,
        "seconds": seconds,
        "records_per_second": per_second,
        "megabytes_per_second": per_second * topic.size / 1e6,
        "cpu_seconds_per_million": (cpu_seconds_of_tree(os.getpid()) - cpu) / topic.records * 1e6,
    }
    if peak := peak_of_workers(os.getpid()):
        figures["peak_rss_bytes"] = peak
    return figures


def run(arguments: argparse.Namespace, scenarios: Sequence[Scenario], console: Any) -> list[Run]:
    """Measure all turns; return the results without those of the first round, which warms up."""
    sizes = {each.size for each in scenarios}
    topics = {
        size: Topic(f"bench-{size}", size, max(1000, int(count * arguments.scale)))
        for size, count in RECORDS.items()
        if size in sizes
    }
    with tempfile.TemporaryDirectory(prefix="splashdam-bench-", dir=arguments.data) as made:
        home = Path(made)
        with broker(home) as running, session(connector_jars()) as spark:
            for topic in topics.values():
                console.print(f"sending {topic.records:,} records of {topic.size} B …", highlight=False)
                fill(running.servers, topic)
            lab = Laboratory(spark, running, topics, home / "scratch")
            runs = measure_all(
                turns(scenarios, arguments.rounds + 1), lambda turn: measure(lab, turn), console
            )
    return [each for each in runs if each["round"]]


def main() -> int:
    arguments, console = parse_arguments(), wide_console()
    jars = connector_jars()
    if not jars:
        console.print("without Spark's own connector: `make bench-pipeline` fetches it", style="yellow")
    scenarios = chosen(arguments.scenarios, connector=bool(jars))
    machine = machine_facts(VERSIONS)
    if jars:
        machine["versions"][THEIRS] = Path(jars[-1]).parent.name
    document = {
        "command": shlex.join(["benchmarks/pipeline.py", *sys.argv[1:]]),
        "machine": machine,
        "rounds": arguments.rounds,
        "runs": run(arguments, scenarios, console),
    }
    results = Results(document["runs"])
    print_machine({**machine, "command": document["command"]}, console)
    print_tables(scenarios, results, console)
    print_goals(results, console)
    if arguments.json is not None:
        save(arguments.json, json.dumps(document, indent=1) + "\n", console)
    if arguments.svg is not None:
        save(arguments.svg, pipeline_picture.draw(document), console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
