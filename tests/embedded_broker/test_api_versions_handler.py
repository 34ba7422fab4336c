"""ApiVersions: what clients build on before anything else."""

from __future__ import annotations

import struct

import pytest
from support.broker.broker_talk import Talk

from splashdam.embedded_broker.broker import open_broker
from splashdam.embedded_broker.serving.registry import registered_apis
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.wire.header import decode_response
from splashdam.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from splashdam.wire.registry import API_KEYS


def ranges(answer: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}


@pytest.mark.parametrize("version", range(6))
async def test_every_registered_key_is_named(talk: Talk, version: int) -> None:
    """Each version names every key with its handler's range; Produce from 0 (trap of librdkafka)."""
    request = ApiVersionsRequest(client_software_name="talk", client_software_version="1.0")
    answer = await talk.ask(request, version)
    assert answer.error_code == 0
    assert ranges(answer) == {
        0: (0, 13),
        1: (4, 18),
        2: (1, 11),
        3: (0, 13),
        8: (2, 10),
        9: (1, 10),
        10: (0, 6),
        11: (0, 9),
        12: (0, 4),
        13: (0, 5),
        14: (0, 5),
        15: (0, 6),
        16: (0, 5),
        17: (0, 1),
        18: (0, 5),
        19: (2, 7),
        20: (1, 6),
        21: (0, 2),
        22: (0, 5),
        23: (2, 4),
        24: (0, 5),
        25: (0, 4),
        26: (0, 5),
        27: (1, 2),
        28: (0, 6),
        29: (1, 3),
        30: (1, 3),
        31: (1, 3),
        32: (1, 4),
        33: (0, 2),
        34: (1, 2),
        35: (1, 5),
        36: (0, 2),
        37: (0, 3),
        42: (0, 3),
        43: (0, 2),
        44: (0, 1),
        45: (0, 1),
        46: (0, 0),
        47: (0, 0),
        48: (0, 1),
        49: (0, 1),
        50: (0, 0),
        51: (0, 0),
        55: (0, 2),
        60: (0, 2),
        61: (0, 0),
        65: (0, 0),
        66: (0, 2),
        68: (0, 1),
        69: (0, 1),
        74: (0, 1),
        75: (0, 0),
    }


@pytest.mark.parametrize(
    ("version", "supported"), [(3, []), (4, [("group.version", 0, 1), ("transaction.version", 0, 2)])]
)
async def test_features_are_in_use(talk: Talk, version: int, supported: list[tuple[str, int, int]]) -> None:
    """Clients use KIP-890 and KIP-848 because they are; below version 4 a minimum of 0 is left out (B4)."""
    request = ApiVersionsRequest(client_software_name="talk", client_software_version="1.0")
    answer = await talk.ask(request, version)
    assert [
        (each.name, each.min_version, each.max_version) for each in answer.supported_features
    ] == supported
    assert [
        (each.name, each.min_version_level, each.max_version_level) for each in answer.finalized_features
    ] == [("group.version", 1, 1), ("transaction.version", 2, 2)]
    assert answer.finalized_features_epoch >= 0


@pytest.mark.parametrize("level", [0, 1])
async def test_other_levels_of_features(level: int, network: MemoryNetwork, files: MemoryFiles) -> None:
    """The broker's options ``transaction_version`` and ``group_version``; 0 is not in use at all."""
    async with open_broker(
        "/data",
        host="b",
        port=1,
        listen=network.listen,
        files=files,
        transaction_version=level,
        group_version=level,
    ):
        talk = Talk(await network.connect("b", 1))
        request = ApiVersionsRequest(client_software_name="talk", client_software_version="1.0")
        used = (await talk.ask(request, 4)).finalized_features
    assert [each.max_version_level for each in used] == [level] * 2 * level


def test_handlers_answer_declared_versions_only() -> None:
    """wire/ can decode and encode every version that a handler takes."""
    for key, api in registered_apis().items():
        assert set(api.versions) <= set(API_KEYS[key].versions)


async def test_unknown_version_is_answered_in_version_0(talk: Talk) -> None:
    """B1: error 35 in a version 0 body, the list with it, and the connection stays open."""
    header = struct.pack(">hhih4s", 18, 99, 7, 4, b"talk") + b"\0"
    await talk.stream.send_all(struct.pack(">i", len(header)) + header)
    correlation_id, answer = decode_response(await talk.frame(), ApiVersionsResponse, 0)
    assert (correlation_id, answer.error_code) == (7, 35)
    assert ranges(answer)[18] == (0, 5)
    assert (await talk.ask(ApiVersionsRequest(), 0)).error_code == 0


@pytest.mark.parametrize(
    ("name", "version"),
    [("", "1"), ("talk", ""), ("-talk", "1"), ("talk", "1."), ("ta lk", "1"), ("tälk", "1")],
)
async def test_client_software_must_have_a_name(talk: Talk, name: str, version: str) -> None:
    """B3: names that do not begin and end with a letter or digit are refused with 42."""
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert (await talk.ask(request, 3)).error_code == 42


async def test_one_letter_is_a_name(talk: Talk) -> None:
    """B3: the rule allows a single character."""
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    assert (await talk.ask(request, 3)).error_code == 0
