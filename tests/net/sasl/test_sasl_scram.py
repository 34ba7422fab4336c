"""SCRAM against the RFCs' vectors, kafka-python's client, and peers that cheat."""

from __future__ import annotations

import base64
import stringprep
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.net.sasl.scram import ScramClient as KafkaPythonClient
from support.security.sasl_kit import Users, converse, credentials

from splashdam.model.errors import SaslError
from splashdam.net.sasl.mechanisms import Authenticated, Refusal, ScramCredential
from splashdam.net.sasl.saslprep import saslprep
from splashdam.net.sasl.scram import (
    HASHES,
    MAX_ITERATIONS,
    ScramClient,
    ScramServer,
    credential_with,
    make_credential,
    proves,
)

CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


class Rfc7677:
    """Knows the RFC's user alone."""

    def scram_credential(self, mechanism: str, username: str) -> ScramCredential | None:
        return credential_with(mechanism, "pencil", SALT, 4096) if username == "user" else None

    def check_password(self, username: str, password: str) -> bool:
        raise AssertionError

    def check_token(self, token: str, extensions: Any) -> Authenticated:
        raise AssertionError


def rfc_client() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", credentials("user", "pencil"), nonce=CLIENT_NONCE)


def test_client_of_rfc_7677() -> None:
    """Section 3: what the client says, byte for byte; and it knows the server by its signature."""
    client = rfc_client()
    assert client.start() == f"n,,n=user,r={CLIENT_NONCE}".encode()
    assert client.step(FIRST) == FINAL
    assert client.step(SIGNATURE) is None


def test_server_of_rfc_7677() -> None:
    """What the server says to that."""
    server = ScramServer("SCRAM-SHA-256", Rfc7677(), nonce=SERVER_NONCE)
    assert server.step(f"n,,n=user,r={CLIENT_NONCE}".encode()) == FIRST
    assert server.step(FINAL) == SIGNATURE
    assert server.outcome == Authenticated("user")


@pytest.mark.parametrize("name", HASHES)
def test_kafka_pythons_client_gets_in(name: str) -> None:
    """Both hashes, with a client that we did not write."""
    client = KafkaPythonClient("anna", "s3cret", name)
    server = ScramServer(name, Users(anna="s3cret"), nonce="server")
    client.process_server_first_message(server.step(client.first_message()))
    client.process_server_final_message(server.step(client.final_message()))
    assert server.outcome == Authenticated("anna")


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (FIRST.replace(b"4096", b"4095"), "4095 iterations; 4096 to 1000000 are accepted"),
        (FIRST.replace(b"4096", str(MAX_ITERATIONS + 1).encode()), "1000001 iterations"),
        (FIRST.replace(b"4096", b"1e9"), "sent no number of iterations"),
        (FIRST.replace(CLIENT_NONCE.encode(), b"another"), "nonce does not continue ours"),
        (FIRST.replace(SERVER_NONCE.encode(), b""), "nonce does not continue ours"),
        (FIRST.replace(b"W22ZaJ0SNY7soEsUEjb6gQ==", b"!"), "invalid base64"),
        (FIRST.replace(b"W22ZaJ0SNY7soEsUEjb6gQ==", b""), "sent no salt"),
        (b"\xff\xfe", "not valid SCRAM"),
        (b"", "not valid SCRAM"),
    ],
    ids=repr,
)
def test_a_hostile_broker_is_refused(first: bytes, words: str) -> None:
    """Before anything is computed that it could use, or that takes long."""
    client = rfc_client()
    client.start()
    with pytest.raises(SaslError, match=words):
        client.step(first)


@pytest.mark.parametrize(
    ("final", "words"),
    [
        (SIGNATURE[:-2] + b"0=", "does not know the password"),
        (b"e=other-error", "sent 'other-error' instead of its proof"),
        (b"v=", "does not know the password"),
    ],
    ids=repr,
)
def test_a_broker_that_does_not_prove_itself_is_refused(final: bytes, words: str) -> None:
    """A broker that accepts every login may be an impostor that wants the records."""
    client = rfc_client()
    client.start()
    client.step(FIRST)
    with pytest.raises(SaslError, match=words):
        client.step(final)


@pytest.mark.parametrize("user", ["anna", "nobody"])
def test_wrong_passwords_and_unknown_users_look_the_same(user: str) -> None:
    """The same texts, the same number of messages, a salt that stays."""
    salts = set()
    for _ in range(2):
        client = ScramClient("SCRAM-SHA-512", credentials(user, "wrong"), nonce="ours")
        server = ScramServer("SCRAM-SHA-512", Users(anna="s3cret"), nonce="theirs")
        first = server.step(client.start())
        salts.add(first)
        final = client.step(first)
        assert final is not None
        with pytest.raises(Refusal, match="invalid credentials with SASL mechanism SCRAM-SHA-512"):
            server.step(final)
        assert server.outcome is None
    assert len(salts) == 1


@settings(max_examples=25, deadline=None)
@given(user=st.text(min_size=1), password=st.text(min_size=1))
def test_any_name_and_password(user: str, password: str) -> None:
    """Commas, equals signs and every script."""
    try:
        (user + password).encode()
    except UnicodeEncodeError:
        return
    client = ScramClient("SCRAM-SHA-256", credentials(user, password), nonce="ours")
    server = ScramServer("SCRAM-SHA-256", Users(**{user: password}), nonce="theirs")
    converse(client, server)
    assert server.outcome == Authenticated(user)


@settings(deadline=None)
@given(messages=st.lists(st.binary(), min_size=1, max_size=3))
def test_bytes_of_any_kind_are_refused(messages: list[bytes]) -> None:
    """A server meets them with a refusal, a client with an error, and neither with anything else."""
    server = ScramServer("SCRAM-SHA-256", Users(anna="s3cret"), nonce="theirs")
    client = rfc_client()
    for message in messages:
        with pytest.raises(Refusal):
            server.step(message)
        with pytest.raises(SaslError):
            client.step(message)


def test_what_is_kept_of_a_password_does_not_tell_it() -> None:
    """Neither the stored values nor their repr contain it; each has a salt of its own."""
    one, other = (make_credential("SCRAM-SHA-256", "s3cret") for _ in range(2))
    assert one.salt != other.salt
    assert proves(one, "SCRAM-SHA-256", "s3cret")
    assert not proves(one, "SCRAM-SHA-256", "s3cret ")
    assert repr(one) == "ScramCredential(iterations=4096)"


@pytest.mark.parametrize(
    ("text", "prepared"),
    [("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX")],
)
def test_saslprep_of_rfc_4013(text: str, prepared: str) -> None:
    """Section 3's examples."""
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\u0007", "\u0627\u0031", "a\u0627", "\ue000", "\u0221"])
def test_saslprep_prohibits(text: str) -> None:
    """Control characters, mixed directions (RFC 4013's last two), private use, unassigned."""
    with pytest.raises(ValueError, match=r"not allowed|it mixes"):
        saslprep(text)


@given(st.text(st.characters(max_codepoint=127)))
def test_saslprep_of_ascii_is_what_the_tables_say(text: str) -> None:
    """It is not looked up there: a name of 32,000 letters kept a broker's loop for 0.1 s."""
    prohibited = any(stringprep.in_table_c21_c22(each) for each in text)
    mapped = any(stringprep.in_table_c12(each) or stringprep.in_table_b1(each) for each in text)
    assert not mapped
    if prohibited:
        with pytest.raises(ValueError, match="not allowed"):
            saslprep(text)
    else:
        assert saslprep(text) == text


def test_saslprep_of_long_texts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """ASCII is not looked up letter by letter, and more than 1,024 other characters are refused."""
    looked: list[str] = []
    in_table_c12 = stringprep.in_table_c12
    monkeypatch.setattr(stringprep, "in_table_c12", lambda each: looked.append(each) or in_table_c12(each))
    assert saslprep("x" * 32_000) == "x" * 32_000
    with pytest.raises(ValueError, match=r"it has 1025 characters, at most 1024 are allowed"):
        saslprep("\u00e9" * 1_025)
    assert looked == []
    assert saslprep("\u00e9" * 1_024) == "\u00e9" * 1_024
    assert len(looked) == 1_024


def answer_to(final: bytes) -> Authenticated | None:
    """What the RFC's server makes of a last message of its client."""
    server = ScramServer("SCRAM-SHA-256", Rfc7677(), nonce=SERVER_NONCE)
    assert server.step(f"n,,n=user,r={CLIENT_NONCE}".encode()) == FIRST
    try:
        server.step(final)
    except Refusal:
        return None
    return server.outcome


@given(st.binary(min_size=1, max_size=40))
def test_right_proof_with_bytes_appended_was_taken(more: bytes) -> None:
    """The proof has as many bytes as the hash, no more."""
    head, _, proof = FINAL.rpartition(b",p=")
    longer = base64.b64encode(base64.b64decode(proof) + more)
    assert answer_to(FINAL) == Authenticated("user")
    assert answer_to(head + b",p=" + longer) is None


@given(st.integers(0, 31))
def test_a_proof_that_is_cut_short(length: int) -> None:
    """A shorter proof is refused, too."""
    head, _, proof = FINAL.rpartition(b",p=")
    assert answer_to(head + b",p=" + base64.b64encode(base64.b64decode(proof)[:length])) is None


@given(st.data())
def test_a_last_message_has_one_form(data: st.DataObject) -> None:
    """One byte more anywhere, in the proof's base64 too, and nobody is let in."""
    place = data.draw(st.integers(0, len(FINAL)))
    byte = data.draw(st.binary(min_size=1, max_size=1))
    assert answer_to(FINAL[:place] + byte + FINAL[place:]) is None


def test_base64_that_says_the_same_in_another_way() -> None:
    """The last letter has bits that nobody reads; they are zero."""
    assert FINAL.endswith(b"VQ=")
    assert answer_to(FINAL[:-2] + b"R=") is None
    assert answer_to(FINAL + b"=") is None


def test_a_field_that_comes_twice() -> None:
    """A message that could be read in two ways is not read."""
    head, _, proof = FINAL.rpartition(b",p=")
    assert answer_to(b"c=biws," + head + b",p=" + proof) is None
    with pytest.raises(Refusal):
        ScramServer("SCRAM-SHA-256", Rfc7677(), nonce="s").step(b"n,,n=eve,n=user,r=abc")
    client = rfc_client()
    client.start()
    with pytest.raises(SaslError):
        client.step(b"i=4096," + FIRST)


def test_what_is_no_utf8() -> None:
    """It was read with replacements, so that two messages looked alike."""
    with pytest.raises(Refusal, match="first message format"):
        ScramServer("SCRAM-SHA-256", Rfc7677(), nonce="s").step(b"n,,n=user,r=ab\xffc")
