"""SASL, request by request: what is answered to a client that has not authenticated, and to one that has."""

from __future__ import annotations

from splashdam.model.broker_errors import ErrorCode
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.testing.contract.behaviour import Run, behaviour, expect
from splashdam.testing.contract.behaviours.security import listener_of, with_a_wrong_password, with_passwords
from splashdam.testing.contract.raw_connection import RawConnection
from splashdam.testing.contract.vocabulary import NOT_IN_CLIENT, PROTOCOL, Listener, Refused
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.metadata import MetadataRequest
from splashdam.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest


@behaviour(PROTOCOL)
def only_versions_are_answered_before_authentication(run: Run) -> None:
    """ApiVersions is answered, once; any other request ends the connection."""
    listener = with_passwords(run)[0]
    for request in (
        MetadataRequest(topics=[]),
        ApiVersionsRequest(),
        SaslAuthenticateRequest(auth_bytes=b""),
    ):
        with _stranger(listener) as connection:
            expect(connection.ask(ApiVersionsRequest(), 0).error_code, 0, "error of ApiVersions")
            connection.send(request, 0)
            connection.expect_closed(request.NAME)


@behaviour(PROTOCOL)
def an_unknown_mechanism_is_answered_with_those_there_are(run: Run) -> None:
    """UNSUPPORTED_SASL_MECHANISM with a list, and then the connection ends."""
    listener = with_passwords(run)[0]
    with _stranger(listener) as connection:
        answer = connection.ask(SaslHandshakeRequest(mechanism="SPLASHDAM"))
        expect(answer.error_code, ErrorCode.UNSUPPORTED_SASL_MECHANISM, "error")
        expect(listener.mechanism in answer.mechanisms, True, f"{listener.mechanism} in {answer.mechanisms}")
        connection.expect_closed("an unknown mechanism")


@behaviour(PROTOCOL)
def a_handshake_without_sasl_is_an_illegal_state(run: Run) -> None:
    """Without SASL, SaslHandshake is ILLEGAL_SASL_STATE, and the connection goes on."""
    listener = listener_of(run, lambda each: not each.protocol.startswith("SASL"), "without SASL")
    with _stranger(listener) as connection:
        answer = connection.ask(SaslHandshakeRequest(mechanism="PLAIN"))
        expect(
            (answer.error_code, answer.mechanisms), (ErrorCode.ILLEGAL_SASL_STATE, []), "error, mechanisms"
        )
        expect(len(connection.ask(MetadataRequest(topics=[])).topics), 0, "topics")


@behaviour(PROTOCOL)
def wrong_users_and_wrong_passwords_have_one_answer(run: Run) -> None:
    """The error message does not tell which of them is wrong; then the connection ends."""
    for listener in with_passwords(run):
        mechanism = listener.mechanism
        wanted = (
            "Authentication failed: Invalid username or password"
            if mechanism == "PLAIN"
            else "Authentication failed during authentication due to invalid credentials"
            f" with SASL mechanism {mechanism}"
        )
        for wrong in (with_a_wrong_password(listener), listener.but(sasl_plain_username=run.name())):
            with _stranger(listener) as connection:
                try:
                    connection.log_in(wrong.security)
                except Refused as error:
                    found = error.name, error.text
                else:
                    found = "none", ""
                expect(found, ("SASL_AUTHENTICATION_FAILED", wanted), f"error and text with {mechanism}")
                connection.expect_closed("SaslAuthenticate")


@behaviour(PROTOCOL)
def a_session_without_an_end_is_not_renewed(run: Run) -> None:
    """If the session has no lifetime, further handshakes and proofs are ILLEGAL_SASL_STATE; it goes on."""
    listener = with_passwords(run)[0]
    with _stranger(listener) as connection:
        if connection.log_in(listener.security):
            raise Refused(NOT_IN_CLIENT, "the cluster limits sessions by connections.max.reauth.ms")
        shaken = connection.ask(SaslHandshakeRequest(mechanism=listener.mechanism or ""))
        proved = connection.ask(SaslAuthenticateRequest(auth_bytes=b""))
        expect((shaken.error_code, proved.error_code), (ErrorCode.ILLEGAL_SASL_STATE,) * 2, "errors")
        expect(connection.ask(MetadataRequest(topics=[])).topics, [], "topics")


def _stranger(listener: Listener) -> RawConnection:
    """Connect without a login."""
    address = parse_bootstrap_servers(listener.bootstrap_servers)[0]
    return RawConnection(*address, listener.without_login().security)
