"""SVG as text: the elements that this project draws its pictures with.

Internal. It stands in this room because the audit's page is the only installed code that draws;
``benchmarks/drawing.py`` imports it from here. Examples do not: they show public names alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def element(name: str, *children: str, **attributes: str | float) -> str:
    """Return an element; in the names of attributes ``css_class`` is ``class``, and ``_`` becomes ``-``."""
    pairs = "".join(f' {_name(key)}="{_value(value)}"' for key, value in attributes.items())
    return f"<{name}{pairs}>{''.join(children)}</{name}>" if children else f"<{name}{pairs}/>"


def text(x: float, y: float, content: str, *, anchor: str = "start", **attributes: str | float) -> str:
    """Return a line of text whose ``anchor`` (start, middle, end) is at a point."""
    return element("text", escape(content), x=x, y=y, text_anchor=anchor, **attributes)


def rectangle(
    x: float, y: float, width: float, height: float, *, title: str = "", **attributes: str | float
) -> str:
    """Return a rectangle; ``title`` is shown while the pointer rests on it."""
    children = [element("title", escape(title))] if title else []
    return element("rect", *children, x=x, y=y, width=width, height=height, **attributes)


def picture(width: float, height: float, children: Iterable[str], /, **attributes: str | float) -> str:
    """Return a whole picture that scales with its place, unless ``attributes`` name a width and a height."""
    size = f"0 0 {_value(width)} {_value(height)}"
    return element(
        "svg", *children, xmlns="http://www.w3.org/2000/svg", viewBox=size, role="img", **attributes
    )


def _name(key: str) -> str:
    return "class" if key == "css_class" else key.replace("_", "-")


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return escape(value)
    return f"{value:.2f}".rstrip("0").rstrip(".")
