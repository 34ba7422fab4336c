"""Who may see, who may change: Host, Origin, the token, the headers of answers."""

from __future__ import annotations

import pytest
from support.console.visitor import Visitor

from splashdam.console.console import ConsoleSettings
from splashdam.console.guard import Guard
from splashdam.net.http import HttpRequest

GUARD = Guard.on("127.0.0.1", 8080, "secret")
OURS = {"host": "localhost:8080", "origin": "http://localhost:8080"}
COOKIE = {"cookie": "other=1; splashdam-console-8080=secret"}


def refused(method: str, guard: Guard = GUARD, **headers: str) -> bool:
    request = HttpRequest(
        method=method, path="/", headers={name.replace("_", "-"): each for name, each in headers.items()}
    )
    answer = guard.refusal(request)
    assert answer is None or answer.status == 403
    return answer is not None


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080", "[::1]:8080"])
def test_own_names_are_answered(host: str) -> None:
    """All names of this machine, with the port."""
    assert not refused("GET", host=host)


@pytest.mark.parametrize("host", ["", "evil.example", "evil.example:8080", "127.0.0.1", "localhost:80"])
def test_a_name_that_was_rebound_to_this_machine_is_refused(host: str) -> None:
    """DNS rebinding: the browser thinks that it asks the site of an attacker."""
    assert refused("GET", host=host)
    assert refused("POST", **{**OURS, **COOKIE, "host": host})


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "https://localhost:8080", "http://localhost", "null"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_pages_of_other_sites_are_refused(origin: str, method: str) -> None:
    """CSRF; with the cookie, too."""
    assert refused(method, **{**OURS, **COOKIE, "origin": origin})


def test_a_link_on_another_site_may_lead_here_but_not_load_from_here() -> None:
    """A visit shows nothing to the other site; a script or picture might."""
    navigates = {"host": "localhost:8080", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert not refused("GET", **navigates)
    assert refused("POST", **navigates, **COOKIE)
    assert refused("GET", **{**navigates, "sec_fetch_mode": "no-cors"})


def test_a_change_needs_the_token() -> None:
    """In the cookie of a page, or in a header of a program."""
    assert refused("POST", **OURS)
    assert refused("POST", **OURS, cookie="splashdam-console-8080=guess")
    assert refused("POST", **OURS, cookie="splashdam-console-9999=secret")
    assert not refused("POST", **OURS, **COOKIE)
    assert not refused("POST", host="localhost:8080", authorization="Bearer secret")


def test_a_cookie_alone_proves_nothing() -> None:
    """Without an Origin nobody knows who made the browser send it."""
    assert refused("POST", host="localhost:8080", **COOKIE)


def test_a_read_only_console_changes_nothing_for_anybody() -> None:
    """With the token either."""
    guard = Guard.on("127.0.0.1", 8080, "secret", is_read_only=True)
    assert refused("POST", guard, **OURS, **COOKIE)
    assert not refused("GET", guard, host="localhost:8080")


def test_on_an_address_that_others_reach_seeing_needs_the_token() -> None:
    """The console answers to no other name there."""
    guard = Guard.on("192.0.2.7", 8080, "secret", reads_need_token=True)
    assert refused("GET", guard, host="192.0.2.7:8080")
    assert refused("GET", guard, host="localhost:8080", **COOKIE)
    assert not refused("GET", guard, host="192.0.2.7:8080", **COOKIE)


async def test_the_link_moves_its_token_into_a_cookie(stranger: Visitor) -> None:
    """Which scripts cannot read and other sites cannot send; the address has it no longer."""
    page = await stranger.get("/topics/t?token=the-token&q=a+b")
    assert (page.status, page.headers["location"]) == (303, "/topics/t?q=a+b")
    cookie = page.headers["set-cookie"]
    assert cookie == "splashdam-console-8080=the-token; Path=/; HttpOnly; SameSite=Strict"


async def test_the_link_cannot_lead_to_another_site(stranger: Visitor) -> None:
    """``//evil.example`` would be an address of its own."""
    page = await stranger.get("//evil.example/?token=the-token")
    assert page.headers["location"] == "/evil.example/"


async def test_a_wrong_token_is_no_token(stranger: Visitor) -> None:
    """The page is shown as to anybody."""
    page = await stranger.get("/?token=guess")
    assert (page.status, "set-cookie" in page.headers) == (200, False)
    assert "looking only" in page.text


@pytest.mark.parametrize("how", [ConsoleSettings(host="127.0.0.1", port=8080, reads_need_token=True)])
async def test_where_seeing_needs_the_token_strangers_see_nothing(
    stranger: Visitor, visitor: Visitor, how: ConsoleSettings
) -> None:
    """Static files either."""
    assert (await stranger.get("/")).status == 403
    assert (await visitor.get("/")).status == 200


@pytest.mark.parametrize("path", ["/", "/missing", "/static/0/console.css", "/topics/none"])
async def test_every_answer_forbids_what_pages_do_not_need(visitor: Visitor, path: str) -> None:
    """No inline script, no other site, no frame, no guess of types; and no copy in a cache."""
    headers = (await visitor.get(path)).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
