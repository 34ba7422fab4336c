"""What PyPI will show: README with an address for each link, and installed from there."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest
from support.running.house_tree import PYPROJECT, ROOT

README = (ROOT / "README.md").read_text()
URL = "https://forge.example/somebody/splashdam"


@pytest.fixture(scope="module")
def metadata() -> ModuleType:
    """setup.py, without its call of setuptools."""
    spec = importlib.util.spec_from_file_location("metadata_step", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("[how](docs/testing.md)", f"[how]({URL}/blob/v1.2/docs/testing.md)"),
        ("[a](docs/a.md#part)", f"[a]({URL}/blob/v1.2/docs/a.md#part)"),
        ("![speed](docs/pictures/bench.svg)", f"![speed]({URL}/raw/v1.2/docs/pictures/bench.svg)"),
        ("[![speed](bench.svg)](docs/)", f"[![speed]({URL}/raw/v1.2/bench.svg)]({URL}/blob/v1.2/docs/)"),
        ("[trio](https://trio.readthedocs.io)", "[trio](https://trio.readthedocs.io)"),
        ("[below](#spark)", "[below](#spark)"),
        ("$ pip install .", "$ pip install splashdam"),
        ("$ pip install '.[cli,arrow]'  # from a checkout", "$ pip install 'splashdam[cli,arrow]'"),
        ("$ pip install ./other", "$ pip install ./other"),
    ],
)
def test_links_and_commands_for_those_who_have_no_checkout(
    metadata: ModuleType, written: str, shown: str
) -> None:
    """Links lead to the files of the release, pictures to their bytes; `pip install` needs no folder."""
    assert metadata.published(written, URL, "1.2") == shown


def test_readme_can_be_published(metadata: ModuleType) -> None:
    """No relative link is left, nothing is installed from a checkout, and Python code is as it was."""
    shown = metadata.published(README, URL, "1.2")
    assert re.findall(r"\]\((?!https://|#)[^)]*\)", shown) == []
    assert "checkout" not in "\n".join(re.findall(r"```console\n(.*?)```", shown, flags=re.DOTALL))
    blocks = re.compile(r"```python\n(.*?)```", flags=re.DOTALL)
    assert blocks.findall(shown) == blocks.findall(README)


def test_readme_installs_from_the_checkout_until_the_project_has_an_address(metadata: ModuleType) -> None:
    """A command that cannot work yet is not shown, and the description is README itself."""
    if metadata.PROJECT_URL:
        assert metadata.described()["project_urls"]
    else:
        assert re.findall(r"pip install '?splashdam", README) == []
        assert metadata.described()["long_description"] == README
        assert metadata.described()["project_urls"] == {}


def test_each_extra_stands_in_readmes_table() -> None:
    """An extra that nobody knows of is not installed."""
    table = README.partition("| extra |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1:2][0])}
    assert named == set(PYPROJECT["project"]["optional-dependencies"])
