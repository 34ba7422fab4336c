"""A console: it listens, admits requests, and lets pages answer them."""

from __future__ import annotations

import importlib
import pkgutil
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, urlencode

import attrs
import trio

from splashdam.console.guard import LOOPBACK, Guard, with_security
from splashdam.model.errors import KafkaConfigurationError
from splashdam.net.clock import Clock
from splashdam.net.cluster.cluster_connections import open_plain_nursery
from splashdam.net.connect import address_text
from splashdam.net.http import HttpAnswer, HttpRequest, HttpServer
from splashdam.net.listen import Listen, address_of, tcp_listen

if TYPE_CHECKING:
    from splashdam.console.routes import Page, Parts, Routes
    from splashdam.console.source import Source

NEEDED = ("h11", "jinja2")

_TOKEN = "token"
_CLIENT_ID = "splashdam-console"


@attrs.frozen(kw_only=True)
class ConsoleSettings:
    """How a console behaves.

    Attributes:
        host: address to listen on; another one than this machine's own also needs the token for seeing.
        port: to listen on; 0 takes a free one.
        is_read_only: nothing may be changed.
        reads_need_token: seeing needs the token, too: what the console sees, others could not ask for.
    """

    host: str = "127.0.0.1"
    port: int = 0
    is_read_only: bool = False
    reads_need_token: bool = False


@attrs.frozen(kw_only=True)
class OpenConsole:
    """A console that listens.

    Attributes:
        address: where, as ``http://HOST:PORT``.
        token: of the link.
    """

    address: str
    token: str

    @property
    def link(self) -> str:
        """The link to print: whoever opens it may also change things."""
        return f"{self.address}/?{_TOKEN}={self.token}"


def check_installed() -> None:
    """Check that the packages of the extra ``console`` are there.

    Raises:
        KafkaConfigurationError: one is missing; the text says what to install.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise KafkaConfigurationError(
            f"the console needs {' and '.join(missing)}; install with: pip install 'splashdam[console]'"
        )


@asynccontextmanager
async def open_console(
    source: Source,
    settings: ConsoleSettings | None = None,
    *,
    clock: Clock,
    listen: Listen = tcp_listen,
    token: str | None = None,
) -> AsyncIterator[OpenConsole]:
    """Serve a console for the block.

    Args:
        source: what it shows.
        settings: how it behaves.
        clock: for deadlines and times.
        listen: how to listen; TCP by default.
        token: of the link; by default a new one.

    Raises:
        KafkaConfigurationError: a package is missing.
        CannotListenError: the address is taken, or not one of this machine.
    """
    check_installed()
    settings = settings or ConsoleSettings()
    token = token or secrets.token_urlsafe(18)
    # First, because port 0 has a number only now, and guard and cookie need it.
    listeners = list(await listen(settings.host, settings.port))
    port = address_of(listeners[0])[1]
    guard = Guard.on(
        settings.host,
        port,
        token,
        is_read_only=settings.is_read_only,
        reads_need_token=settings.reads_need_token or settings.host not in LOOPBACK,
    )
    try:
        async with open_plain_nursery() as nursery:
            # In this nursery, because the connections outlive the request that opens them.
            desk = Desk(guard, partial(nursery.start, _open_parts, source, settings, clock))
            nursery.start_soon(partial(trio.serve_listeners, HttpServer(desk.answer).serve, listeners))
            yield OpenConsole(address=f"http://{address_text(settings.host, port)}", token=token)
            nursery.cancel_scope.cancel()
    finally:
        for listener in listeners:
            await trio.aclose_forcefully(listener)


async def _open_parts(
    source: Source,
    settings: ConsoleSettings,
    clock: Clock,
    *,
    task_status: trio.TaskStatus[Opened] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Import the pages and keep connections to the cluster; nobody has to wait for that who never looks."""
    from splashdam.console.rendering import Rendering
    from splashdam.console.routes import Parts, Routes
    from splashdam.console.sampling import Sampler
    from splashdam.net.inspector import open_inspector

    async with open_inspector(
        source.bootstrap,
        connect=source.connect,
        clock=clock,
        authenticator=source.authenticator,
        inside=source.inside,
        client_id=_CLIENT_ID,
    ) as inspector:
        parts = Parts(
            source=source,
            inspector=inspector,
            clock=clock,
            sampler=Sampler(inspector, clock),
            rendering=Rendering(clock),
            is_read_only=settings.is_read_only,
        )
        task_status.started(Opened(Routes(all_pages()), parts))
        await trio.sleep_forever()


def all_pages() -> list[Page]:
    """Return the ``PAGE`` of every module in ``pages/``: a new page is a new file."""
    package = importlib.import_module("splashdam.console.pages")
    modules = pkgutil.iter_modules(package.__path__, package.__name__ + ".")
    return [importlib.import_module(each.name).PAGE for each in modules]


class Opened(NamedTuple):
    """What the first request opens."""

    routes: Routes
    parts: Parts


class Desk:
    """Where every request arrives.

    Args:
        guard: admits it.
        opens: opens what pages need; called for the first request that is admitted.
    """

    def __init__(self, guard: Guard, opens: Callable[[], Awaitable[Opened]]) -> None:
        self._guard = guard
        self._opens = opens
        self._opened: Opened | None = None
        self._turn = trio.Lock()

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer, with the headers that every answer has."""
        answer = await self._admitted(request)
        return attrs.evolve(answer, headers=with_security(answer.headers))

    async def _admitted(self, request: HttpRequest) -> HttpAnswer:
        guard = self._guard
        # Before the guard, which may refuse the printed link: its token is not in a cookie yet.
        kept = self._kept_token(request)
        if kept is not None:
            return kept
        refusal = guard.refusal(request)
        if refusal is not None:
            return refusal
        # A browser asks for several files at once, and only one request opens.
        async with self._turn:
            if self._opened is None:
                self._opened = await self._opens()
        routes, parts = self._opened
        folders = request.path.split("/")
        if len(folders) == 4 and folders[1] == "static":
            return parts.rendering.static(folders[2], folders[3])
        may_change = not guard.is_read_only and guard.has_token(request)
        return await routes.answer(request, parts, may_change=may_change)

    def _kept_token(self, request: HttpRequest) -> HttpAnswer | None:
        """Return the answer to the printed link: the same address without the token."""
        if request.method != "GET" or f"{_TOKEN}=" not in request.query:
            return None
        fields = parse_qsl(request.query, keep_blank_values=True)
        given = [value for name, value in fields if name == _TOKEN]
        if request.headers.get("host", "").lower() not in self._guard.hosts or not given:
            return None
        if not self._guard.matches(*given):
            return None
        rest = urlencode([(name, value) for name, value in fields if name != _TOKEN])
        return self._guard.keep_token(f"/{request.path.lstrip('/')}" + (f"?{rest}" if rest else ""))
