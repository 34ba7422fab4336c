"""Who may see and who may change: Host and Origin (DNS rebinding, CSRF), the token, headers of answers."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie

import attrs

from splashdam.net.connect import address_text
from splashdam.net.http import HttpAnswer, HttpRequest, text_answer

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

_READING = frozenset({"GET", "HEAD"})

SECURITY_HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),  # with no-referrer browsers send "Origin: null" with forms
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
"""Of every answer. Records are foreign text: no inline script or style runs, and nothing else is loaded."""


@attrs.frozen(kw_only=True)
class Guard:
    """Admits requests.

    Attributes:
        hosts: what ``Host`` may say; a page of another name that resolves to this machine is refused.
        token: of the link; whoever has it may change things.
        cookie: name of the cookie that keeps the token; it has the port in it, since cookies do not.
        is_read_only: nothing may be changed, with the token either.
        reads_need_token: seeing needs the token, too.
    """

    hosts: frozenset[str]
    token: str
    cookie: str
    is_read_only: bool = False
    reads_need_token: bool = False

    @classmethod
    def on(cls, host: str, port: int, token: str, **how: bool) -> Guard:
        """Return the guard of a console that listens on an address."""
        names = LOOPBACK if host in LOOPBACK else {host}
        hosts = frozenset(address_text(name, port) for name in names)
        return cls(hosts=hosts, token=token, cookie=f"splashdam-console-{port}", **how)

    def has_token(self, request: HttpRequest) -> bool:
        """Return whether a request shows the token: in its cookie, or as ``Authorization: Bearer``."""
        given = [request.headers.get("authorization", "").removeprefix("Bearer ")]
        try:
            cookies = SimpleCookie(request.headers.get("cookie", ""))
        except CookieError:
            cookies = SimpleCookie()
        if self.cookie in cookies:
            given.append(cookies[self.cookie].value)
        return self.matches(*given)

    def matches(self, *given: str) -> bool:
        """Return whether one of the texts is the token, in a time that does not tell what of it is right."""
        # A list: `any` alone would stop at the first that fits, and tell by its time which one that was.
        found = [hmac.compare_digest(each.encode(), self.token.encode()) for each in given]
        return any(found)

    def refusal(self, request: HttpRequest) -> HttpAnswer | None:
        """Return why a request is refused; None if it is admitted."""
        host = request.headers.get("host", "").lower()
        if host not in self.hosts:
            return text_answer(403, f"this console answers at {self._places} only")
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{each}" for each in self.hosts}:
            return text_answer(403, "another site asks; this console answers to its own pages only")
        # A link on another site may lead here: it shows a page to the visitor, and nothing to the site.
        if request.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"} and not (
            request.method in _READING and request.headers.get("sec-fetch-mode") == "navigate"
        ):
            return text_answer(403, "another site asks; this console answers to its own pages only")
        if request.method in _READING:
            if self.reads_need_token and not self.has_token(request):
                return text_answer(
                    403, "this console needs the token of the link that was printed at its start"
                )
            return None
        return self._refusal_to_change(request, is_from_page=origin is not None)

    def _refusal_to_change(self, request: HttpRequest, *, is_from_page: bool) -> HttpAnswer | None:
        if self.is_read_only:
            return text_answer(403, "this console is read-only")
        # Without an Origin no page sent it, so a cookie alone proves nothing: a program shows the token.
        if not is_from_page and "authorization" not in request.headers:
            return text_answer(403, "a change needs an Origin, or the token as Authorization: Bearer")
        if not self.has_token(request):
            return text_answer(403, "a change needs the token: open the link that was printed at the start")
        return None

    def keep_token(self, location: str) -> HttpAnswer:
        """Return the answer to the printed link: the token moves from the address into a cookie."""
        cookie = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
        return HttpAnswer(status=303, headers=[("Location", location), ("Set-Cookie", cookie)])

    @property
    def _places(self) -> str:
        return " or ".join(sorted(self.hosts))


def with_security(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers of an answer, with those that every answer has."""
    given = list(headers)
    if not any(name.lower() == "cache-control" for name, _ in given):
        given.append(("Cache-Control", "no-store"))
    return [*given, *SECURITY_HEADERS]
