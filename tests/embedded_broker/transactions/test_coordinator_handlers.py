"""FindCoordinator and InitProducerId, and the producer ids on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.broker.broker_talk import Talk

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.controller.producer_ids import ProducerIds
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.storage.directories.identity import PRODUCER_IDS_NAME
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("key_type", [0, 1])
async def test_this_broker_coordinates(talk: Talk, version: int, key_type: int) -> None:
    """Groups and transactional ids are answered at once, so that no client waits."""
    request = FindCoordinatorRequest(key="g", key_type=key_type if version else 0)
    answer = await talk.ask(request, version)
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "broker", 9092)


@pytest.mark.parametrize("version", range(4, 7))
async def test_several_keys(talk: Talk, version: int) -> None:
    """From version 4 on a request has many keys, and each its answer."""
    answer = await talk.ask(FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=1), version)
    assert [(found.key, found.error_code, found.node_id, found.port) for found in answer.coordinators] == [
        ("a", 0, 1, 9092),
        ("b", 0, 1, 9092),
    ]


async def test_share_groups_are_refused(talk: Talk) -> None:
    """Another key type is 42 with a text."""
    (found,) = (await talk.ask(FindCoordinatorRequest(coordinator_keys=["a"], key_type=2), 6)).coordinators
    assert (found.error_code, found.node_id) == (42, -1)
    assert found.error_message


@pytest.mark.parametrize("version", range(6))
async def test_producer_ids_differ(talk: Talk, version: int) -> None:
    """Every call gets another id, with epoch 0, whatever id it had before."""
    answers = [await talk.ask(InitProducerIdRequest(transactional_id=None), version) for _ in range(3)]
    if version >= 3:
        request = InitProducerIdRequest(transactional_id=None, producer_id=7, producer_epoch=3)
        answers.append(await talk.ask(request, version))
    assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(0, 0)}
    assert len({answer.producer_id for answer in answers}) == len(answers)


async def test_full_disk_gives_no_id(talk: Talk, broker: Broker) -> None:
    """An id that could be given twice is not given."""
    files = MemoryFiles()
    files.make_directory("/d")
    broker.producer_ids = ProducerIds(files, "/d", above=-1)
    files.inject(Fault(error_number=28))
    answer = await talk.ask(InitProducerIdRequest(transactional_id=None), 4)
    assert (answer.error_code, answer.producer_id) == (56, -1)
    answer = await talk.ask(InitProducerIdRequest(transactional_id=None), 4)
    assert (answer.error_code, answer.producer_id) == (0, 0)


def test_no_restart_gives_an_id_again(tmp_path: Path) -> None:
    """Ids of a block that was begun are lost at a restart, clean or not."""
    given = []
    for _ in range(3):
        ids = ProducerIds(DiskFiles(), str(tmp_path), above=-1)
        given += [ids.next_id() for _ in range(1500)]
    assert len(set(given)) == len(given)
    assert given == sorted(given)


def test_ids_start_above_those_in_the_logs(tmp_path: Path) -> None:
    """A directory that another broker wrote has producers, but not our file."""
    assert ProducerIds(DiskFiles(), str(tmp_path), above=41).next_id() == 42


def test_ids_that_somebody_has_are_skipped(tmp_path: Path) -> None:
    """Those in the coordinator's log; an id that was handed out already moves nothing back."""
    ids = ProducerIds(DiskFiles(), str(tmp_path), above=-1)
    ids.skip(41)
    assert ids.next_id() == 42
    ids.skip(7)
    assert ids.next_id() == 43


@pytest.mark.parametrize("content", [b"", b"0\n", b"0\nx\n", b"1\n5\n", b"0\n-5\n", b"0\n\xd9\xa5\n"])
def test_a_damaged_log_is_reported(tmp_path: Path, content: bytes) -> None:
    """Guessing could give an id again, so the broker does not start."""
    (tmp_path / PRODUCER_IDS_NAME).write_bytes(content)
    with pytest.raises(KafkaStorageError, match=PRODUCER_IDS_NAME):
        ProducerIds(DiskFiles(), str(tmp_path), above=-1)
