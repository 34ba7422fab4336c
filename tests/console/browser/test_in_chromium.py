"""The console in a real browser: every page, what is live on it, keys, and what foreign text can do."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import kafka
import pytest
from support.console.chromium import SMALL, Complaints

from splashdam import EmbeddedBroker, KafkaProducer

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]  # one after the other, in one worker

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"
PATHS = (
    "/",
    "/topics/orders",
    "/messages",
    "/topics/orders/messages",
    "/topics/orders/send",
    "/log",
    "/log/orders/0",
    "/log/orders/0?batch=3",
    "/log/users/0?forecast=1",
    "/producers",
    "/groups",
    "/transactions",
)
RULES = "wcag2a, wcag2aa, wcag21a, wcag21aa, wcag22aa, best-practice"


def address_of(broker: EmbeddedBroker) -> str:
    """The address without the token."""
    return broker.console_link.partition("/?")[0]


def fill(producer: KafkaProducer, count: int = 60) -> None:
    """Records in both topics, and a lingering batch's worth of clients."""
    for number in range(count):
        producer.send("orders", b'{"plank": %d}' % number, key=b"k%d" % (number % 7), partition=0)
        producer.send("users", b"x" * 400, key=b"u%d" % (number % 5))
        producer.flush()


@contextmanager
def sending(producer: KafkaProducer) -> Iterator[None]:
    """A thread that sends for the block."""
    stop = threading.Event()

    def send() -> None:
        number = 0
        while not stop.wait(0.05):
            producer.send("orders", b"live %d" % number, partition=0)
            number += 1

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def violations(page: Page, axe: str) -> list[str]:
    """What axe finds on the page that is open."""
    # Not a script tag: the page's Content-Security-Policy would refuse it, as it should.
    page.evaluate(axe)
    found = page.evaluate(
        "rules => axe.run(document, {runOnly: rules}).then(r => r.violations.map("
        "v => v.id + ': ' + v.nodes.map(n => n.html).slice(0, 3).join(' | ')))",
        RULES.split(", "),
    )
    return [str(each) for each in found]


@pytest.mark.parametrize("look", [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")])
def test_every_page_is_accessible_and_fits(
    page: Page, broker: EmbeddedBroker, producer: KafkaProducer, axe: str, look: tuple[int, str]
) -> None:
    """No violation in axe, and nothing to scroll sideways, in light and dark, on a desk and on a phone."""
    width, scheme = look
    compact_users(broker)
    fill(producer)
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of its literals
    page.goto(broker.console_link)
    found = {}
    for path in PATHS:
        answer = page.goto(address_of(broker) + path)
        assert answer is not None
        assert answer.status == 200, path
        found[path] = violations(page, axe)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        nav = page.locator(".top nav")
        assert nav.evaluate("nav => nav.scrollWidth <= nav.clientWidth"), path
    assert {path: each for path, each in found.items() if each} == {}


def compact_users(broker: EmbeddedBroker) -> None:
    """Have a topic compacted."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    resource = kafka.admin.ConfigResource(
        kafka.admin.ConfigResourceType.TOPIC, "users", {"cleanup.policy": "compact"}
    )
    admin.alter_configs([resource])
    admin.close()


def test_the_link_lets_change_and_the_address_only_look(
    page: Page, broker: EmbeddedBroker, producer: KafkaProducer
) -> None:
    """The token moves from the address into a cookie."""
    page.goto(f"{address_of(broker)}/topics/orders/send")
    assert "You may only look" in page.inner_text("main")
    page.goto(broker.console_link)
    assert "token" not in page.url
    page.goto(f"{address_of(broker)}/topics/orders/send")
    page.fill("textarea[name=value]", "a plank")
    page.fill("input[name=key]", "spruce")
    page.click("button.main")
    page.wait_for_selector("text=a plank")


def test_numbers_change_while_a_producer_sends(
    page: Page, broker: EmbeddedBroker, producer: KafkaProducer
) -> None:
    """In place: the row that is chosen stays chosen, and the page is not loaded again."""
    fill(producer, 3)
    page.goto(broker.console_link)
    page.keyboard.press("j")
    page.wait_for_selector("tr.here")
    row = page.locator('tr[data-key="orders"]')
    page.evaluate("window.isStillHere = true")
    before = row.inner_text()
    with sending(producer):
        page.wait_for_function(
            "text => document.querySelector('tr[data-key=orders]').innerText !== text", arg=before
        )
    assert page.locator("tr.here").count() == 1
    assert page.evaluate("window.isStillHere")


def test_two_producers_of_one_name_stay_on_the_page(
    page: Page, broker: EmbeddedBroker, producer: KafkaProducer
) -> None:
    """The first refresh made one of two, since both had one key."""
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id="shop"):
        page.goto(f"{address_of(broker)}/producers")
        page.evaluate("document.addEventListener('calm:changed', () => (window.isChanged = true))")
        page.wait_for_function("() => window.isChanged")
        assert page.locator("#live h2").count() == 2
        assert [page.locator("#live h2").nth(n).inner_text() for n in (0, 1)] == ["shop running"] * 2


def test_a_tail_shows_what_comes(page: Page, broker: EmbeddedBroker, producer: KafkaProducer) -> None:
    """Until it is stopped."""
    fill(producer, 2)
    page.goto(f"{address_of(broker)}/topics/orders/messages")
    page.click("[data-tail]")
    page.wait_for_selector("text=Watching: nothing has come yet.")
    with sending(producer):
        page.wait_for_selector("#rows >> text=live 3")
    page.click("[data-tail]")
    assert page.inner_text("#status") == "Stopped."


def test_a_search_finds_streams_and_can_be_stopped(
    page: Page, broker: EmbeddedBroker, producer: KafkaProducer
) -> None:
    """It says how much it has searched."""
    fill(producer)
    page.goto(f"{address_of(broker)}/topics/orders/messages")
    page.fill("input[name=q]", '"plank": 42')
    page.click("button[type=submit]")
    page.wait_for_selector("text=/1 record in all that there is to search/")
    assert page.locator("#rows tr").count() == 1
    page.fill("input[name=q]", "nowhere")
    page.evaluate(
        "() => { const b = document.querySelector('.finder button[type=submit]'); b.click(); b.click(); }"
    )
    assert page.inner_text("#status").startswith("Stopped.")
    assert page.inner_text(".finder button[type=submit]") == "Search"


def test_a_reset_shows_what_it_would_do_before_it_does(
    page: Page, broker: EmbeddedBroker, producer: KafkaProducer
) -> None:
    """The offsets change with the second button alone."""
    fill(producer, 9)
    where = kafka.TopicPartition("orders", 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="billing")
    consumer.assign([where])
    consumer.commit({where: kafka.structs.OffsetAndMetadata(9, "", -1)})
    page.goto(broker.console_link)
    page.goto(f"{address_of(broker)}/groups/billing/reset")
    page.select_option("select[name=to]", "earliest")
    page.click("text=Show what would change")
    page.wait_for_selector("text=nothing has been changed yet")
    assert consumer.committed(where) == 9
    consumer.close()
    page.click("button.danger")
    page.wait_for_url(re.compile("/groups/billing$"))
    again = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="billing")
    assert again.committed(where) == 0
    again.close()


def test_keys(page: Page, broker: EmbeddedBroker, producer: KafkaProducer) -> None:
    """Everything is reached without a mouse."""
    fill(producer, 2)
    page.goto(broker.console_link)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.matches('[data-filter]')")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    for key, address in (
        ("l", "/log"),
        ("g", "/groups"),
        ("p", "/producers"),
        ("m", "/messages"),
        ("o", "/"),
    ):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(address_of(broker) + address)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/topics/orders"))


def test_foreign_text_stays_text(page: Page, broker: EmbeddedBroker, complaints: Complaints) -> None:
    """A script in keys, values, headers, client ids and a group's name runs nowhere."""
    text = HOSTILE.encode()
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, client_id=HOSTILE, linger_ms=60_000
    ) as producer:
        for _ in range(40):
            producer.send("orders", text, key=text, headers=[(HOSTILE, text)], partition=0)
            producer.send("users", text, key=text)
        producer.flush()
        producer.send("orders", text)
        consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=HOSTILE)
        consumer.assign([kafka.TopicPartition("orders", 0)])
        consumer.commit({kafka.TopicPartition("orders", 0): kafka.structs.OffsetAndMetadata(1, HOSTILE, -1)})
        consumer.close()
        page.goto(broker.console_link)
        for path in (*PATHS, "/topics/orders/records/0/1", "/topics/__consumer_offsets/messages"):
            page.goto(address_of(broker) + path)
            assert page.locator("img").count() == 0, path
            assert page.evaluate("document.querySelectorAll('script:not([src])').length") == 0, path
        page.goto(f"{address_of(broker)}/topics/orders/messages?q=alert")
        page.wait_for_selector("#rows tr")
    assert complaints == []


def test_a_broker_that_restarts_while_the_page_is_open(
    page: Page, complaints: Complaints, tmp_path: Path
) -> None:
    """The page says so and goes on by itself."""

    def started(port: int) -> EmbeddedBroker:
        broker = EmbeddedBroker(
            tmp_path / "data", fsync=False, config=SMALL, topics={"orders": 1}, console_port=port
        )
        broker.start()
        return broker

    broker = started(0)
    address = address_of(broker)
    page.goto(address)
    page.wait_for_selector('tr[data-key="orders"]')
    broker.stop()
    page.wait_for_selector("text=The console does not answer.")
    broker = started(int(address.rpartition(":")[2]))
    try:
        page.wait_for_selector("#away", state="hidden")
        page.wait_for_selector('tr[data-key="orders"]')
    finally:
        broker.stop()
    assert complaints
    complaints.clear()  # the browser notes each request that had no answer


def test_a_topic_that_is_deleted_while_its_page_is_open(
    page: Page, broker: EmbeddedBroker, complaints: Complaints
) -> None:
    """Its figures stood there for good."""
    page.goto(f"{address_of(broker)}/topics/users")
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.delete_topics(["users"])
    admin.close()
    page.wait_for_selector("text=There is no topic users in this cluster.")
    assert complaints
    complaints.clear()  # the browser notes each answer of 404


def test_without_scripts_every_page_is_read(
    page: Page, broker: EmbeddedBroker, producer: KafkaProducer
) -> None:
    """Forms are addresses, and what is live is there at once."""
    fill(producer, 5)
    context = page.context.browser.new_context(java_script_enabled=False)  # type: ignore[union-attr]  # it has one
    plain = context.new_page()
    for path in PATHS:
        plain.goto(address_of(broker) + path)
        assert plain.inner_text("h1"), path
    plain.goto(f"{address_of(broker)}/topics/orders/messages?q=plank")
    assert plain.locator("#rows tr").count() == 5
    context.close()
