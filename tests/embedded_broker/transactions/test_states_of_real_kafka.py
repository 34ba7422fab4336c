"""The states in a directory that a real Kafka wrote: read, written to the byte, and gone on with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import attrs
import pytest
from support.kafka.kafka_states import (
    ABORTED,
    COMMITTED,
    FRESH,
    OPEN,
    REPLACED,
    States,
    read_by_us,
    stored,
    write_states,
)
from support.kafka.make_golden import GOLDEN
from support.storage.format_pages import examples

from splashdam.embedded_broker.broker import open_broker
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.embedded_broker.transactions.metadata import TransactionMetadata, TransactionState
from splashdam.embedded_broker.transactions.records import decode_key, decode_value, encode_key, encode_value
from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.values import TopicPartition

SOURCE = GOLDEN / "states-4.3.1"
S = TransactionState


def test_read_as_kafkas_tool_reads_them() -> None:
    """Every state that each transactional id went through."""
    assert read_by_us(SOURCE) == json.loads((SOURCE / "states.json").read_text())


def test_written_as_kafka_writes_them() -> None:
    """Byte for byte, tagged fields included."""
    for record in stored(SOURCE):
        transactional_id = decode_key(record.key or b"")
        assert transactional_id is not None
        assert encode_key(transactional_id) == record.key
        assert encode_value(decode_value(transactional_id, record.value or b""), 2) == record.value


def test_the_page_shows_one_of_them() -> None:
    """docs/format/transaction-state.md: key and value of the open transaction."""
    key, value = examples("transaction-state.md")
    assert (key, value) in {(record.key, record.value) for record in stored(SOURCE)}
    assert decode_value(OPEN, value).state is S.ONGOING


def test_version_0_has_no_tagged_fields() -> None:
    """The record with transaction.version 0: lengths of fixed size, and the other fields are lost."""
    known = TransactionMetadata(
        transactional_id="tx",
        producer_id=2,
        producer_epoch=1,
        timeout_ms=60_000,
        last_update_ms=7,
        start_ms=5,
        state=S.ONGOING,
        partitions=frozenset([TopicPartition("t", 1)]),
        client_version=2,
    )
    value = encode_value(known, 0)
    assert value == bytes.fromhex(
        "0000 0000000000000002 0001 0000ea60 01 00000001 0001 74 00000001 00000001"
        "0000000000000007 0000000000000005"
    )
    assert decode_value("tx", value) == attrs.evolve(known, client_version=0)


def history_of(states: States) -> States:
    """Without times, and with producer ids by the order of their transactional ids.

    Of open states in a row the last one is taken: on a busy machine librdkafka's timer comes between two
    partitions, and they are added by two requests.
    """
    return {
        name: [
            {
                field: value == history[0]["producerId"] if field.endswith("roducerId") else value
                for field, value in state.items()
                if not field.endswith("TimestampMs")
            }
            for state, following in zip(history, [*history[1:], {}], strict=True)
            if not S.ONGOING.value == state["transactionStatus"] == following.get("transactionStatus")
        ]
        for name, history in states.items()
    }


def test_partitions_added_by_two_requests_are_one_step_of_a_history() -> None:
    """Which of them librdkafka's timer sends apart is chance; what follows the last one is not."""
    theirs = json.loads((SOURCE / "states.json").read_text())
    parted = {
        name: [
            part
            for state in history
            for part in (
                [{**state, "transactionPartitions": state["transactionPartitions"][:1]}, state]
                if state["transactionStatus"] == S.ONGOING.value
                else [state]
            )
        ]
        for name, history in theirs.items()
    }
    assert parted != theirs
    assert history_of(parted) == history_of(theirs)


def test_our_histories_are_kafkas(tmp_path: Path) -> None:
    """The same requests of the same client lead through the same states, record by record."""
    with EmbeddedBroker(tmp_path, transaction_state_log_num_partitions=1) as broker:
        producers = write_states(broker.bootstrap_servers)
    del producers
    theirs = json.loads((SOURCE / "states.json").read_text())
    assert history_of(read_by_us(tmp_path)) == history_of(theirs)


async def test_gone_on_with(tmp_path: Path) -> None:
    """The broker takes over each transactional id where Kafka left it."""
    shutil.copytree(SOURCE, tmp_path / "data", copy_function=shutil.copyfile)
    async with open_broker(tmp_path / "data", port=None) as broker:
        coordinator = broker.transactions
        assert {name: known.state for name, known in coordinator.states.items()} == {
            COMMITTED: S.COMPLETE_COMMIT,
            ABORTED: S.COMPLETE_ABORT,
            OPEN: S.ONGOING,
            REPLACED: S.EMPTY,
            FRESH: S.EMPTY,
        }
        expected = {COMMITTED: (0, 1), ABORTED: (1, 1), OPEN: (2, 2), REPLACED: (3, 3), FRESH: (4, 1)}
        assert {name: coordinator.initialize(name, 60_000) for name in expected} == expected
        assert coordinator.initialize("new", 60_000).producer_id > 4


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\2", b"\0\0\0", b"\0\1" + b"\xff" * 60])
def test_values_that_are_none(data: bytes) -> None:
    """Too short, of an unknown version, or with an unknown state."""
    with pytest.raises(CorruptMessageError, match="tx"):
        decode_value("tx", data)


def test_keys_that_are_none() -> None:
    """One of a version to come is passed over, as Kafka does; one that is cut off is damage."""
    assert decode_key(b"\0\1anything") is None
    for data in (b"", b"\0\0\0\5abc"):
        with pytest.raises(CorruptMessageError):
            decode_key(data)
