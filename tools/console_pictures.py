"""Takes the README's pictures of the console: ``python tools/console_pictures.py``.

It needs Playwright and a Chromium, as ``make console-test`` does. The pictures show a broker and producers of
this process: orders that are sent, a group that lags behind, a producer that lingers.
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from splashdam import EmbeddedBroker, KafkaProducer

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
SIZE = {"width": 1100, "height": 760}
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SMALLER = """async ([png, quality]) => {
  const picture = new Image();
  picture.src = 'data:image/png;base64,' + png;
  await picture.decode();
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [picture.width, picture.height];
  canvas.getContext('2d').drawImage(picture, 0, 0);
  return canvas.toDataURL('image/webp', quality).split(',')[1];
}"""


def live(servers: str, stop: threading.Event) -> None:
    """Make the traffic of the pictures: a shop that sells, and a group that cannot keep up."""
    with (
        KafkaProducer(bootstrap_servers=servers, client_id="shop", linger_ms=2) as shop,
        KafkaProducer(bootstrap_servers=servers, client_id="billing", linger_ms=30_000) as billing,
    ):
        where = TopicPartition("orders", 0)
        consumer = KafkaConsumer(bootstrap_servers=servers, group_id="invoices", client_id="invoices")
        consumer.assign([where])
        number = 0
        while not stop.wait(0.02):
            for _ in range(20):
                shop.send(
                    "orders",
                    b'{"order": %d, "planks": %d}' % (number, number % 9 + 1),
                    key=b"%d" % (number % 50),
                )
                number += 1
            if number % 200 == 0:
                billing.send("invoices", b'{"order": %d}' % number, key=b"%d" % number)
                shop.send("returns", b'{"order": %d}' % number, key=b"%d" % number)
                consumer.commit({where: OffsetAndMetadata(number // 12, "", -1)})
        consumer.close()


def main() -> int:
    """Run the command; return 1 without a Chromium."""
    from playwright.sync_api import sync_playwright

    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        print("no Chromium (Debian: chromium)", file=sys.stderr)
        return 1
    topics = {"orders": 6, "invoices": 3, "returns": 1}
    stop = threading.Event()
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker(folder, topics=topics, console_port=0) as broker,
    ):
        thread = threading.Thread(target=live, args=(broker.bootstrap_servers, stop))
        thread.start()
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
                blank = browser.new_page()
                page = browser.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]  # a TypedDict
                page.goto(broker.console_link)
                time.sleep(30)  # so that there are rates to draw
                for name, where in (("console-overview", "/"), ("console-producers", "/producers")):
                    page.goto(broker.console_link.partition("/?")[0] + where)
                    page.wait_for_timeout(3_000)
                    png = base64.b64encode(page.screenshot()).decode()
                    webp = base64.b64decode(blank.evaluate(SMALLER, [png, 0.8]))
                    (PICTURES / f"{name}.webp").write_bytes(webp)
                    print(f"docs/pictures/{name}.webp: {len(webp):,} bytes")
                browser.close()
        finally:
            stop.set()
            thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
