"""Routes as data: which address is which page, and what a page is told about its visit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, unquote

import attrs

from splashdam.model.views.inspected import PRODUCERS, Inspected
from splashdam.net.http import HttpAnswer, HttpRequest, text_answer

if TYPE_CHECKING:
    from splashdam.console.rendering import Rendering
    from splashdam.console.sampling import Sampler
    from splashdam.console.source import Source
    from splashdam.net.clock import Clock
    from splashdam.net.inspector import Inspector

_MOST_FIELDS = 200


class Parts:
    """What pages work with.

    Args:
        source: the cluster.
        inspector: asks the cluster.
        clock: of the console.
        sampler: remembers what was asked, for rates.
        rendering: makes HTML.
        is_read_only: nothing may be changed.
        producers: returns those of this process.
    """

    def __init__(
        self,
        *,
        source: Source,
        inspector: Inspector,
        clock: Clock,
        sampler: Sampler,
        rendering: Rendering,
        is_read_only: bool,
        producers: Callable[[], Sequence[Inspected]] = PRODUCERS.snapshot,
    ) -> None:
        self.source = source
        self.title = source.title
        self.inspector = inspector
        self.clock = clock
        self.sampler = sampler
        self.rendering = rendering
        self.is_read_only = is_read_only
        self.producers = producers


@attrs.frozen(kw_only=True)
class Visit:
    """A request to a page.

    Attributes:
        parts: of the console.
        page: which one is visited.
        pages: all of them, for the navigation.
        request: as it came.
        arguments: the parts of the address that the route names.
        query: the fields behind the question mark; of several of one name the last.
        form: the fields of the body, likewise.
        may_change: whether the visitor has shown the token, and the console is not read-only.
    """

    parts: Parts
    page: Page
    pages: tuple[Page, ...]
    request: HttpRequest
    arguments: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str]
    may_change: bool

    @property
    def is_live(self) -> bool:
        """Whether the page that is open asks for its changing part again."""
        return "hx-request" in self.request.headers

    @property
    def address(self) -> str:
        """The address of this visit, its query included."""
        return f"{self.request.path}?{self.request.query}" if self.request.query else self.request.path

    async def show(self, template: str, *, status: int = 200, **values: Any) -> HttpAnswer:
        """Return a page; of an open page that asks again only the block ``live``."""
        shared = {"visit": self, "parts": self.parts, "page": self.page, "pages": self.pages}
        block = "live" if self.is_live else None
        body = await self.parts.rendering.render(template, {**shared, **values}, block=block)
        return HttpAnswer(status=status, headers=[("Content-Type", "text/html; charset=utf-8")], body=body)

    async def missing(self, what: str) -> HttpAnswer:
        """Return the page that says that there is no such thing; or that nobody knows, without an answer."""
        seen = await self.parts.sampler.look()
        failure = seen.failure if seen.overview is None else None
        return await self.show("missing.html", status=503 if failure else 404, what=what, failure=failure)


def go_to(location: str) -> HttpAnswer:
    """Return the answer behind a change: another address is shown."""
    return HttpAnswer(status=303, headers=[("Location", location)])


Handler: TypeAlias = Callable[[Visit], Awaitable[HttpAnswer]]


@attrs.frozen
class Route:
    """An address.

    Attributes:
        method: GET, or POST for what changes something.
        pattern: the path; ``{name}`` stands for one segment, whatever is in it.
        handler: answers.
    """

    method: str
    pattern: str
    handler: Handler


@attrs.frozen(kw_only=True)
class Page:
    """A page.

    Attributes:
        name: in the navigation.
        order: the place there.
        key: the letter that leads there, behind ``g``.
        routes: the first is where the navigation leads.
        is_shown: whether the navigation has it: some pages need what only a process knows.
    """

    name: str
    order: int
    key: str
    routes: tuple[Route, ...]
    is_shown: Callable[[Parts], bool] = lambda _parts: True

    @property
    def path(self) -> str:
        """Where the navigation leads."""
        return self.routes[0].pattern


class Routes:
    """Finds the route of a request.

    Args:
        pages: all pages.
    """

    def __init__(self, pages: Iterable[Page]) -> None:
        self.pages = tuple(sorted(pages, key=lambda page: page.order))
        self._table = [
            (tuple(route.pattern.split("/")), route, page) for page in self.pages for route in page.routes
        ]

    async def answer(self, request: HttpRequest, parts: Parts, *, may_change: bool) -> HttpAnswer:
        """Answer a request that was admitted."""
        method = "GET" if request.method == "HEAD" else request.method
        try:
            path = [unquote(each, errors="strict") for each in request.path.split("/")]
            query = _fields(request.query)
            form = _fields(request.body.decode()) if method == "POST" else {}
        except (UnicodeDecodeError, ValueError):
            return text_answer(400)
        allowed = []
        for pattern, route, page in self._table:
            arguments = _matched(pattern, path)
            if arguments is None:
                continue
            allowed.append(route.method)
            if route.method == method:
                shown = tuple(each for each in self.pages if each.is_shown(parts))
                visit = Visit(
                    parts=parts,
                    page=page,
                    pages=shown,
                    request=request,
                    arguments=arguments,
                    query=query,
                    form=form,
                    may_change=may_change,
                )
                return await route.handler(visit)
        if allowed:
            return text_answer(405, headers=[("Allow", ", ".join(dict.fromkeys(allowed)))])
        return text_answer(404)


def _fields(text: str) -> dict[str, str]:
    pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    return dict(pairs)


def _matched(pattern: tuple[str, ...], path: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(path):
        return None
    arguments = {}
    for expected, given in zip(pattern, path, strict=True):
        if expected.startswith("{"):
            if not given:
                return None
            arguments[expected[1:-1]] = given
        elif expected != given:
            return None
    return arguments
