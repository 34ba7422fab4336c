"""Adding an API is adding a file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from splashdam.model.errors import ProtocolError
from splashdam.wire import messages, registry
from splashdam.wire.messages.produce import ProduceRequest, ProduceResponse
from splashdam.wire.registry import API_KEYS, Api, api_for, response_class

NEW_API = """
from splashdam.wire.fields import int32, string
from splashdam.wire.message import Request, Response

class NoveltyRequest(Request["NoveltyResponse"], key=4242, versions="2-3"):
    name: str = string()

class NoveltyResponse(Response, key=4242, versions="2-3"):
    number: int = int32()
"""


def test_apis_are_found_by_key() -> None:
    """In ascending order, each with request, response and versions."""
    assert list(API_KEYS) == [
        0,
        1,
        2,
        3,
        8,
        9,
        10,
        11,
        12,
        13,
        14,
        15,
        16,
        17,
        18,
        19,
        20,
        21,
        22,
        23,
        24,
        25,
        26,
        27,
        28,
        29,
        30,
        31,
        32,
        33,
        34,
        35,
        36,
        37,
        42,
        43,
        44,
        45,
        46,
        47,
        48,
        49,
        50,
        51,
        55,
        60,
        61,
        65,
        66,
        68,
        69,
        71,
        72,
        74,
        75,
    ]
    assert API_KEYS[0] == Api(0, "Produce", ProduceRequest, ProduceResponse, range(3, 14))
    assert len(API_KEYS) == 55


def test_a_response_class_imports_no_other_declaration() -> None:
    """The response is declared in the same file; a producer needs four APIs and does not load the others."""
    script = (
        "import sys\n"
        "from splashdam.wire.messages.produce import ProduceRequest\n"
        "from splashdam.wire.registry import response_class\n"
        "print(response_class(ProduceRequest).__name__, 'splashdam.wire.messages.fetch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ProduceResponse", "False"]
    assert all(response_class(api.request) is api.response for api in API_KEYS.values())


def test_an_api_that_is_not_declared() -> None:
    """Its key is named."""
    with pytest.raises(ProtocolError, match="API key 4711 is not declared"):
        api_for(4711)


@pytest.fixture
def new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One more file in wire/messages, for the time of a test."""
    (tmp_path / "novelty.py").write_text(NEW_API)
    monkeypatch.setattr(messages, "__path__", [*messages.__path__, str(tmp_path)])
    registry._discover.cache_clear()
    yield
    registry._discover.cache_clear()
    sys.modules.pop("splashdam.wire.messages.novelty", None)


@pytest.mark.usefixtures("new_file")
def test_a_new_file_is_a_new_api() -> None:
    """Nothing else has to be told about it."""
    assert api_for(4242).name == "Novelty"
    assert list(api_for(4242).versions) == [2, 3]
