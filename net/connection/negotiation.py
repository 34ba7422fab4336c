"""Version negotiation: ApiVersions requests, and functions over the responses.

A broker that does not know the version of an ApiVersions request responds in version 0 with error 35
(KIP-511). Some do not keep to version 0 (librdkafka's mock broker has a compact count and a throttle time),
so whatever cannot be decoded behind the error code is ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from splashdam.model.broker_errors import ErrorCode, UnsupportedVersionError, error_for
from splashdam.model.errors import ProtocolError
from splashdam.model.values import Buffer
from splashdam.wire.fields import Versions
from splashdam.wire.header import decode_response
from splashdam.wire.message import Request, Response
from splashdam.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

R = TypeVar("R", bound=Response)

_ERROR_CODE = struct.Struct(">h")
_ASKED_FIRST = 4
_ERROR_CODE_POSITION = 4  # behind the correlation id, in every version


def decode_answer(frame: Buffer, response_cls: type[R], version: int) -> R:
    """Decode a response frame; an ApiVersions response with error 35 is decoded as version 0.

    Bytes behind the response are ignored, as in other clients: the frame's size says where it ends, and
    librdkafka's mock broker adds some to Metadata responses.

    Raises:
        ProtocolError: the bytes are not a valid response.
    """
    if issubclass(response_cls, ApiVersionsResponse) and _is_refusal(frame):
        try:
            return decode_response(frame, response_cls, 0, allow_trailing=True)[1]
        except ProtocolError:
            return response_cls(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return decode_response(frame, response_cls, version, allow_trailing=True)[1]


def _is_refusal(frame: Buffer) -> bool:
    if len(frame) < _ERROR_CODE_POSITION + _ERROR_CODE.size:
        return False
    (code,) = _ERROR_CODE.unpack_from(frame, _ERROR_CODE_POSITION)
    return int(code) == ErrorCode.UNSUPPORTED_VERSION


async def ask_versions(
    ask: Callable[[ApiVersionsRequest, int], Awaitable[ApiVersionsResponse]],
    software_name: str,
    software_version: str,
    peer: str,
) -> ApiVersionsResponse:
    """Send ApiVersions in version 4, then in older ones, until the broker knows the version.

    Version 5 (Kafka 4.4) adds the cluster and node that the client expects. It is not used: with every older
    broker it would cost a second request.

    Raises:
        BrokerResponseError: the broker rejects the request for another reason.
    """
    version = _ASKED_FIRST
    question = ApiVersionsRequest(
        client_software_name=software_name, client_software_version=software_version
    )
    answer = await ask(question, version)
    while answer.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
        version = version_to_retry(answer, version)
        answer = await ask(question, version)
    if answer.error_code:
        raise error_for(answer.error_code, f"{peer} rejected ApiVersionsRequest v{version}")
    return answer


def version_to_retry(refusal: ApiVersionsResponse, refused: int) -> int:
    """Return the version to try after ``refused``: the newest that the broker lists, else 0."""
    for api in refusal.api_keys:
        if api.api_key == ApiVersionsRequest.API_KEY:
            # Below the refused version, so that this ends, whatever the broker lists.
            return max(0, min(api.max_version, refused - 1))
    return 0


def offered_versions(answer: ApiVersionsResponse) -> dict[int, Versions]:
    """Return the broker's versions by API key."""
    return {api.api_key: Versions(api.min_version, api.max_version) for api in answer.api_keys}


def finalized_levels(answer: ApiVersionsResponse) -> dict[str, int]:
    """Return the finalized feature levels by name; none from a broker that does not know them yet."""
    return {
        feature.name: feature.max_version_level
        for feature in answer.finalized_features
        if answer.finalized_features_epoch >= 0
    }


def highest_common(
    cls: type[Request[Any]], offered: Mapping[int, Versions], peer: str, newest: int | None = None
) -> int:
    """Return the newest version that both sides support, ``newest`` at most.

    Raises:
        UnsupportedVersionError: the two have no version in common; the text names both ranges.
    """
    theirs = offered.get(cls.API_KEY)
    ours = Versions(cls.VERSIONS[0], cls.VERSIONS[-1] if newest is None else min(newest, cls.VERSIONS[-1]))
    if theirs is None:
        raise UnsupportedVersionError(f"{peer} does not offer {cls.NAME}; it offers {_listed(offered)}")
    version = min(ours.last, theirs.last)
    if version < max(ours.first, theirs.first):
        raise UnsupportedVersionError(f"{peer} supports {cls.NAME} v{theirs}, splashdam v{ours}")
    return version


def _listed(offered: Iterable[int]) -> str:
    return "the API keys " + ", ".join(map(str, sorted(offered))) if offered else "nothing"
