"""The arguments of ``send_many`` and ``send_arrow`` as people guess them, and what wrong ones are told."""

from __future__ import annotations

import inspect
from array import array
from typing import Any, ClassVar

import pytest

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.client.bulk.arguments import by_either_name, listed
from splashdam.client.bulk.sending import columns_of, sort_out
from splashdam.client.producer import KafkaProducer
from splashdam.model.errors import BulkSendError
from splashdam.model.values import TopicPartition

MILLION = 1_000_000
TOLD = 400
"""Characters that a message about arguments may have, however large these are."""


def stored(cluster: Any, topic: str) -> list[tuple[Any, ...]]:
    """Partition, key, value and timestamp of each record."""
    return [
        (place.partition, each.key, each.value, each.timestamp_ms)
        for place, log in sorted(cluster.scripted.logs.items())
        if place.topic == topic
        for each in log.records
    ]


class Column:
    """A column as pandas has it: items by iteration, numbers of another type, a long ``repr``."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Any:
        raise AssertionError("it was read item by item")

    def tolist(self) -> list[Any]:
        return list(self.items)

    def __eq__(self, other: object) -> Any:
        return self

    __hash__ = None  # type: ignore[assignment]  # unhashable, like a pandas Series

    def __bool__(self) -> bool:
        raise ValueError("the truth value of a Series is ambiguous")

    def __repr__(self) -> str:
        raise AssertionError("its items were shown")


@pytest.mark.parametrize("method", ["send_many", "send_arrow"])
def test_both_producers_take_the_same(method: str) -> None:
    """Names, order and defaults."""
    first, second = (
        [
            (each.name, each.kind, each.default)
            for each in inspect.signature(getattr(kind, method)).parameters.values()
        ]
        for kind in (KafkaProducer, AsyncKafkaProducer)
    )
    assert first == second


async def test_each_argument_has_two_names(cluster: Any, autojump_clock: Any) -> None:
    """The plural one is for many; the singular one for all, and for many, too."""
    one = {"keys": [b"a", b"b"], "partitions": [1, 0], "timestamps_ms": [5, 6]}
    other = {"key": [b"a", b"b"], "partition": (1, 0), "timestamp_ms": array("q", [5, 6])}
    async with cluster.producer() as producer:
        for arguments in (one, other, {**one, "partitions": Column([1, 0]), "keys": Column([b"a", b"b"])}):
            await (await producer.send_many("two", [b"1", b"2"], **arguments))
        await (await producer.send_many("two", [b"3", b"4"], key=b"k", partition=1, timestamp_ms=7))
    expected = [(1, b"a", b"1", 5), (0, b"b", b"2", 6)]
    assert stored(cluster, "two") == sorted(
        [*expected * 3, (1, b"k", b"3", 7), (1, b"k", b"4", 7)], key=lambda record: record[0]
    )


async def test_one_key_for_a_serializer(cluster: Any, autojump_clock: Any) -> None:
    """A serializer takes the key: a text, or a value that is not iterable."""
    async with cluster.producer(key_serializer=lambda key: str(key).encode()) as producer:
        for key in ("anna", 7):
            await (await producer.send_many("one", [b"1", b"2"], key=key))
    assert [record[1] for record in stored(cluster, "one")] == [b"anna", b"anna", b"7", b"7"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"keys": [b"k"], "key": b"k"}, "key and keys are two names of one argument: give one of them"),
        ({"partition": 0, "partitions": [0]}, "partition and partitions are two names of one argument"),
        ({"timestamp_ms": 0, "timestamps_ms": [0]}, "timestamp_ms and timestamps_ms are two names"),
        ({"keys": b"k"}, "keys must be a list .* not bytes; one for all records is key=…"),
        ({"partitions": 3}, "partitions must be a list .* not int; .* there is partition=…"),
        ({"timestamps": [1]}, "has no argument 'timestamps'. Did you mean 'timestamp_ms'"),
        ({"header": {}}, r"send_many\(\) has no argument 'header'. Did you mean 'headers'"),
        ({"keyz": [b"k"]}, "has no argument 'keyz'. Did you mean 'key'"),
        ({"on_delivery": print}, r"has no argument 'on_delivery'.\Z"),
    ],
)
async def test_wrong_names(cluster: Any, autojump_clock: Any, arguments: Any, problem: str) -> None:
    """They are named, with the right one; nothing is queued."""
    async with cluster.producer() as producer:
        with pytest.raises(TypeError, match=problem):
            await producer.send_many("one", [b"v"], **arguments)
    assert stored(cluster, "one") == []


@pytest.mark.parametrize("column", [[0, True], [True, 0], [True, 5], [None, True], (False,), [1000, False]])
@pytest.mark.parametrize("name", ["partition", "timestamp_ms"])
def test_a_flag_among_numbers_was_0_or_1(name: str, column: Any) -> None:
    """Beside some neighbours only. Now it is told, with its record, as by ``send``."""
    given: dict[str, Any] = {"partition": None, "timestamp_ms": None, name: column}
    number = [type(each) for each in column].index(bool)
    with pytest.raises(TypeError, match=f"^record {number}: {name} must be an int, not bool"):
        sort_out(len(column), None, given["partition"], given["timestamp_ms"], 0)


def test_the_default_column_of_keys_is_not_given() -> None:
    """``send_arrow``'s ``key="key"`` is its default; a column of another name contradicts ``keys``."""
    call = KafkaProducer.send_arrow
    assert by_either_name(call, {}, has_columns=True, key=("key", "id")) == ["id"]
    assert by_either_name(call, {}, has_columns=True, partition=(None, "p"), key=(None, None)) == ["p", None]
    with pytest.raises(TypeError, match="two names of one argument"):
        by_either_name(call, {}, has_columns=True, key=("other", "id"))
    with pytest.raises(TypeError, match=r"send_arrow\(\) has no argument 'values'. Did you mean 'value'"):
        by_either_name(call, {"values": 1}, has_columns=True)


def test_items_become_pythons_own() -> None:
    """Whoever can make a list does; scalars of numpy would take the slow way, one by one."""
    numpy = pytest.importorskip("numpy")
    pa = pytest.importorskip("pyarrow")
    for given in (
        numpy.array([1, 2]),
        pa.array([1, 2]),
        pa.chunked_array([[1], [2]]),
        range(1, 3),
        {1: 0, 2: 0}.keys(),
    ):
        assert listed(given) == [1, 2]
        assert {type(each) for each in listed(given)} == {int}
    assert listed(array("q", [1])) == array("q", [1])
    of_bytes = listed(numpy.array([b"a", b"bc"]))
    assert (of_bytes, type(of_bytes[0])) == ([b"a", b"bc"], bytes)
    with pytest.raises(TypeError, match="0-d"):
        listed(numpy.array(1))


class TestOfAMillion:
    """Errors about large arrays are short, and never look at their items to show them."""

    GIVEN: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(params=["list", "numpy", "pyarrow", "pandas", "frame"])
    def large(self, request: pytest.FixtureRequest) -> Any:
        """Made once."""
        if request.param not in self.GIVEN:
            self.GIVEN[request.param] = self.make(request.param)
        return self.GIVEN[request.param]

    @staticmethod
    def make(kind: str) -> Any:
        if kind == "list":
            return [0.5] * MILLION
        if kind == "pandas":
            return Column([0.5] * MILLION)
        if kind == "pyarrow":
            pa = pytest.importorskip("pyarrow")
            return pa.repeat(0.5, MILLION)
        if kind == "frame":
            pa = pytest.importorskip("pyarrow")
            return pa.table({"x": pa.repeat(0.5, MILLION)})
        numpy = pytest.importorskip("numpy")
        return numpy.full(MILLION, 0.5)

    @staticmethod
    def told(call: Any) -> str:
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        text = str(caught.value)
        assert len(text) < TOLD, text[:1000]
        assert "0.5, 0.5" not in text
        return text

    @pytest.mark.parametrize("place", ["partition", "timestamp_ms", "headers"])
    def test_beside_few_values(self, large: Any, place: str) -> None:
        """As what each record has."""
        if type(large).__name__ == "Table":
            pytest.skip("not iterable, so it is one value for all records; test_as_values has send refuse it")
        given = {"partition": None, "timestamp_ms": None, "headers": None, place: large}
        self.told(lambda: sort_out(2, given["headers"], given["partition"], given["timestamp_ms"], 0))
        self.told(lambda: sort_out(MILLION, given["headers"], given["partition"], given["timestamp_ms"], 0))

    def test_as_keys(self, large: Any) -> None:
        """Too many of them, or Arrow's."""
        assert "keys" in self.told(lambda: columns_of([b"v"], large))

    def test_in_a_header(self, large: Any) -> None:
        """As the key of a header, as its value, and in tuples of another length than two."""
        for headers in ([(large, b"x")], [("h", large)], [[(large, b"x", 1)]], [(large,)]):
            self.told(lambda headers=headers: sort_out(1, headers, None, None, 0) and self.pairs(headers))

    @staticmethod
    def pairs(headers: Any) -> Any:
        from splashdam.client.sending.arguments import header_pairs

        return header_pairs(headers)

    def test_as_an_option(self, large: Any) -> None:
        """Also where choices are compared, which arrays answer item by item."""
        for name in ("linger_ms", "acks", "batch_size", "client_id", "compression_type", "partitioner"):
            text = self.told(lambda name=name: KafkaProducer(**{name: large}))
            assert text.startswith(f"{name}=<")

    async def test_as_values(self, large: Any, cluster: Any, autojump_clock: Any) -> None:
        """The record is named, not the array."""
        async with cluster.producer() as producer:
            with pytest.raises((BulkSendError, TypeError)) as caught:
                await producer.send_many("one", large)
            assert len(str(caught.value)) < TOLD
            with pytest.raises((BulkSendError, TypeError, ValueError)) as caught:
                await producer.send_arrow("one", large)
            assert len(str(caught.value)) < TOLD
            pa = pytest.importorskip("pyarrow")
            for place in (
                "key",
                "keys",
                "headers",
                "partition",
                "partitions",
                "timestamp_ms",
                "timestamps_ms",
            ):
                for send, values in ((producer.send_many, [b"v"]), (producer.send_arrow, pa.array([b"v"]))):
                    with pytest.raises((BulkSendError, TypeError, ValueError)) as caught:
                        await send("one", values, **{place: large})
                    assert len(str(caught.value)) < TOLD
            with pytest.raises(TypeError, match="value must be the name of a column") as caught:
                await producer.send_arrow("one", pa.array([b"v"]), value=large)
            assert len(str(caught.value)) < TOLD
        assert TopicPartition("one", 0) not in cluster.scripted.logs or stored(cluster, "one") == []
