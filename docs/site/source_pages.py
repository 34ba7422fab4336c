"""Makes pages of the files of the repository that docs link to: readers of the site have no checkout."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from markdown_it import MarkdownIt
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

ROOT = Path(__file__).parents[2]
FOLDER = "source"
"""Folder of these pages in the site."""

SCHEME = "source:"
_LINK = re.compile(r"\]\((\.\.[^)#\s]*)(#[^)\s]*)?\)")
_ANY_LINK = re.compile(r"\[([^\]]*)\]\(([^):#\s]+)(#[^)\s]*)?\)")
_TABLE = '<div class="table-wrapper"><table class="docutils">'
_INDEX = "\n\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_lexer("hex", TextLexer)  # the bytes in docs/format
    app.connect("source-read", read_page)
    app.connect("doctree-read", point_to_source_pages)
    app.connect("env-purge-doc", _purge)
    app.connect("env-merge-info", _merge)
    app.connect("html-collect-pages", source_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _linked(env: Any) -> dict[str, set[str]]:
    """Return the linked files by page; Sphinx keeps them for the next build."""
    if not hasattr(env, "linked_sources"):
        env.linked_sources = {}
    linked: dict[str, set[str]] = env.linked_sources
    return linked


def _purge(app: Sphinx, env: Any, page: str) -> None:
    _linked(env).pop(page, None)


def _merge(app: Sphinx, env: Any, pages: set[str], other: Any) -> None:
    _linked(env).update({page: names for page, names in _linked(other).items() if page in pages})


def read_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Mark the links that leave ``docs/``; list the other pages of a folder in its README, hidden."""
    folder = os.path.dirname(f"docs/{page}")

    def marked(match: re.Match[str]) -> str:
        path = os.path.normpath(f"{folder}/{match[1]}")
        return match[0] if path.startswith("docs/") else f"]({SCHEME}{path})"

    text = _LINK.sub(marked, source[0])
    source[0] = text + _INDEX if page.endswith("/README") else text


def point_to_source_pages(app: Sphinx, doctree: nodes.document) -> None:
    """Point marked links to the pages of their files; a folder has no page, so only its name is left."""
    page = app.env.docname
    for link in list(doctree.findall(nodes.reference)):
        name = link.get("refuri", "").removeprefix(SCHEME)
        if name == link.get("refuri", ""):
            continue
        if (ROOT / name).is_file():
            _linked(app.env).setdefault(page, set()).add(name)
            link["refuri"] = app.builder.get_relative_uri(page, f"{FOLDER}/{name}")
            link["internal"] = True
            link["classes"] = [each for each in link["classes"] if each != "external"]
        else:
            link.replace_self(link.children)


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield a page for each linked file: Markdown rendered, other files highlighted."""
    assert isinstance(app.builder, StandaloneHTMLBuilder)  # the only kind of builder that asks for pages
    names = set().union(*_linked(app.env).values())
    for name in sorted(names):
        text = (ROOT / name).read_text()
        if name.endswith(".md"):
            body = _rendered(text, name, names)
        else:
            listing = app.builder.highlighter.highlight_block(text, _language(name), linenos=False)
            body = f"<h1>{name}</h1>{listing}"
        yield f"{FOLDER}/{name}", {"title": name, "body": body, "parents": []}, "page.html"


def _language(name: str) -> str:
    try:
        return get_lexer_for_filename(name).aliases[0]
    except ClassNotFound:
        return "text"


def _rendered(text: str, name: str, names: Container[str]) -> str:
    """Return a Markdown file as HTML. Links lead to pages of the site; one without a page loses its link."""
    folder, home = os.path.dirname(name), "../" * (name.count("/") + 1)

    def led(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        path = os.path.normpath(os.path.join(folder, target))
        if path.startswith("docs/") and path.endswith(".md"):
            return f"[{label}]({home}{path[5:-3]}.html{anchor})"
        return f"[{label}]({home}{FOLDER}/{path}.html)" if path in names else label

    html = MarkdownIt("commonmark").enable("table").render(_ANY_LINK.sub(led, text))
    return html.replace("<table>", _TABLE).replace("</table>", "</table></div>")
