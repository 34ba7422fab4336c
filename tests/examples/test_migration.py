"""Each pair of programs in docs/how-to/migration.md prints the same, and its tables name what there is."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import attrs
import pytest
from support.running.house_tree import ROOT

from splashdam import EmbeddedBroker
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.settings.rules import present_options

PAGE = (ROOT / "docs/how-to/migration.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedBroker(tmp_path_factory.mktemp("data"), fsync=False) as broker:
        yield broker.bootstrap_servers


def run(code: str, servers: str) -> str:
    code = code.replace("localhost:9092", servers)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("number", range(0, len(BLOCKS), 2), ids=["kafka", "confluent_kafka", "aiokafka"])
def test_before_and_after(servers: str, number: int, request: pytest.FixtureRequest) -> None:
    """Two programs, one output; the second one knows nothing of the other library."""
    library = request.node.callspec.id
    pytest.importorskip(library)
    before, after = BLOCKS[number : number + 2]
    assert f"from {library} import" in before
    assert library not in after.replace("KafkaProducer", "").replace("splashdam.aiokafka", "")
    outputs = [sorted(run(code, servers).splitlines()) for code in (before, after)]
    assert outputs[0] == outputs[1] != []


def test_the_options_it_names_are_there() -> None:
    """In the right-hand columns, and those that are said to have no effect."""
    known = {field.name for field in attrs.fields(ProducerSettings)}
    named = set(re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+)*_(?:ms|file|type|size|bytes|url|lookup))\b", PAGE))
    of_others = {"max_batch_size", "api_version_auto_timeout_ms", "sock_chunk_bytes"}
    assert named - known - of_others == set()
    with pytest.warns(DeprecationWarning, match="sock_chunk_bytes"):
        assert present_options({"sock_chunk_bytes": 1}) == {}


def test_readme_leads_there() -> None:
    assert "](docs/how-to/migration.md)" in (ROOT / "README.md").read_text()
