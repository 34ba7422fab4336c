"""The part of the metadata that `pyproject.toml` cannot say: the project's address, and what follows from it.

While `PROJECT_URL` is empty, the description in sdist and wheel is README.md as it stands: it installs from
the checkout and its links are relative. Once the owner has set it, the description installs from PyPI and its
links lead to the release's files, on a forge whose paths are GitHub's. `make release-check` fails while it is
empty.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

PROJECT_URL = ""
"""Where the repository is, without a slash at the end; set by its owner."""

ROOT = Path(__file__).resolve().parent
LINK = re.compile(r"(!\[[^\[\]]*)?\]\((?!\w+:|#)([^)\s]+)")
INSTALL = re.compile(r"pip install (?:'\.(\[[\w,]+\])'|\.(?!\S))(?: +# from a checkout)?")


def published(readme: str, url: str, version: str) -> str:
    """Return README as PyPI shows it: installed from there, links and pictures by address."""

    def absolute(link: re.Match[str]) -> str:
        picture, path = link[1] or "", link[2]
        return f"{picture}]({url}/{'raw' if picture else 'blob'}/v{version}/{path}"

    def from_pypi(command: re.Match[str]) -> str:
        return f"pip install 'splashdam{command[1]}'" if command[1] else "pip install splashdam"

    return INSTALL.sub(from_pypi, LINK.sub(absolute, readme))


def addresses(url: str, version: str) -> dict[str, str]:
    """Return the links that PyPI shows beside the description."""
    return {
        "Source": url,
        "Documentation": f"{url}/tree/v{version}/docs",
        "Changelog": f"{url}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{url}/issues",
    }


def described() -> dict[str, object]:
    """Return the fields that `pyproject.toml` calls dynamic."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    readme = (ROOT / "README.md").read_text()
    return {
        "long_description": published(readme, PROJECT_URL, version) if PROJECT_URL else readme,
        "long_description_content_type": "text/markdown",
        "project_urls": addresses(PROJECT_URL, version) if PROJECT_URL else {},
    }


if __name__ == "__main__":
    setup(**described())
