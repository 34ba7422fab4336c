"""Hourly departure delays per airline and airport, from a stream of flights: event time and a watermark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEW_YORK = ZoneInfo("America/New_York")
AIRPORTS = ("EWR", "JFK", "LGA")

_FLIGHT = "carrier string, origin string, dep_delay int"
"""The fields of a flight that the delays need."""


def hourly(rows: DataFrame, watermark_days: int) -> DataFrame:
    """Return the aggregates: a row for each hour of scheduled departures, airline and airport.

    Args:
        rows: ``value`` and ``timestamp`` of the topic.
        watermark_days: how many days behind the newest flight a flight may be and still count.
    """
    from pyspark.sql import functions as f

    flight = f.from_json(f.col("value").cast("string"), _FLIGHT).alias("flight")
    return (
        rows.select("timestamp", flight)
        .select("timestamp", "flight.*")
        .withWatermark("timestamp", f"{watermark_days} days")
        .groupBy(f.window("timestamp", "1 hour"), "carrier", "origin")
        .agg(
            f.count("*").alias("scheduled"),
            f.count("dep_delay").alias("departed"),  # null where the flight was cancelled
            f.coalesce(f.sum("dep_delay"), f.lit(0)).alias("minutes"),
        )
        .select(f.col("window.start").alias("hour"), "carrier", "origin", "scheduled", "departed", "minutes")
    )


class Delays(NamedTuple):
    """Number and delay of a group of flights.

    Attributes:
        scheduled: number of flights.
        departed: number of those that were not cancelled.
        minutes: delay of all departed flights together.
    """

    scheduled: int = 0
    departed: int = 0
    minutes: int = 0

    def plus(self, other: Delays) -> Delays:
        return Delays(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def mean(self) -> float | None:
        """Mean delay of the departed flights in minutes; None if none departed."""
        return self.minutes / self.departed if self.departed else None


class Board:
    """The newest result of the stream for every hour, airline and airport."""

    def __init__(self) -> None:
        self.hours: dict[tuple[datetime, str, str], Delays] = {}

    def update(self, changed: DataFrame, _batch: int) -> None:
        """Store the rows that a micro-batch has changed; the same batch again changes nothing."""
        columns = changed.toArrow().to_pydict()
        keys = zip(columns["hour"], columns["carrier"], columns["origin"], strict=True)
        values = zip(columns["scheduled"], columns["departed"], columns["minutes"], strict=True)
        self.hours.update(zip(keys, (Delays(*each) for each in values), strict=True))

    @property
    def scheduled(self) -> int:
        """Number of all flights."""
        return sum(delays.scheduled for delays in list(self.hours.values()))  # `update` may run meanwhile

    def by_airline_and_hour(self) -> dict[str, dict[int, Delays]]:
        """Return the delays by airline and hour of the day in New York."""
        found: dict[str, dict[int, Delays]] = defaultdict(lambda: defaultdict(Delays))
        for (hour, carrier, _), delays in self.hours.items():
            of_day = hour.astimezone(NEW_YORK).hour
            found[carrier][of_day] = found[carrier][of_day].plus(delays)
        return {carrier: dict(found[carrier]) for carrier in sorted(found)}

    def by_airline_and_airport(self) -> dict[str, dict[str, Delays]]:
        """Return the delays by airline and airport."""
        found: dict[str, dict[str, Delays]] = defaultdict(lambda: defaultdict(Delays))
        for (_, carrier, origin), delays in self.hours.items():
            found[carrier][origin] = found[carrier][origin].plus(delays)
        return {carrier: dict(found[carrier]) for carrier in sorted(found)}

    def worst(self, count: int) -> Iterator[tuple[datetime, str, str, Delays]]:
        """Yield the hours with the most minutes of delay."""
        ordered = sorted(self.hours.items(), key=lambda each: (-each[1].minutes, each[0]))
        for (hour, carrier, origin), delays in ordered[:count]:
            yield hour.astimezone(NEW_YORK), carrier, origin, delays


def together(of: dict[str, Delays] | dict[int, Delays]) -> Delays:
    """Return the sum of several groups."""
    total = Delays()
    for delays in of.values():
        total = total.plus(delays)
    return total
