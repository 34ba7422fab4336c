"""What may become a topic: names, numbers and options are checked before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from splashdam.model.broker_errors import TopicAlreadyExistsError, error_for
from splashdam.model.error_codes import ErrorCode
from splashdam.model.quoting import quoted
from splashdam.storage.directories.partition_metadata import new_uuid
from splashdam.storage.manager.topic_registry import NewTopic, Topic
from splashdam.storage.topic_names import check_topic_name, folded


def new_topics(
    wanted: Sequence[NewTopic],
    known: Mapping[str, Topic],
    check_configs: Callable[[Mapping[str, str]], object],
    names_by_fold: Mapping[str, str] | None = None,
) -> list[Topic]:
    """The topics that are wanted, each with an id.

    Args:
        wanted: what is to be made.
        known: the topics that there are.
        check_configs: raises what refuses a topic's options.
        names_by_fold: of ``known``, by what metrics make of them, where the caller has that at hand.

    Raises:
        As ``LogManager.create_topic``, for the first topic that is refused.
    """
    known_by_fold = {folded(name): name for name in known} if names_by_fold is None else names_by_fold
    by_fold: dict[str, str] = {}
    topics: dict[str, Topic] = {}
    for new in wanted:
        if new.name in known or new.name in topics:
            raise TopicAlreadyExistsError(f"topic {quoted(new.name)} exists")
        colliding = known_by_fold.get(folded(new.name)) or by_fold.get(folded(new.name))
        check_topic_name(new.name, filter(None, [colliding]))
        if new.partitions < 1:
            raise error_for(
                ErrorCode.INVALID_PARTITIONS, f"a topic has at least one partition, not {new.partitions}"
            )
        check_configs(new.configs)
        by_fold[folded(new.name)] = new.name
        topic_id = new.topic_id or new_uuid()
        topics[new.name] = Topic(new.name, topic_id, tuple(range(new.partitions)), dict(new.configs))
    return list(topics.values())
