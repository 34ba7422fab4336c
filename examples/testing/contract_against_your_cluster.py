"""Does your cluster behave like Kafka? Checks some behaviours that clients rely on, and one of your own.

    python contract_against_your_cluster.py kafka.example.com:9092

Without an address an embedded broker is checked. Only topics and groups whose names begin with
"splashdam-contract-" are used; they are deleted afterwards. The whole contract: splashdam contract
--bootstrap …
"""

import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager

from splashdam import EmbeddedBroker
from splashdam.testing.contract.behaviour import Run, behaviour, expect
from splashdam.testing.contract.behaviours import all_behaviours
from splashdam.testing.contract.clients.splashdam_client import SplashdamClient
from splashdam.testing.contract.report import SIGNS, counts
from splashdam.testing.contract.running import hold_all
from splashdam.testing.contract.vocabulary import Record

WANTED = {
    "an_order_of_a_megabyte_arrives",
    "offsets_are_consecutive",
    "a_compacted_topic_requires_keys",
    "a_deleted_topic_is_gone",
}


@behaviour("produce", "fetch")
def an_order_of_a_megabyte_arrives(run: Run) -> None:
    """A behaviour that your own users rely on."""
    topic = run.topic(max_message_bytes="2000000")
    run.client.produce(topic, [Record(b"\x07" * 1_000_000)])
    (order,) = run.client.fetch(topic, count=1)
    expect(len(order.value or b""), 1_000_000, "bytes")


@contextmanager
def cluster() -> Generator[str, None, None]:
    """Yield the given address, or that of an embedded broker."""
    if len(sys.argv) > 1:
        yield sys.argv[1]
        return
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(folder, fsync=False) as broker:
        yield broker.bootstrap_servers


def main() -> None:
    chosen = [each for each in all_behaviours() if each.name in WANTED]
    with cluster() as address:
        client = SplashdamClient(address)
        results = hold_all(chosen, [client], client, address)
    for each in results:
        print(SIGNS[each.verdict], each.behaviour.title, each.why)
    print(counts(results))


if __name__ == "__main__":
    main()
