"""A token endpoint in the test process: it gives tokens for a client's secret, or answers as it is told."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from splashdam.net.sasl.unsecured_jws import unsecured_token

CLIENT, CLIENT_SECRET = "orders-service", "idp-hunter2/secret+"

Answer = Callable[[BaseHTTPRequestHandler], object]


class TokenServer:
    """One that runs.

    Attributes:
        url: of the token endpoint.
        asked: the form of each request, and who asked.
        answers: what the next requests are answered with, instead of a token.
        lifetime_s: of the tokens.
        asked_twice: set by the second request.
        done: set at the end, for answers that wait.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.asked: list[dict[str, str]] = []
        self.answers: list[Answer] = []
        self.lifetime_s: float | None = 3600
        self.asked_twice = threading.Event()
        self.done = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that go away
        self._http.daemon_threads = True
        scheme = "http"
        if context is not None:
            scheme = "https"
            self._http.socket = context.wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"{scheme}://localhost:{self._http.server_address[1]}/token?tenant=t1"

    @contextmanager
    def running(self) -> Iterator[TokenServer]:
        """Until the end of the block."""
        thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.done.set()
            self._http.shutdown()
            self._http.server_close()
            thread.join()

    def give(self, handler: BaseHTTPRequestHandler) -> None:
        """A token, if the client knows the secret."""
        known = "Basic " + base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
        if handler.headers["Authorization"] != known:
            answer(401, {"error": "invalid_client", "error_description": "who are you?"})(handler)
            return
        token = unsecured_token("anna", time.time(), lifetime_s=self.lifetime_s or 3600)
        told: dict[str, Any] = {"access_token": token, "token_type": "Bearer"}
        if self.lifetime_s is not None:
            told["expires_in"] = self.lifetime_s
        answer(200, told)(handler)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                server.asked.append({name: values[0] for name, values in form.items()})
                if len(server.asked) == 2:
                    server.asked_twice.set()
                (server.answers.pop(0) if server.answers else server.give)(self)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        return Handler


def answer(status: int, content: object, **headers: str) -> Answer:
    """Answers with JSON, or with bytes as they are."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return send
