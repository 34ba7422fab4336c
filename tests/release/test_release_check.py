"""`make release-check` finds each thing that a release may lack, and says what to do."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from support.running.patches import perhaps
from tools.release import check

TAG = "cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64"
COMPILED = [f"{name}.cpython-313-x86_64-linux-gnu.so" for name in sorted(check.EXTENSIONS)]
METADATA = """Metadata-Version: 2.4
Name: splashdam
Project-URL: Source, https://forge.example/splashdam

[how](https://forge.example/splashdam/blob/v1/docs/testing.md)
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that the checks take for the checkout, with the files that most of them read."""
    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(check, "DIST", tmp_path / "dist")
    monkeypatch.setattr(check, "VERSION", "1.2.0")
    contents = {"splashdam/__init__.py", "splashdam/py.typed"}
    monkeypatch.setattr(check, "expected_contents", perhaps(lambda: contents, because="most look elsewhere"))
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist/splashdam-1.2.0.tar.gz").touch()
    return tmp_path


def wheel(checkout: Path, *more: str, without: str = "", description: str = METADATA, tag: str = TAG) -> None:
    """A wheel as it has to be, but for what the test says."""
    with zipfile.ZipFile(checkout / f"dist/splashdam-1.2.0-{tag}.whl", "w") as archive:
        # auditwheel writes folders, too
        for name in ("splashdam/", "splashdam/__init__.py", "splashdam/py.typed", *COMPILED, *more):
            if name != without:
                archive.writestr(name, "")
        archive.writestr("splashdam-1.2.0.dist-info/METADATA", description)


def test_without_an_address_it_says_what_to_set(checkout: Path) -> None:
    """Nobody but the owner knows it."""
    (checkout / "setup.py").write_text('PROJECT_URL = ""\n')
    with pytest.raises(check.MissingError, match=r"^PROJECT_URL in setup\.py is empty: set it"):
        check.check_address()
    (checkout / "setup.py").write_text('PROJECT_URL = "https://forge.example/splashdam/"\n')
    with pytest.raises(check.MissingError, match="without a slash at its end"):
        check.check_address()
    (checkout / "setup.py").write_text('PROJECT_URL = "https://forge.example/splashdam"\n')
    assert check.check_address() == "https://forge.example/splashdam"


@pytest.mark.parametrize(
    ("changelog", "missing"),
    [
        (
            "## [Unreleased]\n\n### Fixed\n\n- This.\n- That.\n\n## [1.2.0] - 2026-11-26\n",
            "still has 2 entries",
        ),
        ("## [Unreleased]\n\n## [1.2.0]\n", "has no `## [1.2.0] - YYYY-MM-DD`"),
        ("## [Unreleased]\n\n## [1.1.0] - 2026-11-26\n", "cut the changelog"),
    ],
)
def test_a_changelog_has_to_be_cut(checkout: Path, changelog: str, missing: str) -> None:
    """What is new stands in the section of the version, with its date."""
    (checkout / "CHANGELOG.md").write_text(changelog)
    with pytest.raises(check.MissingError) as raised:
        check.check_changelog()
    assert missing in str(raised.value)


def test_a_changelog_that_is_cut(checkout: Path) -> None:
    """The section for what comes next may stay, empty."""
    (checkout / "CHANGELOG.md").write_text("## [Unreleased]\n\n## [1.2.0] - 2026-11-26\n\n- This.\n")
    assert check.check_changelog() == "1.2.0"


@pytest.mark.parametrize(
    "foreign",
    [
        "splashdam/lab/storm.py",
        "lab/__init__.py",
        "splashdam/testing/clients/main.go",
        "splashdam/record/kernel.c",
    ],
)
def test_what_no_room_has_is_named(checkout: Path, foreign: str) -> None:
    """The laboratory, tests, drivers in other languages and generated sources stay at home."""
    wheel(checkout, foreign)
    with pytest.raises(check.MissingError, match=f"has files that no room has: .'{foreign}'"):
        check.check_contents()


@pytest.mark.parametrize("lost", ["splashdam/py.typed", *COMPILED])
def test_what_a_wheel_lacks_is_named(checkout: Path, lost: str) -> None:
    """A module, the mark of typed packages, a compiled twin."""
    wheel(checkout, without=lost)
    with pytest.raises(check.MissingError, match=r"splashdam-1\.2\.0-.* (lacks|has other compiled modules)"):
        check.check_contents()


def test_a_wheel_without_its_glibc_is_refused(checkout: Path) -> None:
    """PyPI takes no `linux_x86_64`."""
    wheel(checkout, tag="cp313-cp313-linux_x86_64")
    with pytest.raises(check.MissingError, match="has no manylinux tag"):
        check.check_contents()


def test_a_wheel_as_it_has_to_be(checkout: Path) -> None:
    """Contents and description."""
    wheel(checkout)
    assert check.check_contents() == "2 files and 2 compiled modules each"
    assert check.check_description() == "absolute links"


@pytest.mark.parametrize(
    ("written", "missing"),
    [
        ("[how](docs/testing.md)", "relative links, as ..docs/testing.md"),
        ("$ pip install '.[cli]'", "installs from a checkout"),
    ],
)
def test_a_description_without_the_address(checkout: Path, written: str, missing: str) -> None:
    """It was built before PROJECT_URL was set."""
    wheel(checkout, description=f"{METADATA}{written}\n")
    with pytest.raises(check.MissingError, match=missing):
        check.check_description()


def test_wheels_of_another_version_are_no_release(checkout: Path) -> None:
    """`twine upload dist/*` would take them along."""
    wheel(checkout)
    (checkout / "dist/splashdam-1.1.0-py3-none-any.whl").touch()
    with pytest.raises(check.MissingError, match=r"more than version 1\.2\.0: .'splashdam-1\.1\.0"):
        check.built()


def test_the_version_of_the_package_is_the_distributions(checkout: Path) -> None:
    """Both are written by hand."""
    (checkout / "facade").mkdir()
    (checkout / "facade/__init__.py").write_text('__version__ = "1.1.0"\n')
    with pytest.raises(check.MissingError, match=r"facade/__init__\.py has another __version__"):
        check.check_version()


def test_one_run_tells_all_that_is_missing(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It goes on after a failure, and its status says that there was one."""
    (checkout / "setup.py").write_text('PROJECT_URL = ""\n')
    (checkout / "CHANGELOG.md").write_text("## [Unreleased]\n\n- This.\n")
    (checkout / "facade").mkdir()
    (checkout / "facade/__init__.py").write_text('__version__ = "1.1.0"\n')
    assert check.main(["--only-here"]) == 1
    said = capsys.readouterr().out
    assert "MISSING  address: " in said
    assert "MISSING  changelog: " in said
    assert said.splitlines()[-1].endswith(" missing")


def test_each_extra_is_tried() -> None:
    """Kerberos' extra is left out: it is built with headers that few machines have."""
    extras = {*check.PYPROJECT["project"]["optional-dependencies"]} - {"gssapi", "all"}
    assert set(check.PROBES) == extras
