"""How `make docs` turns the pages of `docs/` and the public docstrings into a site: Sphinx, MyST, furo."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import splashdam
from splashdam.errors import BrokerResponseError, KafkaError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "splashdam"
author = "the maintainers of splashdam"
version = release = splashdam.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "source_pages"]
root_doc = "index"
exclude_patterns = ["site"]

myst_heading_anchors = 4
myst_url_schemes = {"http": None, "https": None, "mailto": None, "source": None}

default_role = "code"  # `name` in a docstring
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"splashdam {release}"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#8a4b08", "color-brand-content": "#8a4b08"},
    "dark_css_variables": {"color-brand-primary": "#e0a458", "color-brand-content": "#e0a458"},
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"


def setup(app: Sphinx) -> None:
    """Register with Sphinx."""
    app.connect("autodoc-process-docstring", tell_what_to_do)
    app.connect("html-page-context", let_names_break)


def tell_what_to_do(app: Sphinx, what: str, name: str, error: Any, *rest: Any) -> None:
    """Add to the docstring of an error its code, whether a retry helps, and its remedy, from its class."""
    _options, lines = rest
    if what != "exception" or not issubclass(error, KafkaError):
        return
    told = [word for word in ("retriable", "abortable", "fatal") if getattr(error, word)]
    if issubclass(error, BrokerResponseError) and error is not BrokerResponseError:
        told.insert(0, f"code {int(error.code)}")
    remedy = [f"What to do: {error.remedy}."] if error.remedy else []
    if said := [", ".join(told).capitalize() + "."] * bool(told) + remedy:
        lines += ["", f"*{' '.join(said)}*", ""]


_LONG_NAME = re.compile(r'(?<=<span class="pre">)[\w.-]{12,}(?=</span>)')


def let_names_break(app: Sphinx, page: str, template: str, context: dict[str, Any], *rest: Any) -> None:
    """Let long names break behind a dot or underscore, so that tables have room for their other columns."""
    if "body" in context:
        context["body"] = _LONG_NAME.sub(lambda name: re.sub(r"([._])", r"\1<wbr>", name[0]), context["body"])
