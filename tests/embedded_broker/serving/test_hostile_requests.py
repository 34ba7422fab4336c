"""A small part of what ``make fuzz`` does for minutes: the same rounds in every run."""

from __future__ import annotations

import random
from typing import Any

import pytest

from lab.fuzzing import broker as fuzz_broker
from lab.fuzzing.broker import KINDS, FindingError, hunt, run
from lab.fuzzing.hostile_requests import RequestMaker
from splashdam.embedded_broker.serving.registry import registered_apis
from splashdam.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest

ROUNDS = [(kind, seed) for kind in KINDS for seed in range(3)]


@pytest.mark.parametrize(("kind", "seed"), ROUNDS)
def test_brokers_stay_sane(kind: str, seed: int) -> None:
    """Requests are answered or refused at a bounded cost; honest clients are served, also after a restart."""
    session = run(kind, seed, 120)
    assert session.answered > session.asked / 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_holds_the_loop_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding names the request, and the task whose step took so long each time."""
    monkeypatch.setattr(fuzz_broker, "MOST_HOLD_SECONDS", 0.0)
    with pytest.raises(
        FindingError, match=r"request \d+ holds the loop for [\d.]+ s of CPU, in .+:\n\w+Request"
    ):
        hunt(kind, 0, 5)


def test_every_api_is_asked_in_every_version() -> None:
    """The fuzzer sends every request that the broker serves."""
    maker, asked = RequestMaker(random.Random(1)), set()
    for _ in range(4000):
        request, version = maker.request()
        asked.add((request.API_KEY, version))
    served = {(key, version) for key, api in registered_apis().items() for version in api.versions}
    assert len(served - asked) < len(served) / 20
    assert {key for key, _ in asked} == set(registered_apis())


def test_requests_of_the_fuzzer_are_bounded() -> None:
    """Lists in lists of long texts came to 8 GB, and the fuzzer died of its own request."""

    class LargestCounts(random.Random):
        """Takes the last of what there is to choose from: of counts the largest, of texts a long one."""

        def choice(self, seq: Any) -> Any:
            return max(seq) if all(isinstance(each, int) for each in seq) else max(seq, key=str)

        def random(self) -> float:
            return 0.1

    maker = RequestMaker(LargestCounts(1))
    maker._wrong = maker._null = 0.5
    request = maker._struct(AddPartitionsToTxnRequest, 5)
    frame, _ = maker.frame(request, 5, 0)
    assert 1_000 < len(frame) < 16 << 20
