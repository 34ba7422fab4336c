"""Messages of SASL have one reading: base64 is the one text of its bytes, and nothing is said twice."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.net.sasl.mechanisms import Refusal
from splashdam.net.sasl.oauthbearer import OAuthBearerServer
from splashdam.net.sasl.scram import strict_base64
from splashdam.net.sasl.unsecured_jws import strict_base64url

ALPHABETS = "AQgw+/-_=\n x"


@given(st.binary(max_size=50))
def test_what_was_encoded_comes_back(data: bytes) -> None:
    """In both alphabets."""
    assert strict_base64(base64.b64encode(data).decode()) == data
    assert strict_base64url(base64.urlsafe_b64encode(data).decode().rstrip("=")) == data


@given(st.text(alphabet=ALPHABETS, max_size=12) | st.text(max_size=12))
def test_no_two_texts_mean_the_same(text: str) -> None:
    """Whatever is taken is what an encoder would have written."""
    data, of_url = strict_base64(text), strict_base64url(text)
    assert data is None or base64.b64encode(data).decode() == text
    assert of_url is None or base64.urlsafe_b64encode(of_url).decode().rstrip("=") == text


def test_what_the_standard_library_takes() -> None:
    """Letters of the other alphabet, padding in a token, unread bits that are set."""
    assert strict_base64url("-_8") == bytes((0xFB, 0xFF))
    for text in ("+/8", "-_9", "-_8=", "-_8\n"):
        assert strict_base64url(text) is None
    for text in ("QR==", "QQ", "QQ===", "QQ==QQ==", "Q Q=="):
        assert strict_base64(text) is None


class NoToken:
    """An authority that nothing may reach."""

    def check_token(self, token: str, extensions: object) -> None:
        raise AssertionError((token, extensions))


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer abc\x01auth=Bearer def\x01\x01",
        b"n,,\x01auth=Bearer abc\x01trace=1\x01trace=2\x01\x01",
        b"n,,\x01auth=Bearer ab\xff\x01\x01",
        b"n,,\x01auth=Bearer abc\x01\x01more",
    ],
)
def test_a_token_message_that_could_be_read_in_two_ways(message: bytes) -> None:
    """Two tokens, an extension twice, no UTF-8, bytes behind the end: nothing is looked at."""
    with pytest.raises(Refusal, match="Invalid OAUTHBEARER"):
        OAuthBearerServer(NoToken()).step(message)  # type: ignore[arg-type]  # it is not asked
