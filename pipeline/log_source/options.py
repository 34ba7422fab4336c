"""The options of ``kafka-log``: the place of the files, and the options of ``kafka-local`` that apply to
files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.local_source import options as local
from splashdam.pipeline.local_source.planning import Selection
from splashdam.pipeline.local_source.positions import AtEdge, Patience
from splashdam.pipeline.local_source.subscriptions import Subscription, TopicPattern
from splashdam.pipeline.log_source.filesystems import Location, location_of
from splashdam.pipeline.options import Option, OptionParser, Options, boolean, comma_list, one_of

NAME: Final = "kafka-log"

RECORDS, BATCHES = "records", "batches"
REPORT = "report"
STORAGE: Final = "storage."
"""The prefix of the filesystem's own settings."""

_SIZE = re.compile(r"([0-9]+)\s*(?:([kmg])(?:i?b)?|b)?", re.ASCII)
_UNITS = {None: 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _size(given: str) -> int:
    found = _SIZE.fullmatch(given.lower())
    if found is None or not int(found[1]):
        raise ValueError("must be a size such as 67108864, 64m or 1g")
    return int(found[1]) * _UNITS[found[2]]


def _json_list(given: str) -> tuple[str, ...]:
    found = json.loads(given)  # JSONDecodeError is a ValueError
    if not isinstance(found, list) or not found or not all(isinstance(each, str) for each in found):
        raise ValueError('must be a JSON list such as ["/data/a", "/data/b"]')
    return tuple(found)


_NOWHERE: tuple[str, ...] = ()
PATH = Option("path", comma_list, _NOWHERE)
PATHS = Option("paths", _json_list, _NOWHERE)
"""Spark passes several paths, ``load(["…", "…"])``, under this name."""
MODE = Option("mode", one_of(RECORDS, BATCHES), RECORDS)
MAX_PARTITION_BYTES = Option("maxPartitionBytes", _size, 64 << 20)
ON_DAMAGE = Option("onDamage", one_of("fail", REPORT), "fail")
CHECK_CRCS = Option("checkCrcs", boolean, True)

_PARSER = OptionParser(
    NAME,
    (
        PATH,
        PATHS,
        MODE,
        MAX_PARTITION_BYTES,
        ON_DAMAGE,
        CHECK_CRCS,
        *local.SUBSCRIPTIONS,
        *local.STARTS,
        local.NO_MATCH_STRATEGY,
        *local.ENDS,
        local.FAIL_ON_DATA_LOSS,
        local.INCLUDE_HEADERS,
    ),
)
_ISOLATION = Option("kafka.isolation.level", one_of("read_uncommitted", "read_committed"), "read_uncommitted")
_EVERYTHING = TopicPattern(re.compile(".*"))


@attrs.frozen(kw_only=True)
class LogOptions:
    """What a query reads, and how. Topics, start and end are as in ``kafka-local``.

    Attributes:
        locations: of the files.
        batches: whether a row is a batch instead of a record.
        max_bytes: approximate number of log bytes per task.
        fails: damage is an error; otherwise it is reported.
        check_crcs: whether checksums are checked if a row is a batch; those of records always are.
        include_headers: whether there is a column ``headers``.
        read_committed: whether only records of committed transactions are read.
        selection: which records; its patience is a single attempt, since files do not change.
    """

    locations: tuple[Location, ...]
    batches: bool
    max_bytes: int
    fails: bool
    check_crcs: bool
    include_headers: bool
    read_committed: bool
    selection: Selection


def log_options(given: Mapping[str, str]) -> LogOptions:
    """Parse and check the options of a query.

    Args:
        given: as ``DataSource.options`` has them.

    Raises:
        KafkaConfigurationError: an option is unknown, missing, illegal, or contradicts another one.
    """
    settings = {name: text for name, text in given.items() if name.lower().startswith(STORAGE)}
    options = _PARSER.parse({name: text for name, text in given.items() if name not in settings})
    start, start_option = local.first_given(options, local.STARTS, AtEdge(EARLIEST))
    end, end_option = local.first_given(options, local.ENDS, AtEdge(LATEST))
    local.check_edges(NAME, start, end)
    batches = options[MODE] == BATCHES
    return LogOptions(
        locations=_locations(options, settings),
        batches=batches,
        max_bytes=options[MAX_PARTITION_BYTES],
        fails=options[ON_DAMAGE] != REPORT,
        check_crcs=options[CHECK_CRCS],
        include_headers=options[local.INCLUDE_HEADERS],
        read_committed=_reads_committed(options.kafka) and not batches,
        selection=Selection(
            subscription=_subscription(options),
            start=start,
            start_option=start_option,
            end=end,
            end_option=end_option,
            latest_if_no_match=options[local.NO_MATCH_STRATEGY] == "latest",
            fail_on_data_loss=options[local.FAIL_ON_DATA_LOSS],
            patience=Patience(attempts=1),
        ),
    )


def _locations(options: Options, settings: Mapping[str, str]) -> tuple[Location, ...]:
    paths = options[PATH] or options[PATHS]
    if not paths:
        raise KafkaConfigurationError(
            f"{NAME}: option 'path' is missing: a data directory or that of a partition, with commas between "
            "several. CREATE TABLE … USING loses options: create a temporary view instead"
        )
    storage = tuple(sorted((name[len(STORAGE) :], text) for name, text in settings.items()))
    return tuple(location_of(path, storage) for path in paths)


def _subscription(options: Options) -> Subscription:
    given = [each for each in local.SUBSCRIPTIONS if options.is_given(each)]
    if len(given) > 1:
        both = " and ".join(each.name for each in given)
        raise KafkaConfigurationError(f"{NAME}: only one of {both} may be given; none reads all topics")
    found: Subscription = options[given[0]] if given else _EVERYTHING
    return found


def _reads_committed(kafka: Mapping[str, str]) -> bool:
    for name in kafka:
        if name != "isolation.level":
            raise KafkaConfigurationError(
                f"{NAME}: option 'kafka.{name}' belongs to a client, and files are read without "
                f"one; of kafka.* only {_ISOLATION.name} applies"
            )
    return _ISOLATION.value_of(kafka.get("isolation.level", _ISOLATION.default)) == "read_committed"
