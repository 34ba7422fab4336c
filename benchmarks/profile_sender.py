"""Profiles the sender's thread while a program sends at full speed.

cProfile profiles the thread that enables it. A delivery callback runs on the sender's thread, so callbacks
switch it on and off.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
from pathlib import Path

from sink.running import RunningSink, sink_command, temporary_build_dir

from splashdam.cli.measuring.clients import kafka_like
from splashdam.cli.measuring.task import Task, all_values
from splashdam.client.producer import KafkaProducer

LINES = 25


def profile(task: Task) -> pstats.Stats:
    """Return the profile of the sender's thread from the first record's callback to the last one's."""
    profiler = cProfile.Profile()
    with KafkaProducer(**kafka_like.options(task)) as producer:
        producer.send(task.topic, b"first").add_callback(lambda _: profiler.enable())
        producer.flush()
        for value in all_values(task):
            producer.send(task.topic, value)
        producer.flush()
        producer.send(task.topic, b"last").add_callback(lambda _: profiler.disable())
        producer.flush()
    return pstats.Stats(profiler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    arguments = parser.parse_args()
    with temporary_build_dir() as build_dir:
        _, sink = sink_command("auto", Path(build_dir))
        with RunningSink(sink) as running:
            task = Task(
                client="",
                call="",
                size=arguments.size,
                count=arguments.records,
                bootstrap=running.bootstrap,
            )
            profile(task).sort_stats("tottime").print_stats(LINES)


if __name__ == "__main__":
    main()
