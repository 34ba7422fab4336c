"""From a byte stream to frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.running.alone import traced

from splashdam.model.errors import ProtocolError
from splashdam.wire.framing import FrameDecoder


def framed(payload: bytes) -> bytes:
    """A payload behind its size."""
    return len(payload).to_bytes(4, "big") + payload


@given(
    payloads=st.lists(st.binary(min_size=4, max_size=30), max_size=6),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
def test_any_splitting_gives_the_same_frames(payloads: list[bytes], cuts: list[int]) -> None:
    """Frames do not depend on where the stream was cut."""
    stream = b"".join(map(framed, payloads))
    decoder = FrameDecoder(1000)
    frames: list[memoryview] = []
    start = 0
    for end in [*sorted(min(cut, len(stream)) for cut in cuts), len(stream)]:
        frames += decoder.feed(stream[start:end])
        start = end
    assert [bytes(frame) for frame in frames] == payloads


def test_frames_are_writable_and_independent() -> None:
    """Each frame has memory of its own: a broker stamps offsets into it, and keeping one pins no other."""
    one, other = FrameDecoder(100).feed(framed(b"this") + framed(b"other"))
    one[0] = ord("T")
    assert bytes(one) == b"This"
    assert one.obj is not other.obj


def test_a_frame_of_the_largest_size() -> None:
    """The limit itself is legal, one more is not."""
    assert FrameDecoder(5).feed(framed(b"12345")) == [b"12345"]
    with pytest.raises(ProtocolError, match="frame size 6 is above the limit of 5 bytes"):
        FrameDecoder(5).feed(framed(b"123456"))


def test_a_negative_size() -> None:
    """It is refused as soon as its four bytes are there."""
    decoder = FrameDecoder(100)
    assert decoder.feed(b"\xff\xff\xff") == []
    with pytest.raises(ProtocolError, match="frame size -2 is negative"):
        decoder.feed(b"\xfe")


def test_a_claim_allocates_nothing() -> None:
    """A size of 100 MB costs nothing until bytes arrive."""
    assert traced(feed_a_few_bytes).peak_bytes < 10_000


def feed_a_few_bytes() -> None:
    assert FrameDecoder(100_000_000).feed((100_000_000).to_bytes(4, "big") + b"few") == []


def test_how_much_to_read() -> None:
    """The rest of a large frame, at least 64 KiB, at most 1 MiB."""
    decoder = FrameDecoder(100_000_000)
    assert decoder.wanted_bytes == 65_536
    decoder.feed((200_000).to_bytes(4, "big") + b"x" * 50_000)
    assert decoder.wanted_bytes == 150_000
    decoder.feed(b"x" * 149_000)
    assert decoder.wanted_bytes == 65_536
    decoder.feed(b"x" * 1000 + (50_000_000).to_bytes(4, "big"))
    assert decoder.wanted_bytes == 1024 * 1024


@pytest.mark.parametrize("size", [0, 1, 3])
def test_frames_that_hold_no_message(size: int) -> None:
    """A megabyte of zeros is not 262,144 frames."""
    with pytest.raises(ProtocolError, match=f"frame size {size} is too small for any message"):
        FrameDecoder(100).feed(size.to_bytes(4, "big") + bytes(1 << 20))
    assert FrameDecoder(100).feed(framed(bytes(4))) == [bytes(4)]
