"""AlterReplicaLogDirs (key 34), versions 1 to 2: moves replicas to other directories of the same broker."""

from __future__ import annotations

from splashdam.wire.fields import array, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class AlterReplicaLogDirTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = array("int32")


class AlterReplicaLogDir(Struct):
    """One directory."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(
    Request["AlterReplicaLogDirsResponse"], key=34, versions="1-2", flexible="2+"
):
    """Directories with what shall go there."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    """Whether the move has begun."""

    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Struct):
    """Partitions of one topic."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Response, key=34, versions="1-2", flexible="2+", throttles="1+"):
    """One answer per partition."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
