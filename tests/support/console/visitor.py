"""A browser's side of the console: requests by h11 over a network in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import attrs
import h11
import trio

from splashdam.net.connect import Connect


@attrs.frozen
class Page:
    """An answer."""

    status: int
    headers: dict[str, str]
    text: str


def cells(text: str, key: str) -> str:
    """The row of a key, without its markup."""
    row = text.partition(f'data-key="{key}"')[2].partition("</tr>")[0]
    return " ".join(" ".join(part.partition(">")[2] for part in row.split("<")).split())


class Visitor:
    """Asks a console; with ``is_known`` it shows the token, as after a visit of the printed link."""

    def __init__(self, connect: Connect, host: str, port: int, token: str, *, is_known: bool = True) -> None:
        self._connect = connect
        self._host, self._port = host, port
        self._own = {"Host": f"{host}:{port}"}
        if is_known:
            self._own["Cookie"] = f"splashdam-console-{port}={token}"

    async def get(self, path: str, **headers: str) -> Page:
        """A page; of headers underscores are hyphens, and an empty one is left out."""
        return await self.ask("GET", path, headers)

    async def live(self, path: str) -> Page:
        """The part that an open page asks for again."""
        return await self.get(path, HX_Request="true")

    async def post(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> Page:
        """Send a form, as a page of the console does."""
        own = {"Origin": f"http://{self._host}:{self._port}"}
        return await self.ask("POST", path, {**own, **headers}, urlencode(fields or {}).encode())

    async def ask(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> Page:
        """Any request, on a connection of its own."""
        async with self.stream(method, path, headers, body) as (head, pieces):
            text = await pieces.rest()
            named = {name.decode(): value.decode() for name, value in head.headers}
            return Page(head.status_code, named, text)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> AsyncIterator[tuple[h11.Response, Pieces]]:
        """The head of an answer, and its body as it comes."""
        sent = {**self._own, **{name.replace("_", "-"): each for name, each in (headers or {}).items()}}
        if method == "POST":
            sent["Content-Length"] = str(len(body))
        async with await self._connect(self._host, self._port) as stream:
            connection = h11.Connection(h11.CLIENT)
            head = h11.Request(
                method=method, target=path, headers=[(name, each) for name, each in sent.items() if each]
            )
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                await stream.send_all(connection.send(event) or b"")
            response = await _next_event(connection, stream)
            assert isinstance(response, h11.Response)
            yield response, Pieces(connection, stream)


class Pieces:
    """The body of an answer, piece by piece."""

    def __init__(self, connection: h11.Connection, stream: trio.abc.Stream) -> None:
        self._connection = connection
        self._stream = stream

    async def next(self) -> str:
        """The next piece; empty at the end."""
        event = await _next_event(self._connection, self._stream)
        return bytes(event.data).decode() if isinstance(event, h11.Data) else ""

    async def until(self, text: str) -> str:
        """All up to the piece that has a text in it."""
        found = ""
        while text not in found:
            piece = await self.next()
            assert piece, f"{text!r} did not come, only {found!r}"
            found += piece
        return found

    async def rest(self) -> str:
        """All that is left."""
        found = ""
        while piece := await self.next():
            found += piece
        return found


async def _next_event(connection: h11.Connection, stream: trio.abc.Stream) -> object:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(bytes(await stream.receive_some(65536)))
    return event
