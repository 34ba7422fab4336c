"""DeleteTopics (key 20), versions 1 to 6: by name, from version 6 on also by topic id."""

from __future__ import annotations

from splashdam.wire.fields import array, int16, int32, string, uuid
from splashdam.wire.message import Request, Response, Struct


class DeleteTopicState(Struct):
    """A topic by name, or by topic id with a null name."""

    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: bytes = uuid("6+")


class DeleteTopicsRequest(Request["DeleteTopicsResponse"], key=20, versions="1-6", flexible="4+"):
    """Topics are in ``topics`` in version 6, in ``topic_names`` before."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array("string", "0-5", ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Response, key=20, versions="1-6", flexible="4+", throttles="2+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
